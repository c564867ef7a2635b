"""The cycle itself: the stages in order, and the way back to a named state when one fails."""

from __future__ import annotations

import asyncio
import traceback
from contextlib import AsyncExitStack
from dataclasses import dataclass

from specdash.bench.protocol import Bench
from specdash.core.errors import (
    InternalError,
    InterruptedRunError,
    RefusedError,
    SpecdashError,
    WorkFailedError,
)
from specdash.core.events import CycleEnded, CycleStarted, Notice
from specdash.core.gpu import Snapshot
from specdash.core.plan import Plan
from specdash.core.records import CycleRecord, Outcome
from specdash.core.settings import Candidate, Capacity, Resolution, Settings
from specdash.core.text import make_safe
from specdash.cycle.back import WayBack
from specdash.cycle.config import StagedWrite, commit_all, discard_all, reload_if_due, stage_all
from specdash.cycle.consent import allow_reload, get_yes
from specdash.cycle.down import Before, free, look_before, reap, stop
from specdash.cycle.lock import rig_lock
from specdash.cycle.measure import Skip, measure
from specdash.cycle.planning import plan_of
from specdash.cycle.prepare import Decision, Present, decide, read_present
from specdash.cycle.progress import Progress, StageRunner, keep_peaks
from specdash.cycle.proof import check_endpoint, check_gpus, prove_config
from specdash.cycle.record import Ending, asked_settings, record_of
from specdash.cycle.up import LogTail, load, start, verify
from specdash.cycle.world import World
from specdash.engines.protocol import EngineInfo
from specdash.gpus.idle import selected


@dataclass(frozen=True, slots=True)
class Ask:
    """What a cycle is to do. ``candidate`` None measures what runs now, with no restart.

    ``approved``: the operator saw this plan and said yes. ``unattended``: nobody is there to
    answer, so a failed cycle brings the last good service back by itself.
    """

    candidate: Candidate | None
    concurrency: tuple[int, ...]
    approved: bool = False
    unattended: bool = False
    expected: Resolution | None = None
    """What the candidate is expected to become, for the screen, until the config is read."""


@dataclass(frozen=True, slots=True)
class Result:
    """The record of a cycle, and the error that ended it early, if one did."""

    record: CycleRecord
    error: SpecdashError | None = None
    plan: Plan | None = None


class Cycle:
    """One restart-and-measure. :meth:`run` is called once."""

    def __init__(self, world: World, ask: Ask) -> None:
        self._world = world
        self._ask = ask
        self._progress = Progress()
        self._stages = StageRunner(world, self._progress)
        self._skip = Skip()
        self._present: Present | None = None
        self._decision: Decision | None = None
        self._plan: Plan | None = None
        self._before: Before | None = None
        self._staged: tuple[StagedWrite, ...] = ()
        self._resolved: Settings | None = None
        self._info: EngineInfo | None = None
        self._capacity = Capacity()
        self._end_state = ""
        self._says_simulated = False
        self._said: set[str] = set()

    @property
    def measuring(self) -> bool:
        """Requests of the load generator run: nothing else may ask the engine anything."""
        return self._progress.current == "measure"

    @property
    def info(self) -> EngineInfo | None:
        """What the engine said it runs when it was verified."""
        return self._info

    def skip_cell(self) -> None:
        """Cut the running cell and go on with the next."""
        self._skip.cut()

    def skip_rest(self) -> None:
        """Cut the running cell and end the measurement with what there is."""
        self._skip.cut(rest=True)

    async def run(self) -> Result:
        """Run to the end. Cancelling the task leaves the rig in a named state; every other
        failure becomes part of the result."""
        started_at = self._world.clock.wall()
        error: SpecdashError | None = None
        outcome: Outcome = "measured"
        tail = LogTail(self._world)
        forget = [self._world.gpus.watch(self._see_gpus), self._world.log.watch(tail.feed)]
        try:
            await self._forward(tail)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            outcome, error = "cancelled", InterruptedRunError("The cycle was cancelled.")
        except RefusedError as refused:
            outcome, error = "refused", refused
        except SpecdashError as failed:
            outcome, error = "failed", failed
        except Exception as bug:  # noqa: BLE001  whatever is wrong here, the rig must come back
            outcome, error = "failed", InternalError.of(bug)
            await self._keep("internal-error", traceback=traceback.format_exc())
        finally:
            for stop_watching in forget:
                stop_watching()
        if error is not None:
            await self._wind_down(error)
        record = self._record(outcome, error, started_at)
        await self._keep(
            "ended", outcome=outcome, end_state=record.end_state, resolved=record.resolved
        )
        self._world.emit(CycleEnded(t=self._world.clock.wall(), record=record))
        return Result(record, error, self._plan)

    # -- forward ------------------------------------------------------------------------------

    async def _forward(self, tail: LogTail) -> None:
        async with AsyncExitStack() as stack:
            if self._ask.candidate is None:
                await self._measure_only(stack)
            else:
                await self._restart_and_measure(self._ask.candidate, stack, tail)

    async def _restart_and_measure(
        self, candidate: Candidate, stack: AsyncExitStack, tail: LogTail
    ) -> None:
        world, stages, progress = self._world, self._stages, self._progress
        limits = world.rig.limits
        self._started(
            candidate,
            self._ask.expected or Resolution(candidate, asked_settings(candidate)),
            measure_only=False,
        )
        async with stages.stage("preflight"):
            present, decision = await self._preflight(candidate, stack)
        resolution = decision.resolution
        if resolution is None or decision.edit is None:
            raise WorkFailedError("The candidate was not decided.")
        service = present.service
        self._before = await look_before(world, present)
        async with stages.stage("stop", limits.stop_s):
            progress.stopping = True
            await stop(world, service, present.status, stages)
        async with stages.stage("reap", limits.grace_s):
            await reap(world, self._before, stages)
        bench = await stack.enter_async_context(world.open_bench())
        async with stages.stage("free", limits.free_s):
            progress.idle_mib = await free(world, self._before, stages)
        if decision.changes:
            async with stages.stage("write"):
                kept = [
                    await world.backups.keep(
                        write.target.host.name, write.target.image.path, write.target.image.data
                    )
                    for write in self._staged
                ]
                await world.journal.write("write", backups=kept)
                progress.written = True
                await commit_all(self._staged)
                self._staged = ()
                if decision.edit.removed is not None:
                    world.memory.save(decision.edit.removed.to_json())
                stages.result(f"backup {kept[0]}")
            async with stages.stage("reload"):
                if not await reload_if_due(service):
                    stages.result("none due")
        else:
            stages.skip("write", "the config already says so")
            stages.skip("reload", "nothing was written")
        async with stages.stage("start"):
            progress.starting = True
            tail.begin()
            started = await start(world, service, present.status, stages)
            stages.result(f"pid {started.main_pid}")
        async with stages.stage("load", limits.load_s):
            await load(world, service, started, stages, tail)
        tail.on = False
        async with stages.stage("verify"):
            info = await verify(world, resolution.settings, started.main_pid)
            self._take(info)
        progress.verified = True
        await self._measure(bench, fresh=True)

    async def _measure_only(self, stack: AsyncExitStack) -> None:
        world, stages, progress = self._world, self._stages, self._progress
        expected = self._ask.expected or Resolution(Candidate(0), Settings())
        self._started(expected.candidate, expected, measure_only=True)
        async with stages.stage("preflight"):
            await stack.enter_async_context(
                rig_lock(
                    await world.hosts.get(world.rig.config.host),
                    world.rig.config.path,
                    world.operator,
                    writes=False,
                    clock=world.clock,
                )
            )
            present = await read_present(world)
            self._present = present
            if not present.status.running:
                raise WorkFailedError(
                    f"{present.service.unit} does not run: it is {present.status.state}.",
                    remedy="Start it, or run a cycle.",
                    code="not-running",
                )
            readiness = await world.engine.readiness(world.http)
            if not readiness.ready:
                raise WorkFailedError(
                    f"The engine is not ready: {readiness.detail}.",
                    remedy="Wait until its load ends.",
                    code="not-ready",
                )
        for name in ("stop", "reap", "free", "write", "reload", "start", "load"):
            progress.record(name, "skipped", 0.0, "measure only")
        bench = await stack.enter_async_context(world.open_bench())
        settings = present.info.settings or present.reading.settings
        async with stages.stage("verify"):
            info = await verify(world, settings, present.status.main_pid)
            self._take(info)
        progress.verified = True
        await self._measure(bench, fresh=False)

    async def _preflight(
        self, candidate: Candidate, stack: AsyncExitStack
    ) -> tuple[Present, Decision]:
        world = self._world
        config_host = await world.hosts.get(world.rig.config.host)
        await stack.enter_async_context(
            rig_lock(
                config_host,
                world.rig.config.path,
                world.operator,
                writes=True,
                clock=world.clock,
            )
        )
        self._present = present = await read_present(world)
        self._decision = decision = decide(world, present, candidate)
        self._plan = plan_of(world, present, decision)
        if decision.error is not None:
            raise decision.error
        if decision.refusals:
            first = decision.refusals[0]
            raise RefusedError(first.message, remedy=first.remedy, code=first.code)
        if decision.resolution is None or decision.edit is None:
            raise WorkFailedError("The candidate was not decided.")
        await check_gpus(world)
        unanswered = await check_endpoint(world, present)
        for warning in filter(None, [*decision.warnings, unanswered]):
            self._say("warning", warning)
        await get_yes(world, self._plan, approved=self._ask.approved)
        if decision.changes:
            await allow_reload(world)
            await prove_config(present, decision)
            self._staged = await stage_all(world, present.targets, decision.edit.data)
        return present, decision

    async def _measure(self, bench: Bench, *, fresh: bool) -> None:
        world, stages, progress = self._world, self._stages, self._progress
        async with stages.stage("measure"):
            await measure(
                world,
                bench,
                self._ask.concurrency,
                self._capacity,
                progress,
                stages,
                self._skip,
                fresh=fresh,
            )

    # -- the way back -------------------------------------------------------------------------

    async def _wind_down(self, error: SpecdashError) -> None:
        """Bring the rig to a named state. A cancel meanwhile ends only what may be left out."""
        back = WayBack(self._world, self._stages, self._progress, self._ask.unattended)
        going = asyncio.ensure_future(self._go_back(back))
        while not going.done():
            try:
                await asyncio.shield(going)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if going.cancelled() or task is None:
                    break
                task.uncancel()
                back.hurry()
        self._end_state = (
            "unknown: the way back was interrupted" if going.cancelled() else going.result()
        )

    async def _go_back(self, back: WayBack) -> str:
        try:
            if self._present is None:
                return "untouched: the rig was not read to its end"
            edit = None if self._decision is None else self._decision.edit
            written = b"" if edit is None else edit.data
            state = await back.go(self._present, self._before, self._resolved, written)
            await discard_all(self._world, self._staged)
            return state
        except SpecdashError as failed:
            self._say("error", f"The way back failed: {failed.message}", failed)
            return f"unknown: the way back failed: {failed.message}"
        except Exception as bug:  # noqa: BLE001  the state must be named, whatever is wrong here
            await self._keep("internal-error", traceback=traceback.format_exc())
            mistake = InternalError.of(bug)
            self._say("error", f"The way back failed: {mistake.message}", mistake)
            return f"unknown: the way back failed: {mistake.message}"

    async def _keep(self, kind: str, **data: object) -> None:
        """Write what was done to the journal; where that fails, say it and go on: the acts are
        over, and their end must still be told."""
        try:
            await self._world.journal.write(kind, **data)
        except SpecdashError as failed:
            self._say("error", failed.message, failed)

    # -- facts --------------------------------------------------------------------------------

    def _started(self, asked: Candidate, resolution: Resolution, *, measure_only: bool) -> None:
        self._world.emit(
            CycleStarted(
                t=self._world.clock.wall(),
                candidate=asked,
                resolution=resolution,
                concurrency=self._ask.concurrency,
                measure_only=measure_only,
            )
        )

    @property
    def _simulated(self) -> bool:
        read = self._present is not None and self._present.info.simulated
        return self._world.rig.simulated or self._says_simulated or read

    def _take(self, info: EngineInfo) -> None:
        self._says_simulated = info.simulated
        self._info = info
        self._resolved = info.settings
        self._capacity = info.capacity
        for warning in info.warnings:
            self._say("warning", warning)
        said = [] if info.settings is None else [f"runs {info.settings.short()}"]
        limit = info.capacity.max_running_requests
        if limit is not None:
            said.append(f"{limit} at once")
        self._stages.result(", ".join(said))

    def _see_gpus(self, snapshot: Snapshot) -> None:
        if not self._progress.starting and self._ask.candidate is not None:
            return
        keep_peaks(
            self._progress,
            {
                gpu.uuid or str(gpu.index): gpu.memory_used_mib
                for gpu in selected(snapshot, self._world.rig.gpus)
                if gpu.memory_used_mib is not None
            },
        )

    def _say(self, level: str, message: str, error: SpecdashError | None = None) -> None:
        if message in self._said:
            return
        self._said.add(message)
        redact = self._world.redact.text
        self._world.emit(
            Notice(
                t=self._world.clock.wall(),
                level="error" if level == "error" else "warning",
                message=make_safe(redact(message)),
                remedy=make_safe("" if error is None else redact(error.remedy)),
                evidence=()
                if error is None
                else tuple(make_safe(redact(e)) for e in error.evidence),
            )
        )

    def _record(
        self, outcome: Outcome, error: SpecdashError | None, started_at: float
    ) -> CycleRecord:
        ending = Ending(
            rig=self._world.rig.name,
            simulated=self._simulated,
            candidate=self._ask.candidate,
            wanted=self._wanted(),
            resolved=self._resolved,
            capacity=self._capacity,
            outcome=outcome,
            error=error,
            end_state=self._end_state or self._running_state(),
            started_at=started_at,
        )
        return record_of(ending, self._progress, self._world.redact)

    def _wanted(self) -> Settings:
        if self._decision is not None and self._decision.resolution is not None:
            return self._decision.resolution.settings
        if self._ask.candidate is None and self._present is not None:
            return self._present.info.settings or self._present.reading.settings
        if self._ask.candidate is not None:
            return asked_settings(self._ask.candidate)
        return Settings()

    def _running_state(self) -> str:
        settings = self._resolved or self._wanted()
        return f"running, {self._world.engine.knob_word} {settings.short()}"
