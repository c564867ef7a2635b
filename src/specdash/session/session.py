"""One open rig: connections, live streams, the queue of candidates, and the cycles it ran."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace

from specdash.core.errors import InternalError, SpecdashError
from specdash.core.events import CycleEnded, Event, Notice, QueueChanged
from specdash.core.plan import Plan
from specdash.core.ports import Decide
from specdash.core.records import CycleRecord
from specdash.core.settings import Candidate, Resolution, Settings
from specdash.core.text import Safe, make_safe
from specdash.cycle.planning import make_plan
from specdash.cycle.runner import Ask, Cycle, Result
from specdash.cycle.world import World
from specdash.history.export import export_results
from specdash.history.store import History, HistoryError
from specdash.rig.schema import Rig
from specdash.rig.store import Places
from specdash.session.check import CheckReport, check_rig
from specdash.session.live import LiveStreams
from specdash.session.port import CandidateCheck, EngineWords
from specdash.session.wiring import Wiring


class RigSession:
    """Implements :class:`specdash.session.port.CockpitSession`; the headless verbs use it too."""

    def __init__(
        self,
        wiring: Wiring,
        *,
        decide: Decide,
        places: Places,
        unattended: bool = False,
    ) -> None:
        self._wiring = wiring
        self._places = places
        self._clock = wiring.clock
        self._unattended = unattended
        self._history = History(places.history)
        self._results: list[CycleRecord] = []
        self._queue: deque[tuple[Candidate, tuple[int, ...] | None]] = deque()
        self._cycle: Cycle | None = None
        self._cycle_task: asyncio.Task[Result] | None = None
        self._queue_task: asyncio.Task[None] | None = None
        self._config: Settings | None = None
        self._hub = wiring.hub
        self._world: World = wiring.world(decide, places)
        self._live = LiveStreams(
            self._world,
            wiring,
            self._clock,
            measuring=lambda: self._measuring,
            busy=lambda: self.busy,
            verified=lambda: None if self._cycle is None else self._cycle.info,
        )

    # -- what it is ---------------------------------------------------------------------------

    @property
    def rig(self) -> Rig:
        return self._world.rig

    @property
    def simulated(self) -> bool:
        return self._live.simulated

    @property
    def words(self) -> EngineWords:
        engine = self._world.engine
        return EngineWords(engine.kind, engine.knob_word, engine.has_topk)

    @property
    def busy(self) -> bool:
        return self._cycle is not None

    @property
    def queue(self) -> tuple[Candidate, ...]:
        return tuple(candidate for candidate, _ in self._queue)

    @property
    def results(self) -> tuple[CycleRecord, ...]:
        return tuple(self._results)

    @property
    def _measuring(self) -> bool:
        return self._cycle is not None and self._cycle.measuring

    def events(self) -> AsyncIterator[Event]:
        return self._hub.read()

    # -- open and close -----------------------------------------------------------------------

    async def open(self) -> None:
        """Load the history and start the live streams; failures arrive as events."""
        try:
            self._results = list(await self._history.of_rig(self.rig.name))
        except HistoryError as error:
            self._notice("warning", error)
        self._live.start()

    async def close(self) -> None:
        """Cancel what runs to a named state, stop the streams, hang up."""
        await self.cancel()
        if self._queue_task is not None:
            self._queue_task.cancel()
            with suppress(asyncio.CancelledError):
                await self._queue_task
        await self._live.stop()
        await self._wiring.close()

    # -- candidates ---------------------------------------------------------------------------

    def check(self, candidate: Candidate, base: Settings | None = None) -> CandidateCheck:
        current = base or self._live.config or self._live.now or Settings()
        try:
            return CandidateCheck(self._world.engine.resolve(current, candidate))
        except SpecdashError as error:
            reason = f"{error.message} {error.remedy}".strip()
            return CandidateCheck(None, make_safe(reason))

    async def plan(self, candidate: Candidate) -> Plan:
        return await make_plan(self._world, candidate)

    async def check_rig(self) -> CheckReport:
        """Try everything a cycle will need; touches nothing."""
        return await check_rig(self._world)

    def submit(self, candidate: Candidate, *, concurrency: tuple[int, ...] | None = None) -> None:
        self._queue.append((candidate, concurrency))
        self._queue_changed()
        self._run_queue()

    def submit_first(self, candidate: Candidate) -> None:
        self._queue.appendleft((candidate, None))
        self._queue_changed()
        if self._cycle is not None:
            self._cycle.skip_rest()
        self._run_queue()

    def unqueue(self, index: int) -> None:
        if 0 <= index < len(self._queue):
            del self._queue[index]
            self._queue_changed()

    def measure(self, *, concurrency: tuple[int, ...] | None = None) -> None:
        if self.busy:
            return
        self._spawn(Ask(None, concurrency or self.rig.bench.concurrency))

    def skip_cell(self) -> None:
        if self._cycle is not None:
            self._cycle.skip_cell()

    async def cancel(self) -> None:
        task = self._ask_to_end()
        if task is not None:
            await asyncio.wait({task})

    def _ask_to_end(self) -> asyncio.Task[Result] | None:
        """The task to wait for, if one runs."""
        if self._queue:
            self._queue.clear()
            self._queue_changed()
        task = self._cycle_task
        if task is None or task.done():
            return None
        # Once its cycle is over a task only stores the record, which is not to be lost.
        if self._cycle is not None:
            task.cancel()
        return task

    async def run_cycle(self, ask: Ask) -> Result:
        """Run one cycle and wait for its end, as the headless verbs do.

        Cancelling the caller cancels the cycle and still waits for its named end state; so does
        cancelling it again, which hurries the way there.
        """
        task = self._spawn(ask)
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                self._ask_to_end()
        return task.result()

    async def export(self, format_name: str) -> Safe:
        path = await export_results(
            self._results, format_name, self._places.data / "exports", self.rig.name, self._clock
        )
        return make_safe(str(path))

    # -- running ------------------------------------------------------------------------------

    def _run_queue(self) -> None:
        if self._queue_task is None or self._queue_task.done():
            self._queue_task = asyncio.create_task(self._drain(), name="queue")

    async def _drain(self) -> None:
        while self._queue or self._cycle_task is not None:
            if self._cycle_task is not None and not self._cycle_task.done():
                await asyncio.wait({self._cycle_task})
                continue
            if not self._queue:
                return
            candidate, concurrency = self._queue.popleft()
            self._queue_changed()
            self._spawn(
                Ask(
                    candidate,
                    concurrency or self.rig.bench.concurrency,
                    approved=True,
                    unattended=self._unattended,
                )
            )

    def _spawn(self, ask: Ask) -> asyncio.Task[Result]:
        self._cycle = cycle = Cycle(self._world, replace(ask, expected=self._expected(ask)))
        task = asyncio.create_task(self._run(cycle), name="cycle")
        self._cycle_task = task
        return task

    def _expected(self, ask: Ask) -> Resolution | None:
        if ask.candidate is not None:
            return self.check(ask.candidate).resolution
        now = self._live.now or self._live.config
        if now is None:
            return None
        seen = Candidate(now.num_steps or 0, now.eagle_topk, now.num_draft_tokens)
        return Resolution(seen, now)

    async def _run(self, cycle: Cycle) -> Result:
        forget = self._hub.observe(self._keep)
        try:
            result = await cycle.run()
        except Exception as bug:
            self._notice("error", InternalError.of(bug))
            raise
        finally:
            self._cycle = None
            forget()
        try:
            stored = await self._history.add(result.record)
        except HistoryError as error:
            self._notice("warning", error)
        except Exception as bug:  # noqa: BLE001  the result is there, only its row is not
            self._notice("warning", InternalError.of(bug))
        else:
            self._results = [stored if r is result.record else r for r in self._results]
        return result

    def _keep(self, event: Event) -> None:
        if isinstance(event, CycleEnded):
            self._results.append(event.record)

    def _queue_changed(self) -> None:
        self._hub.publish(QueueChanged(t=self._clock.wall(), queue=self.queue))

    def _notice(self, level: str, error: SpecdashError) -> None:
        self._hub.publish(
            Notice(
                t=self._clock.wall(),
                level="error" if level == "error" else "warning",
                message=make_safe(error.message),
                remedy=make_safe(error.remedy),
                evidence=tuple(make_safe(line) for line in error.evidence),
            )
        )
