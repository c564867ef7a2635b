"""SSH: connecting as OpenSSH users expect, commands as sessions of one connection, tunnels."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Any, cast

import asyncssh

from specdash.core.errors import UnreachableError, UsageError
from specdash.hosts.channel import Channel
from specdash.hosts.options import SecretStore, SshOptions
from specdash.hosts.protocol import LinkLostError, Tunnel
from specdash.hosts.running import OnCommand, ShellHost
from specdash.hosts.shell import login_line
from specdash.hosts.ssh_config import Resolved, resolve
from specdash.hosts.ssh_login import Login, login_error
from specdash.hosts.ssh_target import parse_target

MAX_SESSIONS = 8
"""sshd allows 10 a connection by default (MaxSessions); two are left to others."""

# A dead link is found after KEEPALIVE_S * (KEEPALIVE_COUNT + 1) = 6 s without an answer.
KEEPALIVE_S = 2
KEEPALIVE_COUNT = 2

_OPEN_S = 15.0
_CLOSE_S = 2.0
_MAX_HOPS = 8


class SshConnection:
    """One authenticated connection, with the jump hosts it stands on."""

    def __init__(
        self,
        conn: asyncssh.SSHClientConnection,
        login: Login,
        label: str,
        under: SshConnection | None,
    ) -> None:
        self._conn = conn
        self._login = login
        self._under = under
        self._sessions = asyncio.Semaphore(MAX_SESSIONS)
        self.label = label

    @property
    def alive(self) -> bool:
        return not self._login.lost and not self._conn.is_closed()

    @property
    def raw(self) -> asyncssh.SSHClientConnection:
        return self._conn

    def lost(self) -> LinkLostError:
        """The error for a connection that is gone."""
        why = self._login.lost_because
        return LinkLostError(
            f"the connection to {self.label} was lost" + (f": {why}" if why else ""),
            remedy="specdash connects again on the next command.",
        )

    async def open(self, words: Sequence[str], *, wait_s: float) -> Channel:
        """Start a session that executes ``words``."""
        line = login_line(words)
        if not self.alive:
            raise self.lost()
        try:
            async with asyncio.timeout(max(wait_s, _OPEN_S)):
                await self._sessions.acquire()
        except TimeoutError:
            raise UnreachableError(
                f"all {MAX_SESSIONS} sessions to {self.label} are busy",
                remedy="Wait for a running command to end.",
                code="sessions-busy",
            ) from None
        slot = _Slot(self._sessions)
        try:
            async with asyncio.timeout(_OPEN_S):
                # An ssh config may ask for a terminal or another command; neither is wanted here.
                _, session = await self._conn.create_session(
                    lambda: _SshChannel(slot), line, request_pty=False, encoding=None
                )
        except BaseException as error:
            slot.release()
            raise self._open_error(error) from error
        return cast("_SshChannel", session)

    def _open_error(self, error: BaseException) -> BaseException:
        if isinstance(error, TimeoutError):
            return UnreachableError(
                f"{self.label} did not open a session within {_OPEN_S:g} s",
                remedy="The host may be overloaded; try again.",
                code="session-timed-out",
            )
        if isinstance(error, asyncssh.ChannelOpenError) and self.alive:
            return UnreachableError(
                f"{self.label} refuses another session: {error.reason}",
                remedy="Its sshd may allow few sessions a connection (MaxSessions).",
                code="session-refused",
            )
        if isinstance(error, (asyncssh.Error, OSError)):
            return self.lost()
        return error

    async def forward(self, address: str, port: int) -> Tunnel:
        """A port on 127.0.0.1 that leads to ``address:port`` as the far host resolves it."""
        if not self.alive:
            raise self.lost()
        try:
            listener = await self._conn.forward_local_port("127.0.0.1", 0, address, port)
        except asyncssh.Error as error:
            raise self.lost() from error
        except OSError as error:
            raise UnreachableError(
                f"no local port can be opened for a tunnel: {error.strerror}", code="no-port"
            ) from error
        return _SshTunnel(listener)

    async def close(self) -> None:
        self._conn.close()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._conn.wait_closed()
        except TimeoutError:
            self._conn.abort()
        if self._under is not None:
            await self._under.close()


async def connect(
    text: str, name: str, options: SshOptions, store: SecretStore, *, _hops: int = 0
) -> SshConnection:
    """Connect to what an operator wrote for a host, through its jump hosts.

    Raises UnreachableError subclasses (exit 3) and UsageError for text that is no SSH host.
    """
    return await _connect(text, name, options, store, under=None, hops=_hops)


async def _connect(
    text: str,
    name: str,
    options: SshOptions,
    store: SecretStore,
    *,
    under: SshConnection | None,
    hops: int,
) -> SshConnection:
    to = await resolve(parse_target(text), options.config_files)
    owned = under
    try:
        if under is None and to.jumps:
            owned = await _jump(to, name, options, store, hops)
        return await _login(to, name, options, store, owned)
    except BaseException:
        if owned is not None:
            await owned.close()
        raise


async def _jump(
    to: Resolved, name: str, options: SshOptions, store: SecretStore, hops: int
) -> SshConnection | None:
    if hops >= _MAX_HOPS:
        raise UnreachableError(
            f"the jump hosts of {to.label} lead in a circle ({', '.join(to.jumps)})",
            remedy="Exclude the jump host from the block that sets ProxyJump (`Host * !NAME`).",
            code="jump-loop",
        )
    under: SshConnection | None = None
    for hop in to.jumps:
        try:
            parse_target(hop)
        except UsageError as error:
            raise UnreachableError(
                f"the ssh config names a jump host that is none: {error.message}",
                remedy=error.remedy,
                code="ssh-config",
            ) from error
        under = await _connect(hop, name, options, store, under=under, hops=hops + 1)
    return under


async def _login(
    to: Resolved,
    name: str,
    options: SshOptions,
    store: SecretStore,
    under: SshConnection | None,
) -> SshConnection:
    login: Login | None = None
    any_key_type = False
    while True:
        try:
            async with asyncio.timeout(options.connect_timeout_s) as deadline:
                login = Login(name, to, options.ask, store, deadline, options.connect_timeout_s)
                conn = await asyncssh.connect(
                    to.target.host,
                    **_arguments(to, login, under, any_key_type=any_key_type),
                )
                return SshConnection(conn, login, to.label, under)
        except asyncssh.KeyExchangeFailed as error:
            # The host has no key of a type that is known for it: see which it has, to say so.
            if not any_key_type and "host key" in error.reason:
                any_key_type = True
                continue
            raise login_error(error, to, login, options.connect_timeout_s) from error
        except (OSError, ValueError, asyncssh.Error) as error:
            raise login_error(error, to, login, options.connect_timeout_s) from error


class _NoKeys(list[Any]):
    """An empty list that is true: asyncssh takes a false one for "load the usual keys"."""

    def __bool__(self) -> bool:
        return True


def _arguments(
    to: Resolved, login: Login, under: SshConnection | None, *, any_key_type: bool
) -> dict[str, Any]:
    ids = to.identities
    arguments: dict[str, Any] = {
        "config": list(to.files),
        "client_factory": lambda: login,
        "known_hosts": to.trust.match,
        "client_keys": list(ids.keypairs) or _NoKeys(),
        "client_certs": (),
        "agent_path": ids.agent_path,
        "agent_identities": None if ids.agent_only is None else list(ids.agent_only),
        "x509_trusted_certs": None,
        "connect_timeout": None,
        "login_timeout": 24 * 3600,
        "keepalive_interval": KEEPALIVE_S,
        "keepalive_count_max": KEEPALIVE_COUNT,
        "agent_forwarding": False,
        "x11_forwarding": False,
        "request_pty": False,
        "command": None,
        "utf8_decode_errors": "replace",
        "tunnel": None if under is None else under.raw,
    }
    if to.target.port is not None:
        arguments["port"] = to.target.port
    if to.target.user is not None:
        arguments["username"] = to.target.user
    if any_key_type:
        arguments["server_host_key_algs"] = "default"
    return arguments


class SshHost(ShellHost):
    """A machine over SSH."""

    def __init__(
        self,
        name: str,
        connection: SshConnection,
        *,
        sudo: bool = False,
        on_command: OnCommand | None = None,
    ) -> None:
        super().__init__(name, sudo=sudo, on_command=on_command)
        self._connection = connection

    @property
    def alive(self) -> bool:
        return self._connection.alive

    async def open(self, words: Sequence[str], *, wait_s: float) -> Channel:
        return await self._connection.open(words, wait_s=wait_s)

    async def tunnel(self, address: str, port: int) -> Tunnel:
        return await self._connection.forward(address, port)

    async def close(self) -> None:
        await self._connection.close()


class _SshTunnel:
    def __init__(self, listener: asyncssh.SSHListener) -> None:
        self._listener = listener

    @property
    def local_port(self) -> int:
        return int(self._listener.get_port())

    async def close(self) -> None:
        self._listener.close()
        await self._listener.wait_closed()


class _Slot:
    """One taken session of a connection; given back once."""

    def __init__(self, sessions: asyncio.Semaphore) -> None:
        self._sessions: asyncio.Semaphore | None = sessions

    def release(self) -> None:
        if self._sessions is not None:
            self._sessions.release()
            self._sessions = None


class _SshChannel(Channel, asyncssh.SSHClientSession[bytes]):
    def __init__(self, slot: _Slot) -> None:
        super().__init__()
        self._slot = slot
        self._chan: asyncssh.SSHClientChannel[bytes] | None = None
        self._paused = False
        self._eof = False

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._chan = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        inbox = self.err if datatype == asyncssh.EXTENDED_DATA_STDERR else self.out
        inbox.put(data)

    def eof_received(self) -> bool:
        self.out.end()
        self.err.end()
        return True

    def exit_status_received(self, status: int) -> None:
        self.exited(status)

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self.exited(128 + _signal_number(signal))

    def connection_lost(self, exc: Exception | None) -> None:
        self.exited(None)
        self.out.end()
        self.err.end()
        self._chan = None
        self._slot.release()

    def send(self, data: bytes) -> None:
        if self._chan is not None and not self._chan.is_closing() and not self._eof:
            self._chan.write(data)

    def send_eof(self) -> None:
        if self._chan is not None and not self._chan.is_closing() and not self._eof:
            self._eof = True
            self._chan.write_eof()

    def drop(self) -> None:
        if self._chan is not None:
            self.resume()
            self._chan.close()

    def pause(self) -> None:
        if self._chan is not None and not self._paused:
            self._paused = True
            self._chan.pause_reading()

    def resume(self) -> None:
        if self._chan is not None and self._paused:
            self._paused = False
            self._chan.resume_reading()


def _signal_number(name: str) -> int:
    try:
        return int(signal.Signals[f"SIG{name}"])
    except KeyError:
        return 0
