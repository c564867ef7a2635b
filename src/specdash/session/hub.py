"""One stream of events for many readers. A reader that comes late first gets what still holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from specdash.core.events import (
    CycleEnded,
    CycleStarted,
    Event,
    GpusSampled,
    LinkChanged,
    QueueChanged,
    StageEnded,
    StageStarted,
    StatusChanged,
)

_MOST_WAITING: Final = 20_000


class Hub:
    """Publishes events to all readers. A reader that falls far behind loses the oldest."""

    def __init__(self) -> None:
        self._readers: set[asyncio.Queue[Event]] = set()
        self._lasting: dict[object, Event] = {}
        self._observers: list[Callable[[Event], None]] = []

    def observe(self, observer: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``observer`` at once with each event, until the returned function is called."""
        self._observers.append(observer)
        return lambda: self._observers.remove(observer)

    def publish(self, event: Event) -> None:
        """Give ``event`` to every reader; never blocks."""
        self._remember(event)
        for observer in tuple(self._observers):
            observer(event)
        for queue in self._readers:
            if queue.qsize() >= _MOST_WAITING:
                queue.get_nowait()
            queue.put_nowait(event)

    async def read(self) -> AsyncIterator[Event]:
        """What holds now, then everything from now on."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        for event in self._lasting.values():
            queue.put_nowait(event)
        self._readers.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._readers.discard(queue)

    def _remember(self, event: Event) -> None:
        if isinstance(event, LinkChanged):
            self._lasting["link", event.host] = event
        elif isinstance(event, (StatusChanged, GpusSampled, QueueChanged)):
            self._lasting[type(event)] = event
        elif isinstance(event, CycleStarted):
            self._forget_cycle()
            self._lasting["cycle"] = event
        elif isinstance(event, (StageStarted, StageEnded)):
            self._lasting["stage", event.stage] = event
        elif isinstance(event, CycleEnded):
            self._forget_cycle()

    def _forget_cycle(self) -> None:
        for key in [k for k in self._lasting if isinstance(k, tuple) and k[0] == "stage"]:
            del self._lasting[key]
        self._lasting.pop("cycle", None)
