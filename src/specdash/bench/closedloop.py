"""A closed loop at fixed concurrency: each stream sends its next request when the last one
ended. This module decides what is sent and when the window opens and closes; the figures are
made in :mod:`specdash.bench.window`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from specdash.bench.meter import Meter
from specdash.bench.window import Window, ramp_end, whole_requests
from specdash.bench.wire import Ask
from specdash.bench.workloads import Prompt
from specdash.core.clock import Clock

TICK_S = 0.1
WARM_UP_TOKENS = 32
RAMP_LIMIT_S = 10.0
"""A ramp longer than this (or half the budget) is a queue: the window opens without it."""

MAX_PAUSE_S = 5.0
FIRST_PAUSE_S = 0.05
DRAIN_S = 30.0
Send = Callable[[Ask, Meter], Awaitable[float | None]]
"""Send a request, all of it into the meter; returns seconds to wait before the next, if asked."""

NewMeter = Callable[[float, int, int, bool], Meter]
"""(started, stream, index, ignored) -> a meter."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One cell. ``saturated`` streams are as many as the engine runs at once, if it says."""

    concurrency: int
    output_tokens: int
    budget_s: float
    requests: int | None
    stall_s: float
    saturated: int

    @property
    def streams(self) -> int:
        if self.requests is None:
            return self.concurrency
        return min(self.concurrency, self.requests)

    @property
    def staggered(self) -> bool:
        """Whether the streams begin with requests of different length, so that they do not
        prefill in step for the rest of the cell."""
        return self.streams > 1 and (self.requests is None or self.requests >= 2 * self.streams)


class ClosedLoop:
    """Runs one cell; its state can be read at any moment for a progress line."""

    def __init__(
        self,
        plan: Plan,
        send: Send,
        new_meter: NewMeter,
        prompts: Iterator[Prompt],
        warm_up: Iterator[Prompt],
        clock: Clock,
        tick: Callable[[], None],
    ) -> None:
        self.plan = plan
        self._send = send
        self._new_meter = new_meter
        self._prompts = prompts
        self._warm_up = warm_up
        self._clock = clock
        self._tick = tick
        self.meters: list[Meter] = []
        """All requests but those of the warm-up, in the order in which they were sent."""
        self.warm_up_meters: list[Meter] = []
        self.begun: float | None = None
        self.opened: float | None = None
        self.closed: float | None = None
        self.timed_out = False
        """The budget ended before the asked number of requests was done."""
        self._asked = 0
        self._idle: list[float] = []
        self._failed_in_a_row = 0
        self._live: set[Meter] = set()
        self._closing = False

    @property
    def in_flight(self) -> int:
        return len(self._live)

    @property
    def elapsed_s(self) -> float:
        return 0.0 if self.opened is None else max(0.0, self._clock.now() - self.opened)

    async def run(
        self,
        at_open: Callable[[], Awaitable[None]],
        at_close: Callable[[], Awaitable[None]],
    ) -> Window | None:
        """Warm up, run, and return the window (None without one).

        ``at_open`` runs beside the load when the window opened, ``at_close`` while all streams
        still run.
        """
        if not await self._warm():
            return None
        self.begun = self._clock.now()
        streams = [asyncio.create_task(self._stream(number)) for number in range(self.plan.streams)]
        opening: asyncio.Task[None] | None = None
        try:
            while True:
                await asyncio.wait(streams, timeout=self._until_next_look())
                now = self._clock.now()
                if self.opened is None:
                    self.opened = self._opening(now)
                    if self.opened is not None:
                        opening = asyncio.create_task(_none(at_open()))
                self._tick()
                if all(stream.done() for stream in streams) or self._hopeless:
                    break
                if self.opened is not None and now >= self.opened + self.plan.budget_s:
                    self.timed_out = self.plan.requests is not None
                    break
            self._closing = True
            await at_close()
            await self._drain(streams)
        finally:
            self._closing = True
            for task in (*streams, *([opening] if opening else [])):
                task.cancel()
            results = await asyncio.gather(*streams, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return self._window()

    @property
    def _hopeless(self) -> bool:
        """Nothing but failures for longer than an accident would explain."""
        return self._failed_in_a_row >= max(4, 2 * self.plan.concurrency)

    async def _warm(self) -> bool:
        """Requests to be left out, as many at once as the cell; True if one ended well.

        A failed round is repeated once, unless the server was silent.
        """
        tokens = min(self.plan.output_tokens, WARM_UP_TOKENS)
        for _ in range(2):
            meters = [
                self._new_meter(self._clock.now(), number, -1, True)
                for number in range(self.plan.streams)
            ]
            self.warm_up_meters += meters
            tasks = [
                asyncio.create_task(self._one(Ask(next(self._warm_up), tokens), meter))
                for meter in meters
            ]
            try:
                while True:
                    _, pending = await asyncio.wait(tasks, timeout=TICK_S)
                    self._tick()
                    if not pending:
                        break
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            for task in tasks:
                task.result()
            if any(meter.state == "good" for meter in meters):
                return True
            if any(meter.cause == "stalled" for meter in meters):
                return False
        return False

    async def _stream(self, number: int) -> None:
        if self.plan.staggered:
            share = (number + 0.5) / self.plan.streams
            tokens = max(1, round(self.plan.output_tokens * share))
            meter = self._begin(number, -1, ignored=True)
            await self._one(Ask(next(self._warm_up), tokens), meter)
        failures = 0
        last_s = 0.0
        while not self._closing and self._fits(last_s):
            if self.plan.requests is not None and self._asked >= self.plan.requests:
                break
            index = self._asked
            self._asked += 1
            ask = Ask(next(self._prompts), self.plan.output_tokens)
            meter = self._begin(number, index, ignored=False)
            pause = await self._one(ask, meter)
            if meter.state == "failed":
                failures += 1
                self._failed_in_a_row += 1
                wait = FIRST_PAUSE_S * 2 ** min(failures - 1, 6) if pause is None else pause
                await self._clock.sleep(min(wait, MAX_PAUSE_S))
            else:
                failures = 0
                self._failed_in_a_row = 0
                last_s = self._clock.now() - meter.started
        self._idle.append(self._clock.now())

    def _fits(self, last_s: float) -> bool:
        """At concurrency 1 the window holds whole requests: one that could not end in it would
        be sent for nothing."""
        if self.plan.concurrency > 1 or self.plan.requests is not None or self.opened is None:
            return True
        left = self.opened + self.plan.budget_s - self._clock.now()
        return left >= 0.9 * last_s

    def _begin(self, stream: int, index: int, *, ignored: bool) -> Meter:
        meter = self._new_meter(self._clock.now(), stream, index, ignored)
        self.meters.append(meter)
        return meter

    async def _one(self, ask: Ask, meter: Meter) -> float | None:
        self._live.add(meter)
        try:
            return await self._send(ask, meter)
        except asyncio.CancelledError:
            meter.cut(self._clock.now())
            raise
        finally:
            self._live.discard(meter)

    def _until_next_look(self) -> float:
        if self.opened is None:
            return TICK_S
        left = self.opened + self.plan.budget_s - self._clock.now()
        return min(TICK_S, max(left, 0.0))

    def _opening(self, now: float) -> float | None:
        if self.begun is None:
            return None
        if self.plan.streams == 1:
            return self.begun
        saturated = min(self.plan.streams, self.plan.saturated)
        ramp = ramp_end(self.meters, saturated)
        limit = self.begun + min(RAMP_LIMIT_S, self.plan.budget_s / 2)
        if ramp is not None and ramp <= limit:
            return ramp
        if now < limit:
            return None
        # Some never start: a queue. The window opens once anything flows.
        first = ramp_end(self.meters, 1)
        return None if first is None else max(limit, first)

    async def _drain(self, streams: Sequence[asyncio.Task[None]]) -> None:
        """Where the count comes only at a request's end, wait for the ends of those that gave
        tokens inside the window. Nothing new is sent."""
        if self.plan.streams == 1 and any(meter.state == "good" for meter in self.meters):
            return
        end = self._clock.now() + DRAIN_S
        while self._clock.now() < end:
            uncounted = [meter for meter in self._live if meter.waiting and not meter.tokens]
            running = [stream for stream in streams if not stream.done()]
            if not uncounted or not running or self._hopeless:
                return
            await asyncio.wait(running, timeout=TICK_S)
            self._tick()

    def _window(self) -> Window | None:
        if self.begun is None:
            return None
        if self.opened is None:
            # Over before it was steady: all of it is the window.
            return Window(self.begun, self._last_end(self.begun))
        limit = self.opened + self.plan.budget_s
        if self.plan.streams == 1:
            whole = whole_requests(self.meters, self.opened, limit)
            if whole is not None:
                return whole
            first = ramp_end(self.meters, 1)
            return None if first is None else Window(first, min(limit, self._last_end(limit)))
        if self.plan.requests is None or self.timed_out:
            return Window(self.opened, min(limit, self._last_end(limit)))
        closed = min(self._idle, default=limit)
        if closed <= self.opened:
            return Window(self.begun, self._last_end(self.begun))
        return Window(self.opened, closed)

    def _last_end(self, otherwise: float) -> float:
        return max(
            (meter.ended for meter in self.meters if meter.ended is not None), default=otherwise
        )


async def _none(act: Awaitable[None]) -> None:
    await act
