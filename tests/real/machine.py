"""A throw-away machine: real systemd as PID 1 and a real OpenSSH server, in about two seconds.

The machine is a systemd-nspawn container over a copy-on-write overlay of this machine's own root:
nothing is downloaded and nothing out here is changed. It has a network of its own, one veth pair
with the addresses ``10.99.N.1`` (here) and ``10.99.N.2`` (there). It lives as long as the Machine
object's process: when that closes it, exits or is killed, the machine and all of its mounts,
interfaces and processes go (see machine_inside.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cgroups
from needs import find_program

PREFIX = "specdash-rig-"
HERE = Path(__file__).resolve().parent
PROGRAMS = {
    "systemd-nspawn": "systemd-container",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "unshare": "util-linux",
    "mount": "mount",
    "dbus-daemon": "dbus",
}
"""What a machine needs out here, and the Debian package that has it."""

_SSHD = """\
Port 22
HostKey /etc/specdash-rig/host_key
AuthorizedKeysFile /etc/specdash-rig/authorized_keys
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
AllowTcpForwarding yes
Subsystem sftp internal-sftp
"""

_SSHD_UNIT = """\
[Unit]
Description=OpenSSH server of the rig
[Service]
RuntimeDirectory=sshd
ExecStart={sshd} -D -e -f /etc/specdash-rig/sshd_config
KillMode=process
Restart=on-failure
"""

_TARGET = """\
[Unit]
Description=The rig
Requires=basic.target
Wants=rig-sshd.service
After=basic.target rig-sshd.service
AllowIsolate=yes
"""

_JOURNAL = "[Journal]\nStorage=volatile\n"


class MachineError(RuntimeError):
    """The machine did not come up; the message has its last output."""


@dataclass(frozen=True)
class TextFile:
    """A file put into the machine before it boots."""

    text: str
    mode: int = 0o644


@dataclass
class Machine:
    """One machine. ``work`` holds its keys, its SSH config and its console log.

    ``files``: path inside -> content. ``binds``: path inside -> folder out here, read-only.
    Use as a context manager, or call :meth:`start` and :meth:`close`.
    """

    name: str
    files: Mapping[str, TextFile] = field(default_factory=dict)
    binds: Mapping[str, Path] = field(default_factory=dict)
    boot_s: float = 60.0
    work: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix=PREFIX)))
    alias: str = "rig"
    octet: int = 0
    _inside: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        """The machine's own IPv4 address."""
        return f"10.99.{self.octet}.2"

    @property
    def ssh_config(self) -> Path:
        return self.work / "ssh_config"

    @property
    def console(self) -> Path:
        return self.work / "console.log"

    def __enter__(self) -> Machine:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def start(self) -> None:
        """Boot and wait until a command runs over SSH. Raises MachineError."""
        (self.work / "owner").write_text(f"{os.getpid()} {_started(os.getpid())}\n")
        self._make_keys()
        with self.console.open("wb") as console:
            self._inside = subprocess.Popen(
                [
                    *("unshare", "--mount", "--net", "--propagation", "private"),
                    *("--pid", "--fork", "--mount-proc", "--kill-child=KILL"),
                    *(sys.executable, str(HERE / "machine_inside.py")),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=console,
                text=True,
                start_new_session=True,
                env={**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"},
            )
        self._expect("namespaces")
        self._make_link(self._inside.pid)
        self._write_ssh_config()
        assert self._inside.stdin is not None
        self._inside.stdin.write(json.dumps(self._spec()) + "\n")
        self._inside.stdin.flush()
        self._expect("booting")
        self._wait_for_ssh()

    def close(self) -> None:
        """Power off and remove everything. May be called twice."""
        inside, self._inside = self._inside, None
        if inside is not None:
            assert inside.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it had ended by itself
                inside.stdin.close()
            try:
                inside.wait(20)
            except subprocess.TimeoutExpired:
                inside.kill()
                inside.wait()
        _remove(self.work)

    def ssh(
        self, *argv: str, stdin: str | None = None, check: bool = True, timeout_s: float = 30.0
    ) -> str:
        """Run words through the login shell of root over the system's own ssh; stdout.

        As with ``ssh`` itself the words are joined with blanks and read by the remote shell.
        Raises AssertionError with the output where the status is not 0 and ``check`` is set.
        """
        done = subprocess.run(
            ["ssh", "-F", str(self.ssh_config), self.alias, *argv],
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if check and done.returncode:
            raise AssertionError(f"{argv}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def _make_keys(self) -> None:
        for name in ("id", "host_key"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", self.work / name)

    def _make_link(self, pid: int) -> None:
        """The first free network of 250, starting at one that depends on this process."""
        taken = _run("ip", "-o", "-4", "address", "show")
        for offset in range(250):
            octet = (os.getpid() + offset) % 250 + 1
            link = f"specdash{octet}"
            if f" 10.99.{octet}." in taken:
                continue
            try:
                _run("ip", "link", "add", link, "type", "veth", "peer", "eth0", "netns", str(pid))
            except MachineError as error:
                if "File exists" in str(error):
                    continue
                raise
            _run("ip", "address", "add", f"10.99.{octet}.1/30", "dev", link)
            _run("ip", "link", "set", link, "up")
            self.octet = octet
            return
        raise MachineError("no free network: 10.99.1.0/30 to 10.99.250.0/30 are all taken")

    def _write_ssh_config(self) -> None:
        key = (self.work / "host_key.pub").read_text()
        (self.work / "known_hosts").write_text(f"{self.address} {key}")
        self.ssh_config.write_text(
            f"Host {self.alias}\n"
            f"  HostName {self.address}\n"
            "  User root\n"
            f"  IdentityFile {self.work / 'id'}\n"
            "  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.work / 'known_hosts'}\n"
            "  GlobalKnownHostsFile /dev/null\n"
            "  StrictHostKeyChecking yes\n"
            "  BatchMode yes\n"
            "  LogLevel ERROR\n"
        )

    def _spec(self) -> dict[str, object]:
        files = {
            "/etc/specdash-rig/sshd_config": TextFile(_SSHD),
            "/etc/specdash-rig/host_key": TextFile((self.work / "host_key").read_text(), 0o600),
            "/etc/specdash-rig/authorized_keys": TextFile((self.work / "id.pub").read_text()),
            "/etc/systemd/system/rig-sshd.service": TextFile(
                _SSHD_UNIT.format(sshd=find_program("sshd"))
            ),
            "/etc/systemd/system/rig.target": TextFile(_TARGET),
            "/etc/systemd/journald.conf.d/rig.conf": TextFile(_JOURNAL),
            **self.files,
        }
        return {
            "work": str(self.work),
            "name": self.name,
            "group": self.work.name,
            "address": f"{self.address}/30",
            "target": "rig.target",
            "files": {path: {"text": f.text, "mode": f.mode} for path, f in files.items()},
            "binds": {inside: str(outside) for inside, outside in self.binds.items()},
        }

    def _expect(self, word: str) -> None:
        assert self._inside is not None
        assert self._inside.stdout is not None
        line = self._inside.stdout.readline().strip()
        if line != word:
            raise self._failed(f"the machine did not reach {word!r}")

    def _wait_for_ssh(self) -> None:
        assert self._inside is not None
        end = time.monotonic() + self.boot_s
        while not (_answers(self.address) and self._logs_in()):
            if self._inside.poll() is not None:
                raise self._failed("the machine ended while it booted")
            if time.monotonic() > end:
                raise self._failed(f"no SSH login after {self.boot_s:.0f} s")
            time.sleep(0.05)

    def _logs_in(self) -> bool:
        try:
            self.ssh("true", timeout_s=10)
        except (AssertionError, subprocess.TimeoutExpired):
            return False
        return True

    def _failed(self, what: str) -> MachineError:
        tail = self.console.read_text(errors="replace").splitlines()[-30:]
        return MachineError("\n".join([what, *tail]))


def remove_leftovers() -> tuple[list[Path], list[tuple[Path, int]]]:
    """Remove the folders of machines whose process has died; returns (removed, still in use).

    Their mounts, networks and processes went with the process; only the folder and empty control
    groups can stay.
    """
    removed: list[Path] = []
    in_use: list[tuple[Path, int]] = []
    for work in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        if not work.is_dir() or work.is_symlink() or work.stat().st_uid != os.geteuid():
            continue
        words = (work / "owner").read_text().split() if (work / "owner").is_file() else []
        if len(words) == 2 and _started(int(words[0])) == words[1]:
            in_use.append((work, int(words[0])))
        else:
            _remove(work)
            removed.append(work)
    return removed, in_use


def _remove(work: Path) -> None:
    cgroups.remove(work.name)
    shutil.rmtree(work, ignore_errors=True)


def _started(pid: int) -> str:
    """The start time of a process in clock ticks, "" where there is none: a pid can be reused."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return ""
    return stat.rpartition(b")")[2].split()[19].decode()


def _answers(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=1) as connection:
            connection.settimeout(2)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _run(*argv: str | Path) -> str:
    words: Sequence[str] = [str(word) for word in argv]
    program = find_program(words[0]) or words[0]
    done = subprocess.run(
        [program, *words[1:]], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        raise MachineError(f"{' '.join(words)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout
