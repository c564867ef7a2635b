"""The cockpit with a session that plays a whole cycle, by hand: no host, no GPU, no network.

    python tests/tui/live_cockpit.py [THEME]

r, y and R play a load and a measurement at about three times the speed of a real one.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import fake_session as fake

from specdash.core.clock import SystemClock
from specdash.core.events import (
    CellMeasured,
    CellProgress,
    CellStarted,
    CommandRan,
    CycleEnded,
    CycleStarted,
    LoadProgress,
    LogLine,
    QueueChanged,
    StageEnded,
    StageNote,
    StageStarted,
)
from specdash.core.ports import AskSecret, Decide
from specdash.core.records import StageName
from specdash.core.settings import Candidate, Resolution, Settings
from specdash.core.text import Safe, make_safe
from specdash.session.port import CockpitSession
from specdash.tui.run import run_cockpit
from specdash.tui.themes import load_themes

PACE = 3.0


class LiveSession(fake.FakeSession):
    """Plays the stages of a cycle in time, and its GPUs all the time."""

    def __init__(self) -> None:
        super().__init__(results=fake.history()[:3])
        self.serial = itertools.count(100)
        self.tasks: set[asyncio.Task[None]] = set()
        self.cycle: asyncio.Task[None] | None = None
        self.memory = 91240.0
        self.util = 2
        self.skip = asyncio.Event()

    async def open(self) -> None:
        for link in fake.LINKS:
            self.push(replace(link, t=time.time()))
        self.push(fake.status(now=self.now, t=time.time()))
        self._task(self._gpus())

    async def close(self) -> None:
        for task in list(self.tasks):
            task.cancel()

    def submit(self, candidate: Candidate, *, concurrency: tuple[int, ...] | None = None) -> None:
        self._queue = (*self._queue, candidate)
        if not self.is_busy:
            self.is_busy = True
            self.cycle = self._task(self._run())
        self.push(QueueChanged(t=time.time(), queue=self._queue))

    def submit_first(self, candidate: Candidate) -> None:
        self._queue = (candidate, *self._queue)
        self.push(QueueChanged(t=time.time(), queue=self._queue))
        self.skip.set()

    def measure(self, *, concurrency: tuple[int, ...] | None = None) -> None:
        self.is_busy = True
        self.cycle = self._task(self._measure_only())

    def skip_cell(self) -> None:
        self.skip.set()

    async def cancel(self) -> None:
        if self.cycle is not None:
            self.cycle.cancel()
        self.is_busy = False
        self._queue = ()
        record = replace(fake.record(3, t=time.time(), number=next(self.serial)), cells=())
        record = replace(record, outcome="cancelled", end_state="cancelled; the service is stopped")
        self.push(QueueChanged(t=time.time(), queue=()), CycleEnded(t=time.time(), record=record))

    def _task(self, work: object) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)  # type: ignore[arg-type]
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _gpus(self) -> None:
        while True:
            self.push(
                fake.gpus(
                    [round(self.memory + random.uniform(0, 60)) for _ in range(4)],
                    t=time.time(),
                    util=min(100, self.util + random.randrange(3)),
                    power=95 + self.util * 3.6,
                )
            )
            await asyncio.sleep(0.4)

    async def _run(self) -> None:
        while self._queue:
            candidate, *rest = self._queue
            self._queue = tuple(rest)
            self.push(QueueChanged(t=time.time(), queue=self._queue))
            await self._one(candidate)
        self.is_busy = False

    async def _measure_only(self) -> None:
        steps = self.now.num_steps or 0
        started = time.time()
        candidate = Candidate(steps)
        resolution = Resolution(candidate, self.now)
        self.push(
            CycleStarted(
                t=started,
                candidate=candidate,
                resolution=resolution,
                concurrency=(1, 4, 16),
                measure_only=True,
            )
        )
        await self._measure(self.now, started, note="")
        self.is_busy = False

    async def _stage(self, name: StageName, seconds: float, note: str = "") -> None:
        start = time.time()
        self.push(StageStarted(t=start, stage=name, deadline_s=120.0))
        if note:
            self.push(StageNote(t=start, stage=name, detail=make_safe(note)))
        await asyncio.sleep(seconds / PACE)
        took = time.time() - start
        self.push(StageEnded(t=time.time(), stage=name, state="done", seconds=took))

    def _ran(self, *argv: str) -> None:
        self.push(CommandRan(t=time.time(), host="svc", argv=argv, exit_status=0, seconds=0.2))

    async def _one(self, candidate: Candidate) -> None:
        check = self.check(candidate)
        assert check.resolution is not None
        settings, started = check.resolution.settings, time.time()
        self.push(
            CycleStarted(
                t=started,
                candidate=candidate,
                resolution=check.resolution,
                concurrency=(1, 4, 16),
            )
        )
        await self._stage("preflight", 2)
        self._ran("systemctl", "stop", fake.UNIT)
        self.push(fake.status("deactivating", t=time.time()))
        await self._stage("stop", 6, "port 30000 still open")
        self.push(fake.status("inactive", t=time.time()))
        await self._stage("reap", 1)
        release = self._task(self._memory_to(620, 3 / PACE))
        await self._stage("free", 4, "GPU 2 still holds 41.2 GiB")
        await release
        await self._stage("write", 1)
        self._ran("systemctl", "daemon-reload")
        await self._stage("reload", 1)
        self._ran("systemctl", "start", fake.UNIT)
        self.push(fake.status("activating", t=time.time()))
        await self._stage("start", 2)
        await self._load()
        self.now = settings
        self.push(fake.status(now=settings, t=time.time(), pid=random.randrange(40000, 60000)))
        await self._stage("verify", 3, "one real generation")
        await self._measure(settings, started, note=candidate.note)

    async def _load(self) -> None:
        start = time.time()
        self.push(StageStarted(t=start, stage="load", deadline_s=1800.0))
        for shard in range(39):
            detail = Safe(f"shard {shard + 1} of 39")
            self.push(
                LoadProgress(
                    t=time.time(), phase="weights", fraction=(shard + 1) / 39, detail=detail
                ),
                LogLine(
                    t=time.time(),
                    source="service",
                    text=make_safe(f"Loading safetensors checkpoint shards: {shard + 1}/39"),
                ),
            )
            self.memory = 620 + 61000 * (shard + 1) / 39
            await asyncio.sleep(0.9 / PACE)
        self.push(LoadProgress(t=time.time(), phase="kv-cache"))
        await self._memory_to(88100, 1.0)
        self.push(LoadProgress(t=time.time(), phase="graphs", fraction=0.5))
        await self._memory_to(91240, 2.0)
        took = time.time() - start
        self.push(StageEnded(t=time.time(), stage="load", state="done", seconds=took))

    async def _memory_to(self, target: float, seconds: float) -> None:
        start, steps = self.memory, 12
        for step in range(1, steps + 1):
            self.memory = start + (target - start) * step / steps
            await asyncio.sleep(seconds / steps)

    async def _measure(self, settings: Settings, started: float, *, note: str) -> None:
        steps = settings.num_steps or 0
        at = time.time()
        self.push(StageStarted(t=at, stage="measure"))
        cells = []
        for concurrency in (1, 4, 16):
            cell = fake.cell(
                steps, concurrency, flags=("queued",) if steps * concurrency > 70 else ()
            )
            self.push(CellStarted(t=time.time(), concurrency=concurrency))
            self.util = 97
            await self._stream(concurrency, cell.output_tok_s or 1.0, steps)
            cells.append(cell)
            self.push(CellMeasured(t=time.time(), cell=cell))
        self.util = 2
        took = time.time() - at
        self.push(StageEnded(t=time.time(), stage="measure", state="done", seconds=took))
        record = replace(
            fake.record(steps, t=started, note=note, number=next(self.serial)), cells=tuple(cells)
        )
        self.push(CycleEnded(t=time.time(), record=record))

    async def _stream(self, concurrency: int, level: float, steps: int) -> None:
        self.skip.clear()
        start, warm, budget = time.time(), 2.0, 8.0
        while (at := time.time() - start) < warm + budget and not self.skip.is_set():
            rate = (
                level * min(1.0, at / 1.5) * (1 + 0.04 * math.sin(at * 2) + random.gauss(0, 0.02))
            )
            warming = at < warm
            self.push(
                CellProgress(
                    t=time.time(),
                    concurrency=concurrency,
                    warming=warming,
                    tok_s=rate,
                    mean_tok_s=None if warming else level,
                    per_request_tok_s=rate / concurrency,
                    ttft_ms=180.0 * concurrency**0.5,
                    accept_length=1.0 + 0.62 * steps**0.8 if steps else None,
                    in_flight=concurrency,
                    done=int(at),
                    failed=0,
                    elapsed_s=max(0.0, at - warm),
                    budget_s=budget,
                )
            )
            await asyncio.sleep(0.1)


def make_session(decide: Decide, ask: AskSecret) -> CockpitSession:
    return LiveSession()  # type: ignore[return-value]


async def main() -> None:
    theme = sys.argv[1] if len(sys.argv) > 1 else None
    await run_cockpit(make_session, themes=load_themes().themes, theme=theme, clock=SystemClock())


if __name__ == "__main__":
    asyncio.run(main())
