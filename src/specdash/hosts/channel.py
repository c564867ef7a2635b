"""One running command as byte streams, whatever carries it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque

HIGH_WATER = 1 << 20
"""Bytes held for a slow reader before the sender is paused."""


class Inbox:
    """Bytes that arrived and were not read yet."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._chunks: deque[bytes] = deque()
        self._ended = False
        self._wake = asyncio.Event()
        self.size = 0

    def put(self, data: bytes) -> None:
        self._chunks.append(data)
        self.size += len(data)
        self._wake.set()
        if self.size > HIGH_WATER:
            self._channel.pause()

    def end(self) -> None:
        self._ended = True
        self._wake.set()

    async def read(self) -> bytes:
        """The next bytes; ``b""`` at the end."""
        while not self._chunks:
            if self._ended:
                return b""
            self._wake.clear()
            await self._wake.wait()
        data = self._chunks.popleft()
        self.size -= len(data)
        if self.size <= HIGH_WATER // 2:
            self._channel.resume()
        return data


class Channel(ABC):
    """A started command. Fed by callbacks of the carrier on the event loop."""

    def __init__(self) -> None:
        self.out = Inbox(self)
        self.err = Inbox(self)
        self._exit: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def exited(self, status: int | None) -> None:
        """The command ended, or (None) the link was lost. The first word counts."""
        if not self._exit.done():
            self._exit.set_result(status)

    async def exit_status(self) -> int | None:
        """Wait for the end. None: the link was lost, the outcome is unknown."""
        return await asyncio.shield(self._exit)

    async def end(self, within_s: float) -> int | None:
        """Close stdin, so that the command is ended over there; then let go of the channel.

        Waits at most ``within_s`` seconds for the exit status.
        """
        self.send_eof()
        try:
            async with asyncio.timeout(within_s):
                return await self.exit_status()
        except TimeoutError:
            return None
        finally:
            self.drop()

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Write to the command's stdin; buffers without limit."""

    @abstractmethod
    def send_eof(self) -> None:
        """Close stdin. May be called twice."""

    @abstractmethod
    def drop(self) -> None:
        """Let go without waiting. May be called twice."""

    @abstractmethod
    def pause(self) -> None:
        """Stop the sender until :meth:`resume`."""

    @abstractmethod
    def resume(self) -> None: ...
