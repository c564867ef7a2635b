"""This machine as a host: the same script, in a process session of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from specdash.core.errors import UnreachableError
from specdash.hosts.channel import Channel
from specdash.hosts.protocol import Tunnel
from specdash.hosts.relay import Passthrough, relay
from specdash.hosts.running import OnCommand, ShellHost

# What a loopback passthrough may stand for: the caller connects to 127.0.0.1.
_LOOPBACK = frozenset({"127.0.0.1", "localhost"})


class LocalHost(ShellHost):
    """Commands of this machine."""

    def __init__(
        self, name: str, *, sudo: bool = False, on_command: OnCommand | None = None
    ) -> None:
        super().__init__(name, sudo=sudo, on_command=on_command)
        self._channels: set[_LocalChannel] = set()
        self._tunnels: list[Tunnel] = []
        self._closed = False

    @property
    def alive(self) -> bool:
        return not self._closed

    async def open(self, words: Sequence[str], *, wait_s: float) -> Channel:
        loop = asyncio.get_running_loop()
        channel = _LocalChannel()
        try:
            transport, _ = await loop.subprocess_exec(
                lambda: _Protocol(channel), *words, start_new_session=True
            )
        except OSError as error:
            raise UnreachableError(
                f"{self.name}: {words[0]} cannot be started on this machine: {error.strerror}",
                remedy="Check that it is installed and that processes and open files are left.",
                code="not-started",
            ) from error
        channel.attach(transport)
        self._channels.add(channel)
        channel.when_gone(self._channels.discard)
        return channel

    async def tunnel(self, address: str, port: int) -> Tunnel:
        if address in _LOOPBACK:
            return Passthrough(port)
        tunnel = await relay(address, port)
        self._tunnels.append(tunnel)
        return tunnel

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(channel.end(1.0) for channel in list(self._channels)))
        for tunnel in self._tunnels:
            await tunnel.close()
        self._tunnels.clear()


class _LocalChannel(Channel):
    def __init__(self) -> None:
        super().__init__()
        self._transport: asyncio.SubprocessTransport | None = None

    def attach(self, transport: asyncio.SubprocessTransport) -> None:
        self._transport = transport

    def when_gone(self, call: Callable[[_LocalChannel], None]) -> None:
        self._exit.add_done_callback(lambda _: call(self))

    def return_code(self) -> int | None:
        return None if self._transport is None else self._transport.get_returncode()

    def _pipe(self, number: int) -> asyncio.BaseTransport | None:
        return None if self._transport is None else self._transport.get_pipe_transport(number)

    def send(self, data: bytes) -> None:
        pipe = self._pipe(0)
        if isinstance(pipe, asyncio.WriteTransport) and not pipe.is_closing():
            pipe.write(data)

    def send_eof(self) -> None:
        pipe = self._pipe(0)
        # Only abort() closes at once where unsent input still waits for a reader that is gone.
        if isinstance(pipe, asyncio.WriteTransport) and not pipe.is_closing():
            if pipe.get_write_buffer_size():
                pipe.abort()
            else:
                pipe.close()

    def drop(self) -> None:
        for number in (0, 1, 2):
            pipe = self._pipe(number)
            if pipe is not None:
                pipe.close()

    def pause(self) -> None:
        for number in (1, 2):
            pipe = self._pipe(number)
            if isinstance(pipe, asyncio.ReadTransport) and not pipe.is_closing():
                pipe.pause_reading()

    def resume(self) -> None:
        for number in (1, 2):
            pipe = self._pipe(number)
            if isinstance(pipe, asyncio.ReadTransport) and not pipe.is_closing():
                pipe.resume_reading()


class _Protocol(asyncio.SubprocessProtocol):
    def __init__(self, channel: _LocalChannel) -> None:
        self._channel = channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._channel.attach(cast("asyncio.SubprocessTransport", transport))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        (self._channel.out if fd == 1 else self._channel.err).put(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._channel.out.end()
        elif fd == 2:
            self._channel.err.end()

    def process_exited(self) -> None:
        code = self._channel.return_code()
        self._channel.exited(None if code is None else code if code >= 0 else 128 - code)

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel.exited(None)
        self._channel.out.end()
        self._channel.err.end()
