"""The box's two SSH servers, on loopback, with keys that live as long as the box.

A command runs in a real ``/bin/sh -c``, as sshd would run it: end of input and a closed channel reach it
as end of file on its stdin, and nothing else ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import asyncssh

from specdash.demo.faults import Fault, FaultSwitch
from specdash.demo.machine import Machine

MAX_SESSIONS = 10
"""Sessions of one connection, as sshd's default has it."""


class _Server(asyncssh.SSHServer):
    """One connection: the box's key only, forwards only to ports the box listens on."""

    def __init__(self, key: asyncssh.SSHKey, machine: Machine, links: set[_Server]) -> None:
        self._key = key
        self._machine = machine
        self._links = links
        self._connection: asyncssh.SSHServerConnection | None = None
        self.sessions = 0

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._links.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._links.discard(self)

    def cut(self) -> None:
        """Drop the connection without a word."""
        if self._connection is not None:
            self._connection.abort()

    def begin_auth(self, username: str) -> bool:
        del username
        return True

    def password_auth_supported(self) -> bool:
        return False

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        del username
        return key.public_data == self._key.public_data

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> bool:
        del orig_host, orig_port
        local = dest_host in ("127.0.0.1", "localhost", "::1", "0.0.0.0")  # noqa: S104
        if not local or dest_port not in {port for port, _ in self._machine.listening()}:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "Connection refused")
        return True


class SshHost:
    """One listening SSH server whose commands see one PATH."""

    def __init__(
        self,
        *,
        host_key: asyncssh.SSHKey,
        client_key: asyncssh.SSHKey,
        machine: Machine,
        faults: FaultSwitch,
        env: Mapping[str, str],
        home: Path,
    ) -> None:
        self._host_key = host_key
        self._client_key = client_key
        self._machine = machine
        self._faults = faults
        self._env = dict(env)
        self._home = home
        self._links: set[_Server] = set()
        self._listener: asyncssh.SSHAcceptor | None = None

    async def listen(self) -> int:
        """Start on an ephemeral loopback port; returns it."""
        self._listener = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=self._server,
            server_host_keys=[self._host_key],
            process_factory=self._process,
            encoding=None,
            login_timeout=30,
            server_version="OpenSSH_9.2p1_Box",
            allow_scp=False,
        )
        return int(self._listener.get_port())

    def _server(self) -> _Server:
        return _Server(self._client_key, self._machine, self._links)

    def enforce(self) -> None:
        """Cut every connection while the link fault is set."""
        if self._links and self._faults.on(Fault.LINK_DROPS):
            for link in list(self._links):
                link.cut()

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for link in list(self._links):
            link.cut()

    async def _process(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        link = process.get_extra_info("connection").get_owner()
        counted = isinstance(link, _Server)
        if counted:
            link.sessions += 1
            if link.sessions > MAX_SESSIONS:
                link.sessions -= 1
                process.stderr.write(b"open failed: too many sessions\n")
                process.exit(255)
                return
        try:
            await self._run(process)
        finally:
            if counted:
                link.sessions -= 1

    async def _run(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        command = process.command
        argv = ["/bin/sh", "-c", command] if command is not None else ["/bin/sh"]
        env = {**self._env, **{_text(k): _text(v) for k, v in process.env.items()}}
        child = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd=self._home,
            start_new_session=True,
        )
        stdin = cast("asyncio.StreamWriter", child.stdin)
        feed = asyncio.create_task(_feed(process, stdin))
        drain = asyncio.gather(
            _copy(
                cast("asyncio.StreamReader", child.stdout),
                process.stdout.write,
                process.stdout.drain,
            ),
            _copy(
                cast("asyncio.StreamReader", child.stderr),
                process.stderr.write,
                process.stderr.drain,
            ),
        )
        try:
            await drain
            status = await child.wait()
        finally:
            feed.cancel()
            drain.cancel()
            stdin.close()
        with contextlib.suppress(OSError):
            if status < 0:
                process.exit_with_signal(_signal_name(-status))
            else:
                process.exit(status)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _signal_name(number: int) -> str:
    return signal.Signals(number).name.removeprefix("SIG")


async def _feed(process: asyncssh.SSHServerProcess[bytes], stdin: asyncio.StreamWriter) -> None:
    """The client's input until its end or the channel's, then end of file."""
    try:
        while data := await process.stdin.read(65536):
            stdin.write(data)
            await stdin.drain()
    except (asyncssh.Error, OSError):
        pass
    finally:
        stdin.close()


async def _copy(
    source: asyncio.StreamReader, write: Callable[[bytes], object], drain: Callable[[], object]
) -> None:
    """One output of the command to its channel; a dead channel breaks the command's pipe."""
    try:
        while data := await source.read(65536):
            write(data)
            pending = drain()
            if asyncio.iscoroutine(pending):
                await pending
    except (asyncssh.Error, OSError):
        return
