"""The event stream as plain lines on stderr, or as JSON lines on stdout."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from specdash.cli.output import Out
from specdash.core.events import (
    CellMeasured,
    CellProgress,
    CommandRan,
    CycleEnded,
    Event,
    GpusSampled,
    LinkChanged,
    LoadProgress,
    LogLine,
    Notice,
    StageEnded,
    StageNote,
    StageStarted,
)

_PROGRESS_EVERY_S = 2.0


class Narrator:
    """Follows the events of a session until it is stopped."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._last_progress = 0.0
        self._ended = asyncio.Event()
        self._any = False
        self._said: set[str] = set()

    async def follow(self, events: AsyncIterator[Event]) -> None:
        async for event in events:
            self._any = True
            self._out.event(event)
            self._say(event)
            if isinstance(event, CycleEnded):
                self._ended.set()

    async def drained(self) -> None:
        """Wait until the end of the cycle was told, as far as one was begun."""
        if not self._any:
            return
        try:
            async with asyncio.timeout(1.0):
                await self._ended.wait()
        except TimeoutError:
            return

    def _say_once(self, text: str) -> None:
        """Every stream of a host that is gone tells the same; one line is enough."""
        if text not in self._said:
            self._said.add(text)
            self._out.say(text)

    def _say(self, event: Event) -> None:
        say = self._out.say
        match event:
            case StageStarted():
                say(f"{event.stage} ...")
            case StageEnded() if event.state != "skipped":
                detail = f": {event.detail}" if event.detail else ""
                say(f"{event.stage} {event.state} in {event.seconds:.1f} s{detail}")
            case StageNote():
                say(f"  {event.detail}")
            case LoadProgress() if event.detail:
                say(f"  {event.phase}: {event.detail}")
            case CellProgress() if not event.warming and event.mean_tok_s is not None:
                if event.t - self._last_progress >= _PROGRESS_EVERY_S:
                    self._last_progress = event.t
                    say(f"  {event.concurrency} at once: {event.mean_tok_s:.1f} tok/s so far")
            case CellMeasured():
                rate = event.cell.output_tok_s
                shown = "no figure" if rate is None else f"{rate:.1f} tok/s"
                flags = f" ({', '.join(event.cell.flags)})" if event.cell.flags else ""
                say(f"  {event.cell.concurrency} at once: {shown}{flags}")
            case LinkChanged() if event.state in ("lost", "refused"):
                self._say_once(f"{event.host}: {event.message}")
            case Notice():
                self._say_once(f"{event.level}: {event.message} {event.remedy}".rstrip())
            case LogLine() if event.source == "specdash":
                say(f"  {event.text}")
            case CommandRan() | GpusSampled():
                return
            case _:
                return
