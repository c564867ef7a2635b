"""Tunnels that need no SSH: a port that is there already, and a plain TCP relay."""

from __future__ import annotations

import asyncio

from specdash.core.errors import UnreachableError

_CHUNK = 65536


class Passthrough:
    """The address is reachable from here as 127.0.0.1: nothing to forward."""

    def __init__(self, port: int) -> None:
        self._port = port

    @property
    def local_port(self) -> int:
        return self._port

    async def close(self) -> None:
        """Nothing to end."""


class _Relay:
    def __init__(self, address: str, port: int) -> None:
        self._address = address
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []

    async def listen(self) -> None:
        self._servers.append(await asyncio.start_server(self._accept, "127.0.0.1", 0))

    @property
    def local_port(self) -> int:
        return int(self._servers[0].sockets[0].getsockname()[1])

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(self._address, self._port)
            try:
                await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
            finally:
                far_writer.close()
        except OSError:
            # The caller sees what it would see without a relay: a connection that ends.
            writer.transport.abort()
        finally:
            writer.close()

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def relay(address: str, port: int) -> _Relay:
    """A port on 127.0.0.1 that leads to ``address:port`` as this machine resolves it."""
    tunnel = _Relay(address, port)
    try:
        await tunnel.listen()
    except OSError as error:
        raise UnreachableError(
            f"no local port can be opened for a tunnel: {error.strerror}", code="no-port"
        ) from error
    return tunnel


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
