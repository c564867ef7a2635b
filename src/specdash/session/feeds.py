"""The live streams as a cycle sees them: the next reading, each reading, each line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from specdash.core.gpu import Snapshot
from specdash.gpus.idle import IdleLevels, IdleObserver
from specdash.rig.schema import GpusSpec

_T = TypeVar("_T")

_STREAM_WAIT_S = 3.0


class Feed(Generic[_T]):
    """Hands each item to whoever watches."""

    def __init__(self) -> None:
        self._observers: list[Callable[[_T], None]] = []

    def push(self, item: _T) -> None:
        for observer in tuple(self._observers):
            observer(item)

    def watch(self, observer: Callable[[_T], None]) -> Callable[[], None]:
        self._observers.append(observer)
        return lambda: self._observers.remove(observer)


class GpuReadings(Feed[Snapshot]):
    """GPU readings from the stream; one asked for by itself where the stream is silent."""

    def __init__(
        self,
        ask_once: Callable[[], Awaitable[Snapshot]],
        spec: GpusSpec | None,
        quiet: Callable[[Snapshot], bool],
    ) -> None:
        """``quiet`` says whether nothing of the rig runs: only then is a reading an idle one."""
        super().__init__()
        self._ask_once = ask_once
        self._spec = spec
        self._quiet = quiet
        self._idle = IdleObserver()

    def push(self, item: Snapshot) -> None:
        self._idle.observe(item, rig_running=not self._quiet(item))
        super().push(item)

    async def query(self) -> Snapshot:
        """One query beside the stream, holders included."""
        return await self._ask_once()

    def idle_levels(self) -> IdleLevels:
        """The idle level of each GPU, from the rig file or from readings with nothing running."""
        return self._idle.levels(self._spec)

    async def fresh(self) -> Snapshot:
        """The next reading of the stream, or a single query after three silent seconds."""
        arrived: asyncio.Future[Snapshot] = asyncio.get_running_loop().create_future()

        def take(snapshot: Snapshot) -> None:
            if not arrived.done():
                arrived.set_result(snapshot)

        forget = self.watch(take)
        try:
            async with asyncio.timeout(_STREAM_WAIT_S):
                return await arrived
        except TimeoutError:
            return await self._ask_once()
        finally:
            forget()
