"""A session from a script: events that the test pushes, and a note of every call."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from specdash.core.errors import SpecdashError
from specdash.core.events import (
    CellMeasured,
    CellProgress,
    CellStarted,
    CommandRan,
    CycleEnded,
    CycleStarted,
    Event,
    GpusSampled,
    LinkChanged,
    LoadProgress,
    LogLine,
    QueueChanged,
    StageEnded,
    StageNote,
    StageStarted,
    StatusChanged,
)
from specdash.core.gpu import Gpu, GpuProcess, Snapshot
from specdash.core.plan import Plan, PlannedStage, PlannedWrite
from specdash.core.records import (
    Cell,
    CycleRecord,
    Failure,
    RequestCounts,
    Spread,
    StageName,
    StageRecord,
)
from specdash.core.service import ServiceStatus
from specdash.core.settings import Candidate, Resolution, Settings
from specdash.core.text import Safe, make_safe
from specdash.rig.schema import (
    ConfigSpec,
    EngineSpec,
    GpusSpec,
    HostSpec,
    Rig,
    SafetySpec,
    ServiceSpec,
)
from specdash.session.port import CandidateCheck, EngineWords

T0 = 1_750_000_000.0
UNIT = "sglang-qwen122.service"
PATH = "/etc/systemd/system/sglang-qwen122.service"
TOTAL = 97887
UUIDS = tuple(f"GPU-{i}000" for i in range(4))
SPEED = {0: 74.0, 1: 123.0, 2: 186.0, 3: 234.0, 4: 277.0, 5: 282.0, 6: 271.0}


class FakeClock:
    """Time that stands still until it is told to move."""

    def __init__(self, wall: float = T0) -> None:
        self._wall = wall
        self._now = 1000.0

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._wall

    def advance(self, seconds: float) -> None:
        self._now += seconds
        self._wall += seconds

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)


def make_rig(*, read_only: bool = False, simulated: bool = True, name: str = "qwen122") -> Rig:
    return Rig(
        name=name,
        path=None,
        hosts={
            "svc": HostSpec("svc", ssh="root@gpu-service.lan"),
            "node": HostSpec("node", ssh="root@pve-node.lan"),
        },
        service=ServiceSpec("svc", "systemd", UNIT),
        config=ConfigSpec("svc", PATH),
        engine=EngineSpec("sglang", "http://127.0.0.1:30000"),
        gpus=GpusSpec("node", UUIDS),
        safety=SafetySpec(read_only=read_only),
        simulated=simulated,
    )


def eagle(steps: int, topk: int = 1) -> Settings:
    if steps == 0:
        return Settings(num_steps=0, enabled=False)
    draft = steps + 1 if topk == 1 else topk * steps
    return Settings("EAGLE3", steps, topk, draft, "/models/eagle3-qwen122", True)


class FakeSession:
    """A ``CockpitSession`` whose events the test pushes. ``calls`` lists what was asked of it."""

    def __init__(
        self,
        events: Sequence[Event] = (),
        *,
        rig: Rig | None = None,
        results: Sequence[CycleRecord] = (),
        words: EngineWords | None = None,
    ) -> None:
        self._rig = rig or make_rig()
        self._first = list(events)
        self._pushed: asyncio.Queue[Event] = asyncio.Queue()
        self._results = tuple(results)
        self._queue: tuple[Candidate, ...] = ()
        self._words = words or EngineWords("SGLang", "steps", True)
        self.is_busy = False
        self.calls: list[tuple[str, object]] = []
        self.plan_error: SpecdashError | None = None
        self.plan_refused = False
        self.plan_gate: asyncio.Event | None = None
        self.now = eagle(3)

    rig = property(lambda self: self._rig)
    simulated = property(lambda self: self._rig.simulated)
    words = property(lambda self: self._words)
    busy = property(lambda self: self.is_busy)
    queue = property(lambda self: self._queue)
    results = property(lambda self: self._results)

    def push(self, *events: Event) -> None:
        for event in events:
            self._pushed.put_nowait(event)

    async def events(self) -> AsyncIterator[Event]:
        for event in self._first:
            yield event
        while True:
            yield await self._pushed.get()

    async def open(self) -> None:
        self.calls.append(("open", None))

    async def close(self) -> None:
        self.calls.append(("close", None))

    def check(self, candidate: Candidate, base: Settings | None = None) -> CandidateCheck:
        if candidate.num_steps > 32:
            return CandidateCheck(None, Safe("steps must lie between 0 and 32"))
        topk = candidate.eagle_topk or 1
        settings = eagle(candidate.num_steps, topk)
        notes: tuple[str, ...] = ()
        draft = candidate.num_draft_tokens
        if draft is not None and candidate.num_steps:
            if topk == 1 and draft != candidate.num_steps + 1:
                notes = (f"topk 1: draft tokens {draft} become steps + 1",)
            elif topk > 1:
                settings = replace(settings, num_draft_tokens=draft)
        return CandidateCheck(Resolution(candidate, settings, notes))

    async def plan(self, candidate: Candidate) -> Plan:
        self.calls.append(("plan", candidate))
        if self.plan_gate is not None:
            await self.plan_gate.wait()
        if self.plan_error is not None:
            raise self.plan_error
        return make_plan(candidate, self.now, refused=self.plan_refused)

    def submit(self, candidate: Candidate, *, concurrency: tuple[int, ...] | None = None) -> None:
        self.calls.append(("submit", candidate))
        if self.is_busy:
            self._queue = (*self._queue, candidate)
            self.push(QueueChanged(t=T0, queue=self._queue))
        self.is_busy = True

    def submit_first(self, candidate: Candidate) -> None:
        self.calls.append(("submit_first", candidate))

    def unqueue(self, index: int) -> None:
        self.calls.append(("unqueue", index))
        self._queue = self._queue[:index] + self._queue[index + 1 :]
        self.push(QueueChanged(t=T0, queue=self._queue))

    def measure(self, *, concurrency: tuple[int, ...] | None = None) -> None:
        self.calls.append(("measure", None))
        self.is_busy = True

    def skip_cell(self) -> None:
        self.calls.append(("skip_cell", None))

    async def cancel(self) -> None:
        self.calls.append(("cancel", None))
        self.is_busy = False

    async def export(self, format_name: str) -> Safe:
        self.calls.append(("export", format_name))
        return make_safe(f"~/specdash-qwen122.{format_name}")


def make_plan(candidate: Candidate, before: Settings, *, refused: bool = False) -> Plan:
    from specdash.core.plan import Refusal

    after = eagle(candidate.num_steps, candidate.eagle_topk or 1)
    old, new = before.num_steps, after.num_steps
    diff = "\n".join(
        (
            f"--- {PATH}",
            f"+++ {PATH}",
            "@@ -9,9 +9,9 @@",
            "   --model-path /models/Qwen3.5-122B-A10B \\",
            "   --speculative-algorithm EAGLE3 \\",
            f"-  --speculative-num-steps {old} \\",
            f"+  --speculative-num-steps {new} \\",
            "   --speculative-eagle-topk 1 \\",
            f"-  --speculative-num-draft-tokens {(old or 0) + 1} \\",
            f"+  --speculative-num-draft-tokens {(new or 0) + 1} \\",
            "   --port 30000",
        )
    )
    stages = (
        PlannedStage("stop", "svc", (("systemctl", "stop", UNIT),)),
        PlannedStage(
            "free", "node", (("nvidia-smi", "--query-gpu=index,memory.used", "--format=csv"),)
        ),
        PlannedStage("write", "svc", (), (PlannedWrite(PATH, diff),)),
        PlannedStage("reload", "svc", (("systemctl", "daemon-reload"),)),
        PlannedStage("start", "svc", (("systemctl", "start", UNIT),)),
    )
    refusals = (
        (Refusal("lock", "anna@ws2 has locked this rig since 02:14", "Wait, or ask anna."),)
        if refused
        else ()
    )
    return Plan("qwen122", before, Resolution(candidate, after), stages, refusals)


# Events ---------------------------------------------------------------------------------------


def status(
    state: str = "active", now: Settings | None = None, *, t: float = T0, pid: int | None = 42117
) -> StatusChanged:
    return StatusChanged(
        t=t,
        service=ServiceStatus(
            UNIT,
            state,  # type: ignore[arg-type]
            "running" if state == "active" else "dead",
            pid if state == "active" else None,
            "Sun 02:41:07",
            "a1b2",
            0,
        ),
        now=now,
        config=now or eagle(3),
        model=Safe("Qwen3.5-122B-A10B"),
    )


def gpus(
    used: Sequence[int | None], *, t: float = T0, util: int = 0, power: float = 92.0
) -> GpusSampled:
    rows = tuple(
        Gpu(
            index=i,
            uuid=UUIDS[i],
            name="RTX PRO 6000 Blackwell",
            memory_total_mib=TOTAL,
            memory_used_mib=value,
            memory_reserved_mib=636,
            utilization_percent=util,
            temperature_c=41 + i + util // 4,
            power_draw_w=power + 3.0 * i,
            power_limit_w=600.0,
            pstate="P0",
        )
        for i, value in enumerate(used)
    )
    holders = tuple(
        GpuProcess(UUIDS[i], 42117 + i, f"sglang::scheduler_TP{i}", "root", value - 530)
        for i, value in enumerate(used)
        if value is not None and value > 2000
    )
    return GpusSampled(t=t, snapshot=Snapshot("node", rows, holders))


LINKS = (
    LinkChanged(t=T0 - 300, host="svc", state="up"),
    LinkChanged(t=T0 - 300, host="node", state="up"),
)


def idle() -> list[Event]:
    out: list[Event] = [*LINKS, status(now=eagle(3), t=T0 - 300)]
    for i in range(120):
        t = T0 - 60 + i * 0.5
        out.append(gpus([91240 + 12 * (i % 3)] * 4, t=t, util=2))
    return out


def memory_at(t: float) -> int:
    """Used MiB of a GPU ``t`` seconds into a cycle: full, freed, weights, KV cache, graphs."""
    if t < 4:
        return 91240
    if t < 7:
        return round(91240 - (91240 - 620) * (t - 4) / 3)
    if t < 14:
        return 620
    if t < 50:
        return round(620 + 61000 * (t - 14) / 36)
    if t < 56:
        return 61620
    if t < 58:
        return 88100
    return 91240


_ENDED: tuple[tuple[StageName, float], ...] = (
    ("preflight", 0.8),
    ("stop", 3.4),
    ("reap", 0.2),
    ("free", 3.1),
    ("write", 0.3),
    ("reload", 0.5),
    ("start", 1.2),
)


def cycle_start(steps: int, *, t: float = T0) -> list[Event]:
    candidate = Candidate(steps)
    return [
        CycleStarted(
            t=t,
            candidate=candidate,
            resolution=Resolution(candidate, eagle(steps)),
            concurrency=(1, 4, 16),
        )
    ]


def until_load(steps: int = 4, *, t: float = T0, seconds: float = 41.0) -> list[Event]:
    out = cycle_start(steps, t=t)
    at = t
    for name, took in _ENDED:
        out.append(StageStarted(t=at, stage=name, deadline_s=120.0))
        out.append(StageEnded(t=at + took, stage=name, state="done", seconds=took))
        at += took
    out.append(status("inactive", t=t + 4))
    out.append(status("activating", t=at))
    out.append(StageStarted(t=at, stage="load", deadline_s=1800.0))
    for i in range(int((at - t + seconds) * 2)):
        now = t + i / 2
        out.append(gpus([memory_at(i / 2)] * 4, t=now, util=7, power=140.0))
    out.append(
        LoadProgress(t=at + seconds, phase="weights", fraction=0.74, detail=Safe("shard 29 of 39"))
    )
    return sorted(out, key=lambda event: event.t)


def mid_load() -> list[Event]:
    start = T0 - 42.0
    return [*idle_before(start), *until_load(4, t=start, seconds=32.5)]


def idle_before(t: float) -> list[Event]:
    out: list[Event] = [*LINKS, status(now=eagle(3), t=t - 20)]
    out += [gpus([91240] * 4, t=t - 10 + i / 2, util=2) for i in range(20)]
    return out


def measuring(
    steps: int = 4, concurrency: int = 4, *, t: float = T0, seconds: float = 23.0, warm: float = 4.0
) -> list[Event]:
    """The events of one running cell that ends at ``t``."""
    start = t - seconds - warm
    out: list[Event] = [CellStarted(t=start, concurrency=concurrency)]
    level = SPEED[steps] * concurrency**0.72
    mean = level
    for i in range(int((seconds + warm) * 5)):
        at = i / 5
        warming = at < warm
        rise = min(1.0, at / 3)
        rate = level * rise * (1 + 0.045 * math.sin(i / 3.1) + 0.03 * math.sin(i * 1.7))
        mean = mean * 0.97 + rate * 0.03 if not warming else level
        out.append(
            CellProgress(
                t=start + at,
                concurrency=concurrency,
                warming=warming,
                tok_s=rate,
                mean_tok_s=None if warming else mean,
                per_request_tok_s=rate / concurrency,
                ttft_ms=182.0,
                accept_length=2.91,
                in_flight=concurrency,
                done=int(at / 3) * concurrency,
                failed=0,
                elapsed_s=max(0.0, at - warm),
                budget_s=60.0,
            )
        )
    return out


def cell(
    steps: int, concurrency: int, *, flags: tuple[str, ...] = (), failed: bool = False
) -> Cell:
    if failed:
        return Cell(
            concurrency,
            requests=RequestCounts(0, 16, {"HTTP 500": 16}),
            flags=("failed",),
        )
    best = {1: 1.0, 4: 2.7, 16: 7.4 if steps <= 4 else 6.1}.get(concurrency, concurrency**0.7)
    value = SPEED.get(steps, 250.0) * best
    half = value * 0.012
    return Cell(
        concurrency,
        value,
        value - half,
        value + half,
        value / concurrency * 1.04,
        ttft_ms=Spread(190.0 * concurrency**0.5, 182.0 * concurrency**0.5, 260.0, 340.0),
        tpot_ms=Spread(1000 / value * concurrency),
        accept_length=1.0 + 0.62 * steps**0.8 if steps else None,
        output_tokens=4096 * concurrency,
        chunks=1500 * concurrency,
        requests=RequestCounts(16 * concurrency),
        window_s=58.0,
        flags=flags,  # type: ignore[arg-type]
    )


def record(
    steps: int, *, t: float, note: str = "", flags16: tuple[str, ...] = (), number: int = 0
) -> CycleRecord:
    return CycleRecord(
        rig="qwen122",
        simulated=True,
        candidate=eagle(steps),
        resolved=eagle(steps),
        stages=tuple(StageRecord(name, "done", took) for name, took in _ENDED),
        cells=(cell(steps, 1), cell(steps, 4), cell(steps, 16, flags=flags16)),
        outcome="measured",
        started_at=t,
        note=note,
        end_state=f"{UNIT} runs with steps {steps}",
        id=number or steps + 1,
    )


def failed_record(steps: int = 6, *, t: float = T0, number: int = 90) -> CycleRecord:
    return CycleRecord(
        rig="qwen122",
        simulated=True,
        candidate=eagle(steps),
        stages=(
            *tuple(StageRecord(name, "done", took) for name, took in _ENDED),
            StageRecord("load", "failed", 38.4, "out of memory while capturing graphs"),
        ),
        outcome="failed",
        failure=Failure(
            "load",
            "the engine ran out of GPU memory while it captured CUDA graphs",
            "Lower --mem-fraction-static from 0.88 to 0.84, or try fewer steps.",
            (
                "[02:43:10 TP2] Capture cuda graph begin. avail mem=1.91 GB",
                "[02:43:21 TP2] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB.",
                "[02:43:21] Received sigquit from a child process. It usually means the child failed.",
            ),
        ),
        started_at=t - 60,
        end_state="running, steps 3/1/4, restored",
        id=number,
    )


def history() -> list[CycleRecord]:
    return [
        record(0, t=T0 - 9000, number=1),
        record(1, t=T0 - 8000, number=2),
        record(2, t=T0 - 7000, number=3),
        record(3, t=T0 - 6000, number=4, note="what production runs"),
        record(5, t=T0 - 5000, number=5, flags16=("queued",)),
    ]


def benchmark_running() -> list[Event]:
    start = T0 - 130.0
    out: list[Event] = [*idle_before(start), *cycle_start(4, t=start)]
    at = start
    for name, took in (*_ENDED, ("load", 51.0), ("verify", 2.2)):
        out.append(StageStarted(t=at, stage=name, deadline_s=120.0))  # type: ignore[arg-type]
        out.append(StageEnded(t=at + took, stage=name, state="done", seconds=took))  # type: ignore[arg-type]
        at += took
    out.append(StageStarted(t=at, stage="measure"))
    out.append(status(now=eagle(4), t=at, pid=43950))
    for i in range(260):
        now = start + i / 2
        busy = i / 2 > 64
        out.append(
            gpus([memory_at(i / 2)] * 4, t=now, util=97 if busy else 6, power=438 if busy else 130)
        )
    out.append(CellStarted(t=at, concurrency=1))
    out.append(CellMeasured(t=at + 30, cell=cell(4, 1)))
    out.append(StageNote(t=at + 31, stage="measure", detail=Safe("4 requests, cell 2 of 3")))
    out = sorted(out, key=lambda event: event.t)
    return [
        *out,
        *measuring(4, 4),
        QueueChanged(t=T0, queue=(Candidate(6, note="past the knee?"),)),
    ]


def failed() -> list[Event]:
    start = T0 - 60.0
    out = [*idle_before(start), *until_load(6, t=start, seconds=38.4)]
    out.append(
        StageEnded(
            t=T0 - 8,
            stage="load",
            state="failed",
            seconds=38.4,
            detail=Safe("out of memory while capturing graphs"),
        )
    )
    out.append(status(now=eagle(3), t=T0 - 2, pid=44210))
    out.append(gpus([91240] * 4, t=T0, util=2))
    return [*out, CycleEnded(t=T0, record=failed_record())]


def log_events() -> list[Event]:
    out: list[Event] = []
    shards = [f"Loading safetensors checkpoint shards: {i * 10}% Completed" for i in range(10)]
    for i, text in enumerate(shards):
        out.append(
            LogLine(t=T0 - 40 + i, source="service", text=make_safe(f"[02:42:{i:02d} TP0] {text}"))
        )
    out.append(
        CommandRan(
            t=T0 - 20, host="svc", argv=("systemctl", "start", UNIT), exit_status=0, seconds=0.21
        )
    )
    out.append(
        CommandRan(
            t=T0 - 19,
            host="node",
            argv=("pct", "exec", "129", "--", "nvidia-smi", "-q"),
            exit_status=255,
            seconds=1.5,
            output=make_safe("Failed to initialize NVML: Unknown Error"),
        )
    )
    out.append(LogLine(t=T0 - 5, source="specdash", text=Safe("memory back at idle: 4 of 4 GPUs")))
    out.append(
        LogLine(
            t=T0 - 4,
            source="service",
            text=Safe("[02:42:51] The server is fired up and ready to roll!"),
        )
    )
    return out
