"""The inner half of a throw-away machine, in mount, network and process namespaces of its own.

Started by machine.py under ``unshare``. Speaks lines: says ``namespaces`` when it runs, reads one
JSON line (see machine.Spec), says ``booting``, and runs systemd-nspawn until its stdin closes.
It is the first process of its namespace, so whatever ends it ends every process of the machine,
and with the last of them its mounts and its network go. Nothing of it can outlive a crash.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import cgroups

REBOOT = 133
"""Exit status of systemd-nspawn when the machine asks for a reboot."""

MASKED = (
    "console-getty.service",
    "getty.target",
    "systemd-binfmt.service",
    "systemd-modules-load.service",
    "systemd-networkd.service",
    "systemd-resolved.service",
    "systemd-sysctl.service",
    "systemd-timesyncd.service",
    "systemd-udev-trigger.service",
    "systemd-udevd.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
)
"""Units of an ordinary machine that have nothing to do in this one."""


def main() -> int:
    say("namespaces")
    line = sys.stdin.readline()
    if not line:
        return 1
    spec = json.loads(line)
    root = mount_root(Path(spec["work"]))
    prepare(root, spec)
    bring_up_network(spec["address"])
    cgroups.enter(spec["group"])
    say("booting")
    return keep_running(root, spec)


def say(word: str) -> None:
    print(word, flush=True)


def mount_root(work: Path) -> Path:
    """An overlay of this machine's own root, its changes in memory."""
    memory = work / "memory"
    memory.mkdir()
    run("mount", "-t", "tmpfs", "specdash-rig", str(memory))
    upper, scratch, root = memory / "upper", memory / "scratch", memory / "root"
    for folder in (upper, scratch, root):
        folder.mkdir()
    layers = f"lowerdir=/,upperdir={upper},workdir={scratch}"
    run("mount", "-t", "overlay", "specdash-rig", "-o", layers, str(root))
    return root


def prepare(root: Path, spec: dict[str, Any]) -> None:
    """Take this machine's own units, mounts and accounts out of the copy; put the rig's in."""
    units = root / "etc/systemd/system"
    if units.is_symlink():
        units.unlink()
    elif units.is_dir():
        shutil.rmtree(units)
    units.mkdir(parents=True, exist_ok=True)
    for unit in MASKED:
        (units / unit).symlink_to("/dev/null")
    for name, content in (("fstab", ""), ("crypttab", ""), ("machine-id", "")):
        put(root, f"/etc/{name}", content, 0o644)
    put(root, "/etc/hostname", spec["name"] + "\n", 0o644)
    home = "/var/lib/specdash-rig"
    (root / home.lstrip("/")).mkdir(parents=True, exist_ok=True)
    shell = "/bin/bash" if (root / "bin/bash").exists() else "/bin/sh"
    edit_account(root, "/etc/passwd", {5: home, 6: shell})
    edit_account(root, "/etc/shadow", {1: "*"})  # a locked root may not log in, key or not
    for path, item in spec["files"].items():
        put(root, path, item["text"], item["mode"])
    (units / "default.target").symlink_to(units_path(spec["target"]))


def units_path(unit: str) -> str:
    return f"/etc/systemd/system/{unit}"


def put(root: Path, path: str, text: str, mode: int) -> None:
    """Write a file of the machine; a symbolic link there is replaced, never followed."""
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.parent.resolve().is_relative_to(root.resolve()):
        raise RuntimeError(f"{path} leads out of the machine's root")
    target.unlink(missing_ok=True)
    target.write_text(text, encoding="utf-8")
    target.chmod(mode)


def edit_account(root: Path, path: str, fields: dict[int, str]) -> None:
    file = root / path.lstrip("/")
    lines = file.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        parts = line.split(":")
        if parts[0] == "root":
            for index, value in fields.items():
                parts[index] = value
            lines[number] = ":".join(parts)
    mode = file.stat().st_mode & 0o777
    put(root, path, "\n".join(lines) + "\n", mode)


def bring_up_network(address: str) -> None:
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", address, "dev", "eth0")
    run("ip", "link", "set", "eth0", "up")


def keep_running(root: Path, spec: dict[str, Any]) -> int:
    """Run the machine, through reboots, until it is powered off or stdin closes."""
    while True:
        machine = subprocess.Popen(
            nspawn_argv(root, spec),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
        )
        if not ended_by_itself(machine):
            end(machine)
            return 0
        if machine.returncode != REBOOT:
            return machine.returncode


def nspawn_argv(root: Path, spec: dict[str, Any]) -> list[str]:
    argv = [
        *("systemd-nspawn", "--quiet", "--boot"),
        f"--directory={root}",
        f"--machine={spec['name']}",
        "--network-namespace-path=/proc/self/ns/net",
        *("--register=no", "--link-journal=no", "--console=pipe"),
        *("--resolv-conf=off", "--timezone=off"),
        *(f"--bind-ro={outside}:{inside}" for inside, outside in spec["binds"].items()),
    ]
    if not Path("/run/systemd/system").is_dir():
        argv.append("--keep-unit")  # no systemd out here that could give the machine a scope
    return argv


def ended_by_itself(machine: subprocess.Popen[bytes]) -> bool:
    """Wait for the machine's end (True) or for stdin to close (False)."""
    handle = os.pidfd_open(machine.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(handle, selectors.EVENT_READ, "machine")
            selector.register(sys.stdin, selectors.EVENT_READ, "stdin")
            while True:
                for key, _ in selector.select():
                    if key.data == "machine":
                        machine.wait()
                        return True
                    if not os.read(sys.stdin.fileno(), 4096):
                        return False
    finally:
        os.close(handle)


def end(machine: subprocess.Popen[bytes], grace_s: float = 8.0) -> None:
    machine.terminate()
    try:
        machine.wait(grace_s)
    except subprocess.TimeoutExpired:
        machine.kill()
        machine.wait()


def run(*argv: str) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip()}")


if __name__ == "__main__":
    sys.exit(main())
