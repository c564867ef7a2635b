"""A real OpenSSH server on loopback, with a configuration and keys of its own."""

from __future__ import annotations

import getpass
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from needs import require


@dataclass(frozen=True)
class Sshd:
    """``ports``: name -> port; each name may have a forced command, which then gets the client's
    command in SSH_ORIGINAL_COMMAND. ``directory`` holds the keys and the log."""

    directory: Path
    ports: Mapping[str, int]
    process: subprocess.Popen[bytes]

    @property
    def user(self) -> str:
        return getpass.getuser()

    @property
    def client_key(self) -> Path:
        return self.directory / "client"

    @property
    def host_key(self) -> str:
        """The public part, as in a known_hosts line."""
        return " ".join((self.directory / "host.pub").read_text().split()[:2])

    def fingerprint(self) -> str:
        out = run("ssh-keygen", "-lf", str(self.directory / "host.pub"))
        return out.split()[1]

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")


def run(*argv: str) -> str:
    """A command's stdout; it has to succeed."""
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def write_config(home: Path, text: str) -> Path:
    """A client's ssh config."""
    path = home / "config"
    path.write_text(text)
    return path


@contextmanager
def sshd(directory: Path, forced: Mapping[str, str] | None = None) -> Iterator[Sshd]:
    """Start a server; port ``plain`` has no forced command."""
    program = require("sshd", package="openssh-server")
    keygen = require("ssh-keygen", package="openssh-client")
    for name in ("host", "client"):
        run(keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd as root refuses to start without it
    commands = {"plain": "", **(forced or {})}
    ports = dict(zip(commands, free_ports(len(commands)), strict=True))
    lines = [
        *(f"ListenAddress 127.0.0.1:{port}" for port in ports.values()),
        f"HostKey {directory}/host",
        f"AuthorizedKeysFile {directory}/client.pub",
        "PidFile none",
        "UsePAM no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "StrictModes no",
        "MaxStartups 100",
        "LogLevel VERBOSE",
    ]
    for name, command in commands.items():
        if command:
            lines += [f"Match LocalPort {ports[name]}", f"  ForceCommand {command}"]
    (directory / "sshd_config").write_text("\n".join(lines) + "\n")
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "-D", "-e", "-f", str(directory / "sshd_config")],
            stderr=log,
            start_new_session=True,
        )
    server = Sshd(directory, ports, process)
    try:
        for port in ports.values():
            _wait_for(port, server)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody uses."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in sockets]
    finally:
        for item in sockets:
            item.close()


def _wait_for(port: int, server: Sshd) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            if server.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"sshd did not start:\n{server.log()}") from None
            time.sleep(0.02)
