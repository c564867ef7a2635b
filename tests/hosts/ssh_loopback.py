"""An SSH server in this process, for what needs no real one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from specdash.hosts.options import SshOptions
from specdash.hosts.pool import HostPool
from specdash.rig.schema import HostSpec


@dataclass
class Behaviour:
    """What the server lets in. ``kbdint``: prompts with whether they echo, and the answers."""

    password: str | None = None
    kbdint: list[tuple[str, bool, str]] = field(default_factory=list)
    keys: list[asyncssh.SSHKey] = field(default_factory=list)
    max_sessions: int = 10
    logins: int = 0
    connections: list[asyncssh.SSHServerConnection] = field(default_factory=list)
    sessions: int = 0


class _Server(asyncssh.SSHServer):
    def __init__(self, behaviour: Behaviour) -> None:
        self._b = behaviour

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._b.connections.append(conn)
        self._b.logins += 1

    def public_key_auth_supported(self) -> bool:
        return bool(self._b.keys)

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return key.public_data in [item.public_data for item in self._b.keys]

    def password_auth_supported(self) -> bool:
        return self._b.password is not None

    def validate_password(self, username: str, password: str) -> bool:
        return password == self._b.password

    def kbdint_auth_supported(self) -> bool:
        return bool(self._b.kbdint)

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str) -> Any:
        return "login", "", "", [(text, echo) for text, echo, _ in self._b.kbdint]

    def validate_kbdint_response(self, username: str, responses: Any) -> bool:
        return list(responses) == [answer for *_, answer in self._b.kbdint]

    def connection_requested(self, *args: Any) -> bool:
        return True


@dataclass
class Loopback:
    """A running server, and the files of a client's home directory."""

    port: int
    host_key: asyncssh.SSHKey
    client_key: asyncssh.SSHKey
    behaviour: Behaviour
    home: Path

    @property
    def target(self) -> str:
        return f"tester@127.0.0.1:{self.port}"

    def trust(
        self, key: asyncssh.SSHKey | None = None, *, marker: str = "", name: str = ""
    ) -> None:
        """Add a line to the client's known_hosts."""
        public = (key or self.host_key).export_public_key().decode()
        with (self.home / ".ssh" / "known_hosts").open("a") as file:
            file.write(f"{marker}{name or f'[127.0.0.1]:{self.port}'} {public}")

    def config(self, text: str) -> Path:
        path = self.home / ".ssh" / "config"
        path.write_text(text)
        return path

    def write_key(
        self, name: str = "id_ed25519", passphrase: str | None = None, form: str = "openssh"
    ) -> Path:
        path = self.home / ".ssh" / name
        path.write_bytes(self.client_key.export_private_key(form, passphrase))
        path.chmod(0o600)
        return path

    def pool(self, **options: Any) -> HostPool:
        """A pool with the one host ``svc``."""
        return HostPool({"svc": HostSpec("svc", ssh=self.target)}, SshOptions(**options))


async def _pump(reader: asyncio.StreamReader | None, writer: asyncssh.SSHWriter[bytes]) -> None:
    while reader is not None and (data := await reader.read(65536)):
        with contextlib.suppress(OSError):
            writer.write(data)
            await writer.drain()


async def _feed(
    process: asyncssh.SSHServerProcess[bytes], child: asyncio.subprocess.Process
) -> None:
    if child.stdin is None:
        return
    try:
        with contextlib.suppress(asyncssh.Error, OSError):
            while data := await process.stdin.read(65536):
                child.stdin.write(data)
    finally:
        child.stdin.close()


@asynccontextmanager
async def serve(home: Path, behaviour: Behaviour | None = None) -> AsyncIterator[Loopback]:
    """A server on a free port of 127.0.0.1; commands run in /bin/sh."""
    behaviour = behaviour or Behaviour()
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    client_key = asyncssh.generate_private_key("ssh-ed25519")
    processes: set[asyncio.subprocess.Process] = set()

    async def handle(process: asyncssh.SSHServerProcess[bytes]) -> None:
        behaviour.sessions += 1
        child = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            process.command or "",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        processes.add(child)
        feeding = asyncio.ensure_future(_feed(process, child))
        try:
            await asyncio.gather(
                _pump(child.stdout, process.stdout), _pump(child.stderr, process.stderr)
            )
            process.exit(await child.wait())
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    acceptor = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=lambda: _Server(behaviour),
        server_host_keys=[host_key],
        process_factory=handle,
        encoding=None,
        login_timeout=30,
    )
    try:
        yield Loopback(acceptor.get_port(), host_key, client_key, behaviour, home)
    finally:
        acceptor.close()
        for conn in behaviour.connections:
            conn.abort()
        await acceptor.wait_closed()
        for child in processes:
            if child.stdin is not None:
                child.stdin.close()
            await child.wait()
