"""The scheduler of the box's engine: one loop, one verify round for the whole batch a tick.

Tokens stream in true time. The loop keeps an account of what the speed model owes: the wait of a
new request's prefill, the gap before the next request of a closed loop and any delay of this
process are made up by slightly shorter rounds, so that what a client counts over a second or two
is the model's rate.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from specdash.demo.model import AcceptSequence, Shape, accept_length, step_s, tok_s

PREFILL_S = 0.016
PREFILL_PER_TOKEN_S = 0.00002
TURNAROUND_S = 0.025
"""A finished request's place counts as taken this long: a closed loop sends the next one."""

CATCH_UP = 0.45
"""Rounds get at most this much faster,"""

CORRECTION_S = 0.04
"""and in proportion to what is owed: this many seconds' worth asks for twice the pace."""

OWED_LIMIT_S = 0.15
LOG_EVERY = 40


class Sink(Protocol):
    """Where a request's tokens go."""

    def tokens(self, count: int, finish: str | None) -> None:
        """``count`` more tokens; ``finish`` is "length", "stop" or "abort" with the last."""
        ...


@dataclass(slots=True, eq=False)
class Request:
    """One generation: wanted tokens, and what became of it."""

    prompt_tokens: int
    wanted: int
    sink: Sink
    finish: str = "length"
    cached_tokens: int = 0
    accepts: AcceptSequence = field(default_factory=lambda: AcceptSequence(Shape()))
    arrived: float = 0.0
    ready_at: float = 0.0
    prefilled: bool = False
    emitted: int = 0
    rounds: int = 0
    histogram: list[int] = field(default_factory=list)
    over: bool = False


@dataclass(slots=True)
class Totals:
    """Counters since the start, for the endpoints."""

    prompt_tokens: int = 0
    generated: int = 0
    requests: int = 0
    rounds: int = 0
    accepted: int = 0
    tok_s: float = 0.0
    accept_length: float = 0.0


class Batch:
    """Runs requests at the model's speed, ``capacity`` at once; the rest waits in order."""

    def __init__(
        self,
        shape: Shape,
        capacity: int,
        *,
        log: Callable[[str], None],
        busy: Callable[[float], None],
        log_every: int = LOG_EVERY,
        kv_tokens: int = 1,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shape = shape
        self.capacity = capacity
        self.totals = Totals()
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self._log = log
        self._busy = busy
        self._log_every = max(1, log_every)
        self._kv_tokens = max(1, kv_tokens)
        self._now = now
        self._wake = asyncio.Event()
        self._places_left: deque[float] = deque()
        self._owed = 0.0
        self._tau = accept_length(shape)
        self._since_log = [0, 0, 0.0]  # rounds of requests, tokens, start
        self._ticks = 0
        self._last_busy = 0.0
        self._due = 0.0

    def submit(self, request: Request) -> None:
        """Queue a request."""
        request.arrived = self._now()
        request.accepts = AcceptSequence(self.shape, request.prompt_tokens * 0.377 + 0.11)
        request.histogram = [0] * (self.shape.reach + 1)
        self.totals.requests += 1
        self.totals.prompt_tokens += request.prompt_tokens
        self.waiting.append(request)
        if self._places_left:
            self._places_left.popleft()
        # At once, so that nobody is seen waiting while there is room.
        self._admit()
        self._wake.set()

    def cancel(self, request: Request) -> None:
        """Drop a request; its place is free at once."""
        request.over = True
        if request in self.waiting:
            self.waiting.remove(request)

    @property
    def idle(self) -> bool:
        return not self.running and not self.waiting

    def flush(self) -> bool:
        """Whether the prefix cache may be dropped: only when idle."""
        return self.idle

    async def run(self) -> None:
        """Tick for ever."""
        last = self._now()
        while True:
            if self.idle:
                self._wake.clear()
                await self._wake.wait()
                last = self._resume(last)
            self._admit()
            now = self._now()
            last = self._account(last, now)
            self._round(now)
            await self._pause(now)

    def _resume(self, last: float) -> float:
        """Idle is over. A client's turnaround counts as worked, and the fraction of a round by which
        the last request ended early or late is made up; nothing more is owed."""
        now = self._now()
        gap = now - last
        self._due = now
        if gap <= TURNAROUND_S:
            self._owed = min(self._owed, tok_s(self.shape) * step_s(self.shape))
            return last
        self._owed = 0.0
        self._since_log = [0, 0, now]
        return now

    def _live_places(self) -> int:
        now = self._now()
        while self._places_left and self._places_left[0] < now:
            self._places_left.popleft()
        return len(self._places_left)

    def _slots(self) -> int:
        return min(self.capacity, max(1, len(self.running) + self._live_places()))

    def _account(self, last: float, now: float) -> float:
        rate = tok_s(self.shape, self._slots())
        self._owed = min(self._owed + rate * (now - last), rate * OWED_LIMIT_S)
        return now

    def _admit(self) -> None:
        self.running = [request for request in self.running if not request.over]
        while self.waiting and len(self.running) < self.capacity:
            request = self.waiting.popleft()
            fresh = request.prompt_tokens - request.cached_tokens
            request.ready_at = self._now() + PREFILL_S + PREFILL_PER_TOKEN_S * fresh
            self._log(
                f"Prefill batch, #new-seq: 1, #new-token: {fresh}, #cached-token: "
                f"{request.cached_tokens}, token usage: {self._usage():.2f}, #running-req: "
                f"{len(self.running)}, #queue-req: {len(self.waiting)}, "
            )
            self.running.append(request)

    def _usage(self) -> float:
        return self.held_tokens() / self._kv_tokens

    def held_tokens(self) -> int:
        """Tokens in the KV pool."""
        return sum(request.prompt_tokens + request.emitted for request in self.running)

    def _round(self, now: float) -> None:
        decoding = 0
        for request in self.running:
            if request.over:
                continue
            if request.prefilled:
                decoding += self._decode(request)
            elif now >= request.ready_at:
                request.prefilled = True
                self._emit(request, 1)
        if decoding:
            self._since_log[0] += decoding
            self._ticks += 1
            if self._ticks % self._log_every == 0:
                self._log_decode(now)

    def _decode(self, request: Request) -> int:
        tokens = request.accepts.next()
        request.rounds += 1
        request.histogram[tokens - 1] += 1
        self.totals.rounds += 1
        self.totals.accepted += tokens
        self._emit(request, tokens)
        return 1

    def _emit(self, request: Request, tokens: int) -> None:
        count = min(tokens, request.wanted - request.emitted)
        request.emitted += count
        self._owed -= count
        self.totals.generated += count
        self._since_log[1] += count
        done = request.emitted >= request.wanted
        if done:
            request.over = True
            self._places_left.append(self._now() + TURNAROUND_S)
        request.sink.tokens(count, request.finish if done else None)

    async def _pause(self, started: float) -> None:
        self.running = [request for request in self.running if not request.over]
        if self.idle:
            return
        slots = self._slots()
        rate = tok_s(self.shape, slots)
        hurry = max(-0.1, min(CATCH_UP, self._owed / (rate * CORRECTION_S)))
        step = step_s(self.shape, slots)
        # From when this round was due, not from when it came: a late wake-up costs no time.
        base = self._due if 0 <= started - self._due < step else started
        self._due = due = base + step / (1 + hurry)
        waiting = [request.ready_at for request in self.running if not request.prefilled]
        if waiting and len(waiting) == len(self.running):
            due = max(min(waiting), started)
        if started - self._last_busy > 0.25:
            self._last_busy = started
            self._busy(0.55 + 0.4 * min(1.0, slots / 8))
        await asyncio.sleep(max(0.0, due - self._now()))

    def _log_decode(self, now: float) -> None:
        rounds, tokens, since = self._since_log
        self.totals.accept_length = tokens / rounds if rounds else 0.0
        self.totals.tok_s = tokens / max(1e-6, now - since)
        speculation = ""
        if self.shape.steps:
            length = self.totals.accept_length
            rate = (length - 1) / max(1, self.shape.draft_tokens - 1)
            speculation = f"accept len: {length:.2f}, accept rate: {rate:.2f}, "
        self._log(
            f"Decode batch, #running-req: {len(self.running)}, #token: {self.held_tokens()}, "
            f"token usage: {self._usage():.2f}, {speculation}cuda graph: True, "
            f"gen throughput (token/s): {self.totals.tok_s:.2f}, #queue-req: {len(self.waiting)}, "
        )
        self._since_log = [0, 0, now]
