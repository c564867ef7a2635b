"""What the cockpit knows, as one frozen value: ``reduce(view, event)`` and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Literal

from specdash.core.events import (
    CellMeasured,
    CellProgress,
    CellStarted,
    CycleEnded,
    CycleStarted,
    Event,
    GpusSampled,
    LinkChanged,
    LoadProgress,
    LogLine,
    Notice,
    QueueChanged,
    StageEnded,
    StageNote,
    StageStarted,
    StatusChanged,
)
from specdash.core.gpu import Gpu, Snapshot
from specdash.core.records import (
    STAGES,
    Cell,
    CycleRecord,
    Failure,
    StageName,
    StageState,
)
from specdash.core.service import ServiceStatus
from specdash.core.settings import Candidate, Resolution, Settings
from specdash.core.text import Safe, make_safe
from specdash.tui import fmt

MAX_SAMPLES = 2400
MAX_POINTS = 1200
BEFORE_CYCLE_S = 10.0
IDLE_SPAN_S = 300.0

Sample = tuple[float, float | None]


@dataclass(frozen=True, slots=True)
class Link:
    """One host's connection."""

    host: str
    state: Literal["connecting", "up", "lost", "refused"]
    message: Safe = Safe("")
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the cycle on screen. ``started`` is None before it began."""

    name: StageName
    state: StageState = "pending"
    started: float | None = None
    seconds: float | None = None
    deadline_s: float | None = None
    detail: Safe = Safe("")


@dataclass(frozen=True, slots=True)
class Point:
    """One moment of a cell, ``t`` seconds after the cell began."""

    t: float
    tok_s: float | None
    mean_tok_s: float | None
    per_request_tok_s: float | None
    warming: bool


@dataclass(frozen=True, slots=True)
class CellRun:
    """The cell on screen: running while ``measured`` is None."""

    concurrency: int
    started: float
    requests: int | None = None
    progress: CellProgress | None = None
    points: tuple[Point, ...] = ()
    measured: Cell | None = None


@dataclass(frozen=True, slots=True)
class Cycle:
    """The cycle on screen: running while ``record`` is None."""

    candidate: Candidate
    resolution: Resolution
    concurrency: tuple[int, ...]
    measure_only: bool
    started: float
    stages: tuple[Stage, ...]
    load: LoadProgress | None = None
    cell: CellRun | None = None
    cells: tuple[Cell, ...] = ()
    record: CycleRecord | None = None
    back: Safe = Safe("")

    @property
    def running(self) -> bool:
        return self.record is None

    @property
    def ended_badly(self) -> Stage | None:
        """The stage that failed or was cancelled: from it on the cycle is on its way back."""
        return next((item for item in self.stages if item.state in ("failed", "cancelled")), None)

    @property
    def winding_down(self) -> bool:
        """Not over yet, and on its way back to a named state; ``back`` says what it does."""
        return self.running and self.ended_badly is not None

    @property
    def current(self) -> Stage | None:
        """The stage that runs now."""
        return next((stage for stage in self.stages if stage.state == "running"), None)

    def stage(self, name: StageName) -> Stage | None:
        return next((stage for stage in self.stages if stage.name == name), None)


@dataclass(frozen=True, slots=True)
class GpuView:
    """The last reading and the memory history since ``since`` (used MiB by GPU key)."""

    snapshot: Snapshot | None = None
    t: float = 0.0
    history: dict[str, tuple[Sample, ...]] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    marks: tuple[tuple[float, StageName], ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """Everything the panes draw. Widgets only read it."""

    rig_name: Safe
    simulated: bool = False
    read_only: bool = False
    protected: bool = False
    links: tuple[Link, ...] = ()
    service: ServiceStatus | None = None
    now: Settings | None = None
    config: Settings | None = None
    model: Safe = Safe("")
    status_seen: bool = False
    gpus: GpuView = GpuView()
    cycle: Cycle | None = None
    queue: tuple[Candidate, ...] = ()
    results: tuple[CycleRecord, ...] = ()
    notice: Notice | None = None

    @property
    def running(self) -> bool:
        """A cycle or a measurement is on screen and has not ended."""
        return self.cycle is not None and self.cycle.running

    @property
    def starting(self) -> Settings | None:
        """What the engine comes up with, from the start of the service until it was verified."""
        cycle = self.cycle
        if cycle is None or not cycle.running or cycle.winding_down or cycle.measure_only:
            return None
        began, verified = cycle.stage("start"), cycle.stage("verify")
        if began is None or began.state in ("pending", "skipped"):
            return None
        if verified is not None and verified.state == "done":
            return None
        return cycle.resolution.settings

    @property
    def failure(self) -> Failure | None:
        """Why the last cycle failed, if it did. One that the operator cancelled did not."""
        if self.cycle is None or self.cycle.record is None:
            return None
        if self.cycle.record.outcome == "cancelled":
            return None
        return self.cycle.record.failure


def gpu_key(gpu: Gpu, position: int) -> str:
    """What one GPU is joined by over time: its uuid, else its index, else its place."""
    return gpu.uuid or (f"#{gpu.index}" if gpu.index is not None else f"@{position}")


@singledispatch
def _apply(event: Event, view: View) -> View:
    return view


def reduce(view: View, event: Event) -> View:
    """The view after ``event``. Events that change nothing on screen return the same object."""
    return _apply(event, view)


@_apply.register
def _(event: LinkChanged, view: View) -> View:
    before = next((item for item in view.links if item.host == event.host), None)
    # Another reason for the same state is no new start of it.
    since = before.since if before is not None and before.state == event.state else event.t
    link = Link(event.host, event.state, event.message, since)
    others = tuple(item for item in view.links if item.host != event.host)
    known = [item.host for item in view.links]
    if event.host in known:
        place = known.index(event.host)
        return replace(view, links=(*others[:place], link, *others[place:]))
    return replace(view, links=(*others, link))


@_apply.register
def _(event: StatusChanged, view: View) -> View:
    return replace(
        view,
        service=event.service,
        now=event.now,
        config=event.config,
        model=event.model or view.model,
        simulated=view.simulated or event.simulated,
        status_seen=True,
    )


@_apply.register
def _(event: GpusSampled, view: View) -> View:
    old = view.gpus
    cycle = view.cycle
    oldest = event.t - IDLE_SPAN_S
    if cycle is not None:
        # A reload stays readable as one picture until well after it ended.
        ended = cycle.record is not None and event.t - _cycle_end(cycle) > IDLE_SPAN_S
        if not ended:
            oldest = min(oldest, cycle.started - BEFORE_CYCLE_S)
    history: dict[str, tuple[Sample, ...]] = {}
    peaks = dict(old.peaks)
    for position, gpu in enumerate(event.snapshot.gpus):
        key = gpu_key(gpu, position)
        used = gpu.memory_used_mib
        past = old.history.get(key, ())
        if past and past[0][0] < oldest:
            past = tuple(sample for sample in past if sample[0] >= oldest)
        value = None if used is None else float(used)
        history[key] = _thin((*past, (event.t, value)), MAX_SAMPLES)
        if used is not None:
            peaks[key] = max(used, peaks.get(key, 0))
    marks = tuple(mark for mark in old.marks if mark[0] >= oldest)
    return replace(
        view,
        gpus=GpuView(event.snapshot, event.t, history, peaks, marks),
    )


@_apply.register
def _(event: Notice, view: View) -> View:
    return replace(view, notice=event)


@_apply.register
def _(event: QueueChanged, view: View) -> View:
    return replace(view, queue=event.queue)


@_apply.register
def _(event: CycleStarted, view: View) -> View:
    names: tuple[StageName, ...] = ("measure",) if event.measure_only else STAGES
    cycle = Cycle(
        candidate=event.candidate,
        resolution=event.resolution,
        concurrency=event.concurrency,
        measure_only=event.measure_only,
        started=event.t,
        stages=tuple(Stage(name) for name in names),
    )
    gpus = replace(view.gpus, marks=(), peaks={})
    # What the cycle before said is old news from here on; the log keeps it.
    return replace(view, cycle=cycle, gpus=gpus, notice=None)


@_apply.register
def _(event: StageStarted, view: View) -> View:
    if view.cycle is None:
        return view
    stage = Stage(event.stage, "running", event.t, None, event.deadline_s)
    marks = (*view.gpus.marks, (event.t, event.stage))
    return replace(
        view,
        cycle=_with_stage(view.cycle, stage),
        gpus=replace(view.gpus, marks=marks),
    )


@_apply.register
def _(event: StageNote, view: View) -> View:
    if view.cycle is None:
        return view
    stage = view.cycle.stage(event.stage)
    if stage is None:
        return view
    if stage.state != "running":
        # The way back waits for things, too; why the stage failed must not be lost for it.
        winding = view.cycle.winding_down
        return replace(view, cycle=replace(view.cycle, back=event.detail)) if winding else view
    return replace(view, cycle=_with_stage(view.cycle, replace(stage, detail=event.detail)))


@_apply.register
def _(event: StageEnded, view: View) -> View:
    if view.cycle is None:
        return view
    stage = view.cycle.stage(event.stage) or Stage(event.stage)
    done = replace(stage, state=event.state, seconds=event.seconds, detail=event.detail)
    return replace(view, cycle=_with_stage(view.cycle, done))


@_apply.register
def _(event: LoadProgress, view: View) -> View:
    if view.cycle is None or not view.cycle.running:
        return view
    return replace(view, cycle=replace(view.cycle, load=event))


@_apply.register
def _(event: LogLine, view: View) -> View:
    cycle = view.cycle
    if event.source != "specdash" or cycle is None or not cycle.winding_down:
        return view
    return replace(view, cycle=replace(cycle, back=event.text))


@_apply.register
def _(event: CellStarted, view: View) -> View:
    if view.cycle is None:
        return view
    cell = CellRun(event.concurrency, event.t, event.requests)
    return replace(view, cycle=replace(view.cycle, cell=cell))


@_apply.register
def _(event: CellProgress, view: View) -> View:
    cycle = view.cycle
    if cycle is None:
        return view
    cell = cycle.cell
    if cell is None or cell.measured is not None or cell.concurrency != event.concurrency:
        cell = CellRun(event.concurrency, event.t - event.elapsed_s)
    point = Point(
        max(0.0, event.t - cell.started),
        event.tok_s,
        event.mean_tok_s,
        event.per_request_tok_s,
        event.warming,
    )
    points = (*cell.points, point)
    if len(points) > MAX_POINTS:
        points = (*points[: MAX_POINTS // 2 : 2], *points[MAX_POINTS // 2 :])
    return replace(view, cycle=replace(cycle, cell=replace(cell, progress=event, points=points)))


@_apply.register
def _(event: CellMeasured, view: View) -> View:
    cycle = view.cycle
    if cycle is None:
        return view
    cell = cycle.cell
    if cell is not None and cell.concurrency == event.cell.concurrency:
        cell = replace(cell, measured=event.cell)
    others = tuple(c for c in cycle.cells if c.concurrency != event.cell.concurrency)
    return replace(view, cycle=replace(cycle, cell=cell, cells=(*others, event.cell)))


@_apply.register
def _(event: CycleEnded, view: View) -> View:
    record = event.record
    cycle = view.cycle
    if cycle is not None and cycle.running:
        known = {item.name: item for item in record.stages}
        stages = tuple(
            replace(
                stage,
                state=known[stage.name].state if stage.name in known else stage.state,
                seconds=stage.seconds
                if stage.seconds is not None or stage.name not in known
                else known[stage.name].seconds,
            )
            for stage in cycle.stages
        )
        cycle = replace(cycle, record=record, stages=stages)
    results = view.results
    if not any(_same_record(record, item) for item in results):
        results = (*results, record)
    return replace(view, cycle=cycle, results=results, notice=_end_notice(event) or view.notice)


def _end_notice(event: CycleEnded) -> Notice | None:
    """A failed, refused or cancelled cycle ends in one plain sentence."""
    record = event.record
    failure = record.failure
    state = make_safe(now_words(record))
    if record.outcome == "cancelled":
        where = f"cancelled at {failure.stage}" if failure is not None else "cancelled"
        return Notice(t=event.t, level="warning", message=make_safe(where), remedy=state)
    if failure is not None:
        return Notice(
            t=event.t,
            level="error",
            message=make_safe(f"{failure.stage} failed: {failure.cause}"),
            # Where the rig stands now comes first: it must be read even where the rest is cut.
            remedy=make_safe(" ".join(p for p in (now_words(record), failure.remedy) if p)),
            evidence=tuple(make_safe(item) for item in failure.evidence),
        )
    if record.outcome in ("failed", "refused"):
        return Notice(
            t=event.t, level="error", message=make_safe(f"cycle {record.outcome}"), remedy=state
        )
    return _failed_requests(event)


def _failed_requests(event: CycleEnded) -> Notice | None:
    """A measured cycle whose cells have failed requests: they are counted, and said."""
    bad = [cell for cell in event.record.cells if cell.requests.failed]
    if not bad:
        return None
    failed = sum(cell.requests.failed for cell in bad)
    at = ", ".join(str(cell.concurrency) for cell in bad)
    return Notice(
        t=event.t,
        level="warning",
        message=make_safe(f"{fmt.count(failed, 'request')} failed, at {at} at a time."),
        remedy=Safe("They are counted and left out of the figures; the engine's log tells more."),
        evidence=tuple(
            make_safe(
                f"at {cell.concurrency}: {cell.requests.failed} of"
                f" {cell.requests.failed + cell.requests.ok} failed:"
                f" {fmt.causes(cell.requests.errors)}"
            )
            for cell in bad
        ),
    )


def now_words(record: CycleRecord) -> str:
    """The named state a cycle left its rig in, as a sentence; "" where it has none."""
    return f"The rig now: {record.end_state.rstrip('.')}." if record.end_state else ""


def _same_record(one: CycleRecord, other: CycleRecord) -> bool:
    if one.id is not None and other.id is not None:
        return one.id == other.id
    return one is other or (one.started_at == other.started_at and one.candidate == other.candidate)


def _cycle_end(cycle: Cycle) -> float:
    ends = [
        stage.started + stage.seconds
        for stage in cycle.stages
        if stage.started is not None and stage.seconds is not None
    ]
    return max(ends, default=cycle.started)


def _with_stage(cycle: Cycle, stage: Stage) -> Cycle:
    if all(item.name != stage.name for item in cycle.stages):
        return replace(cycle, stages=(*cycle.stages, stage))
    return replace(
        cycle,
        stages=tuple(stage if item.name == stage.name else item for item in cycle.stages),
    )


def _thin(samples: tuple[Sample, ...], limit: int) -> tuple[Sample, ...]:
    """Halve the resolution of the older half once there are too many samples."""
    if len(samples) <= limit:
        return samples
    half = limit // 2
    return (*samples[:half:2], *samples[half:])
