"""A host's GPUs as they change: one long-lived nvidia-smi, and what happens when it fails.

Rows and holders are read by two tasks of their own, so that neither a slow driver nor a slow
reader of the snapshots delays anything: who reads late gets the newest snapshot, none in between.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace

from specdash.core.clock import Clock
from specdash.core.errors import SpecdashError, UnreachableError
from specdash.core.gpu import GpuProcess, Problem, Snapshot
from specdash.core.text import make_safe
from specdash.gpus import query
from specdash.gpus.once import NO_ANSWER, Answer, Ask, Users, read_gpus, read_holders
from specdash.gpus.parse import Parsed, decode, snapshot_of
from specdash.gpus.reading import merge, same_gpu
from specdash.gpus.rounds import Rounds
from specdash.hosts.protocol import Host

HOLDERS_S = 2.0
"""Seconds between two looks at the processes."""

_BACK_OFF_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
_WATCHDOG_S = 1.0
_FULL_AGAIN_S = 60.0
_SHORT_LIVED_S = 5.0
_SHORT_LIVES = 3
"""So many streams in a row that soon ended: polling is steadier."""
_STALE_HOLDERS_S = 15.0
_GIVE_UP_FACTOR = 6
_BUNCH = 12


async def watch(
    host: Host, *, interval_ms: int = 500, clock: Clock
) -> AsyncGenerator[Snapshot, None]:
    """Snapshots of a host's GPUs, for ever; close the iterator to end (``aclosing``).

    The first comes from a single query, the next from a ``-lms`` stream, or from polling where a
    stream is refused or arrives in blocks. A failure comes as a snapshot with problems (without
    any where the host cannot be reached) and is retried with a growing pause. Nothing raises but
    a fault of this program.
    """
    watcher = _Watcher(host, interval_ms / 1000, clock)
    rows = asyncio.create_task(watcher.run(), name=f"gpus of {host.name}")
    holders = asyncio.create_task(watcher.run_holders(), name=f"GPU holders of {host.name}")
    try:
        while True:
            yield await watcher.newest(rows, holders)
    finally:
        for task in (rows, holders):
            task.cancel()
        await asyncio.gather(rows, holders, return_exceptions=True)


@dataclass(slots=True)
class _Watcher:
    host: Host
    interval_s: float
    clock: Clock
    ask: Ask = field(default_factory=Ask)
    rounds: Rounds = field(default_factory=Rounds)
    stream_works: bool = True
    _fresh: asyncio.Event = field(default_factory=asyncio.Event)
    _rows_came: asyncio.Event = field(default_factory=asyncio.Event)
    _latest: Snapshot | None = None
    _held: tuple[GpuProcess, ...] = ()
    _held_problems: tuple[Problem, ...] = ()
    _held_at: float | None = None
    _heard: float = 0.0
    _full_since: float = 0.0

    async def newest(self, *tasks: asyncio.Task[None]) -> Snapshot:
        """The next snapshot that was not given yet; raises what a task died of."""
        fresh = asyncio.ensure_future(self._fresh.wait())
        try:
            await asyncio.wait({fresh, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            fresh.cancel()
        self._fresh.clear()
        return self._latest or Snapshot(source=self.host.name)

    async def run(self) -> None:
        """Query, stream, and again with a pause that grows while nothing works."""
        failures = short = 0
        unbuffered: bool | None = None
        while True:
            try:
                answer = await self._query()
                self._learn(answer)
                if not answer.ask.only:
                    self._full_since = self.clock.now()
                if _has_rows(answer.parsed):
                    if unbuffered is None:
                        unbuffered = await self._has_stdbuf()
                    self.ask = replace(self.ask, unbuffered=unbuffered)
                    began = self.clock.now()
                    await self._follow(answer.seconds)
                    lasted = self.clock.now() - began
                    failures = 0 if lasted > _BACK_OFF_S[-1] else failures
                    short = short + 1 if lasted < _SHORT_LIVED_S else 0
                    self.stream_works = self.stream_works and short < _SHORT_LIVES
            except UnreachableError:
                self._publish(Parsed())
            except SpecdashError as error:
                said = Problem("no-command", str(make_safe(error.message)), error.remedy)
                self._publish(Parsed(problems=[said]))
            await self.clock.sleep(_BACK_OFF_S[min(failures, len(_BACK_OFF_S) - 1)])
            failures += 1
            self.ask = replace(self.ask, only=())

    async def run_holders(self) -> None:
        """Who holds memory, apart from the rows and slower."""
        users: Users = {}
        await self._rows_came.wait()
        while True:
            began = self.clock.now()
            try:
                self._held, self._held_problems = await read_holders(
                    self.host, self.rounds.known, program=self.ask.program, users=users
                )
                self._held_at = self.clock.now()
            except SpecdashError:
                # The rows meet the same failure and report it.
                self._held, self._held_problems, self._held_at = (), (), None
            spent = self.clock.now() - began
            await self.clock.sleep(max(HOLDERS_S - spent, spent))

    async def _has_stdbuf(self) -> bool:
        return (await self.host.run((query.UNBUFFERED[0], "--version"))).ok

    async def _query(self) -> Answer:
        buses = [gpu.bus for gpu in self.rounds.known if gpu.bus is not None]
        return await read_gpus(self.host, self.ask, known_buses=buses)

    def _learn(self, answer: Answer) -> None:
        """Take a single query's answer: what is there, what is lost, how to ask."""
        self.ask = answer.ask
        parsed = answer.parsed
        lost = [reading for reading in parsed.readings if reading.fault == "lost"]
        named = [old for old in self.rounds.known if any(same_gpu(old, x) for x in lost)]
        parsed.readings = merge([*named, *parsed.readings])
        if _has_rows(parsed):
            parsed.readings, gone = self.rounds.complete(parsed.readings)
            parsed.problems = [*parsed.problems, *gone]
            self._rows_came.set()
        self.rounds.asked = len(answer.ask.only) or None
        self._publish(parsed)

    async def _follow(self, call_s: float) -> None:
        """Stream while that works, else poll; returns when the driver has to be asked anew."""
        if self.stream_works and not await self._stream(call_s):
            return
        if not self.stream_works:
            await self._poll(call_s)

    async def _poll(self, call_s: float) -> None:
        while not self._full_query_due():
            # A slow driver is asked less often, never without a breath between.
            await self.clock.sleep(max(self.interval_s - call_s, call_s / 2))
            answer = await self._query()
            call_s = answer.seconds
            self._learn(answer)
            if not _has_rows(answer.parsed):
                return

    async def _stream(self, call_s: float) -> bool:
        """Read the loop's output; True where polling has to take over."""
        self.rounds.start()
        self._heard = self.clock.now()
        reader = asyncio.create_task(self._read_stream())
        patience = max(5.0, 10 * self.interval_s, 3 * call_s)
        told = False
        try:
            while not reader.done() and not self._full_query_due():
                await self._ends_within(reader, _WATCHDOG_S)
                silent = self.clock.now() - self._heard
                if reader.done() or silent <= patience:
                    told = told and silent > patience
                elif not self.rounds.heard:
                    self.stream_works = False  # nothing comes through the pipe: block buffered
                    break
                elif silent > patience * _GIVE_UP_FACTOR:
                    break
                elif not told:
                    told = True
                    self._publish(Parsed(problems=[NO_ANSWER]))
            if reader.done():
                self.stream_works = reader.result()
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        return not self.stream_works

    async def _ends_within(self, task: asyncio.Task[bool], seconds: float) -> None:
        tick = asyncio.ensure_future(self.clock.sleep(seconds))
        try:
            await asyncio.wait({task, tick}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            tick.cancel()

    async def _read_stream(self) -> bool:
        """Until the stream ends; False where this host should be polled."""
        arrivals: deque[float] = deque(maxlen=_BUNCH)
        argv = self.ask.argv(loop_ms=max(1, round(self.interval_s * 1000)))
        async with self.host.lines(argv) as lines:
            async for raw in lines:
                self._heard = self.clock.now()
                parsed = self.rounds.feed(decode(raw).strip("\n"))
                if parsed is None:
                    continue
                self._publish(parsed)
                arrivals.append(self._heard)
                if _comes_in_blocks(arrivals, self.interval_s):
                    return False
        refused = self.rounds.failed is None or any(
            problem.code == "field-refused" for problem in self.rounds.failed.problems
        )
        return self.rounds.heard or not refused

    def _full_query_due(self) -> bool:
        """While a lost GPU is left out, all are asked again now and then."""
        return bool(self.ask.only) and self.clock.now() - self._full_since > _FULL_AGAIN_S

    def _publish(self, parsed: Parsed) -> None:
        snapshot = snapshot_of(parsed, source=self.host.name)
        held_at = self._held_at
        current = held_at is not None and self.clock.now() - held_at < _STALE_HOLDERS_S
        if snapshot.gpus and current:
            snapshot = replace(
                snapshot,
                processes=self._held,
                problems=(*snapshot.problems, *self._held_problems),
            )
        self._latest = snapshot
        self._fresh.set()


def _has_rows(parsed: Parsed) -> bool:
    return any(reading.values and reading.fault != "lost" for reading in parsed.readings)


def _comes_in_blocks(arrivals: deque[float], interval_s: float) -> bool:
    """Most rounds arrived together with the one before: a block buffer lies between."""
    if len(arrivals) < _BUNCH or arrivals[-1] - arrivals[0] < 3 * interval_s:
        return False
    times = list(arrivals)
    together = sum(1 for a, b in itertools.pairwise(times) if b - a < interval_s / 5)
    return together > _BUNCH / 2
