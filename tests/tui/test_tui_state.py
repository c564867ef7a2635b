"""The reducer: events in, one frozen view out."""

from __future__ import annotations

from dataclasses import replace

import fake_session as fake
import pytest

from specdash.core.events import (
    CellMeasured,
    CellProgress,
    CellStarted,
    CycleEnded,
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
)
from specdash.core.gpu import Gpu, Snapshot
from specdash.core.records import RequestCounts
from specdash.core.settings import Candidate
from specdash.core.text import Safe
from specdash.tui.state import MAX_POINTS, MAX_SAMPLES, View, reduce

T0 = fake.T0


def after(events: list[Event], view: View | None = None) -> View:
    view = view or View(Safe("rig"))
    for event in events:
        view = reduce(view, event)
    return view


def test_a_link_keeps_its_place_when_it_changes() -> None:
    view = after([*fake.LINKS, LinkChanged(t=T0, host="svc", state="lost", message=Safe("gone"))])
    assert [(link.host, link.state) for link in view.links] == [("svc", "lost"), ("node", "up")]
    assert view.links[0].since == T0


def test_stages_run_and_end_with_their_seconds() -> None:
    view = after(fake.cycle_start(4))
    assert view.cycle is not None
    assert [stage.state for stage in view.cycle.stages] == ["pending"] * 10
    view = after(
        [
            StageStarted(t=T0, stage="stop", deadline_s=120.0),
            StageNote(t=T0 + 1, stage="stop", detail=Safe("port 30000 still open")),
        ],
        view,
    )
    assert view.cycle is not None
    current = view.cycle.current
    assert current is not None
    assert (current.name, current.deadline_s, current.detail) == (
        "stop",
        120.0,
        "port 30000 still open",
    )
    view = after([StageEnded(t=T0 + 3, stage="stop", state="done", seconds=3.0)], view)
    assert view.cycle is not None
    assert view.cycle.current is None
    done = view.cycle.stage("stop")
    assert done is not None
    assert (done.state, done.seconds) == ("done", 3.0)
    assert [name for _, name in view.gpus.marks] == ["stop"]


def test_measure_only_has_one_stage() -> None:
    start = fake.cycle_start(4)[0]
    view = after([replace(start, measure_only=True)])  # type: ignore[type-var]
    assert view.cycle is not None
    assert [stage.name for stage in view.cycle.stages] == ["measure"]


def test_events_of_a_cycle_without_its_start_change_nothing() -> None:
    view = View(Safe("rig"))
    for event in (
        StageStarted(t=T0, stage="stop"),
        StageNote(t=T0, stage="stop", detail=Safe("")),
        StageEnded(t=T0, stage="stop", state="done", seconds=1.0),
        LoadProgress(t=T0, phase="weights"),
        CellStarted(t=T0, concurrency=1),
        CellMeasured(t=T0, cell=fake.cell(1, 1)),
    ):
        assert reduce(view, event) is view


def test_gpu_history_is_kept_across_a_cycle_and_forgotten_after_five_idle_minutes() -> None:
    view = after([fake.gpus([1000, 2000], t=T0 + i) for i in range(400)])
    history = view.gpus.history[fake.UUIDS[0]]
    assert history[-1] == (T0 + 399, 1000.0)
    assert history[0][0] == T0 + 99
    view = after(fake.cycle_start(2, t=T0 + 400), view)
    view = after([fake.gpus([500, 500], t=T0 + 400 + i) for i in range(700)], view)
    history = view.gpus.history[fake.UUIDS[0]]
    assert history[0][0] == T0 + 390, "the cycle's own history stays whole"
    assert view.gpus.peaks[fake.UUIDS[0]] == 500, "peaks are of this cycle"


def test_an_unknown_reading_stays_unknown() -> None:
    snapshot = Snapshot("node", (Gpu(index=None, uuid=None), Gpu(index=3)))
    view = after([GpusSampled(t=T0, snapshot=snapshot)])
    assert view.gpus.history == {"@0": ((T0, None),), "#3": ((T0, None),)}
    assert view.gpus.peaks == {}


def test_gpu_history_is_bounded() -> None:
    view = after(fake.cycle_start(4))
    view = after([fake.gpus([i], t=T0 + i / 2) for i in range(3 * MAX_SAMPLES)], view)
    history = view.gpus.history[fake.UUIDS[0]]
    assert len(history) <= MAX_SAMPLES
    assert history[0][0] < T0 + 10, "thinned, not cut off"
    assert history == tuple(sorted(history))


def test_cell_points_are_relative_to_the_cell_and_bounded() -> None:
    view = after([*fake.cycle_start(4), *fake.measuring(4, 4)])
    assert view.cycle is not None
    cell = view.cycle.cell
    assert cell is not None
    assert cell.points[0].t == 0.0
    assert cell.points[0].warming
    assert not cell.points[-1].warming
    progress = cell.progress
    assert progress is not None
    view = after([replace(progress, t=progress.t + i / 10) for i in range(3 * MAX_POINTS)], view)
    assert view.cycle is not None
    assert view.cycle.cell is not None
    assert len(view.cycle.cell.points) <= MAX_POINTS


def test_progress_without_a_start_starts_a_cell() -> None:
    progress = fake.measuring(4, 16)[-1]
    assert isinstance(progress, CellProgress)
    view = after([*fake.cycle_start(4), progress])
    assert view.cycle is not None
    assert view.cycle.cell is not None
    assert view.cycle.cell.concurrency == 16
    assert view.cycle.cell.started == progress.t - progress.elapsed_s


def test_a_cell_measured_again_replaces_itself() -> None:
    view = after(
        [
            *fake.cycle_start(4),
            CellStarted(t=T0, concurrency=1),
            CellMeasured(t=T0, cell=fake.cell(3, 1)),
            CellMeasured(t=T0, cell=fake.cell(4, 1)),
            CellMeasured(t=T0, cell=fake.cell(4, 4)),
        ]
    )
    assert view.cycle is not None
    assert [cell.concurrency for cell in view.cycle.cells] == [1, 4]
    assert view.cycle.cells[0].output_tok_s == fake.SPEED[4]
    assert view.cycle.cell is not None
    assert view.cycle.cell.measured == fake.cell(4, 1)


def test_a_cycle_ends_once_and_enters_the_results_once() -> None:
    record = fake.record(4, t=T0)
    view = after([*fake.cycle_start(4), CycleEnded(t=T0 + 60, record=record)])
    assert not view.running
    assert view.results == (record,)
    assert after([CycleEnded(t=T0 + 61, record=record)], view).results == (record,)


@pytest.mark.parametrize(
    ("outcome", "level"), [("failed", "error"), ("cancelled", "warning"), ("refused", "error")]
)
def test_a_cycle_that_did_not_measure_says_so(outcome: str, level: str) -> None:
    record = replace(fake.record(4, t=T0), outcome=outcome, cells=())  # type: ignore[arg-type]
    view = after([*fake.cycle_start(4), CycleEnded(t=T0, record=record)])
    assert view.notice is not None
    assert view.notice.level == level
    assert record.end_state in view.notice.remedy


def test_a_failure_becomes_a_notice_with_its_evidence() -> None:
    view = after(fake.failed())
    assert view.notice is not None
    assert view.notice.message.startswith("load failed: the engine ran out of GPU memory")
    assert len(view.notice.evidence) == 3
    assert view.failure is not None


def test_the_next_cycle_clears_the_old_message() -> None:
    view = after(fake.failed())
    assert after(fake.cycle_start(3), view).notice is None


def test_the_queue_and_the_notice_are_the_last_ones() -> None:
    notice = Notice(t=T0, level="info", message=Safe("hello"))
    queue = (Candidate(5), Candidate(0))
    view = after([QueueChanged(t=T0, queue=queue), notice])
    assert (view.queue, view.notice) == (queue, notice)


def test_what_the_way_back_waits_for_does_not_hide_why_a_stage_failed() -> None:
    view = after(
        [
            *fake.cycle_start(4),
            StageStarted(t=T0, stage="load"),
            StageEnded(t=T0 + 5, stage="load", state="failed", seconds=5.0, detail=Safe("OOM")),
            StageNote(t=T0 + 6, stage="load", detail=Safe("unit is deactivating")),
        ]
    )
    assert view.cycle is not None
    assert view.cycle.winding_down
    assert view.cycle.ended_badly is not None
    assert view.cycle.ended_badly.detail == "OOM"
    assert view.cycle.back == "unit is deactivating"
    view = reduce(view, LogLine(t=T0 + 7, source="specdash", text=Safe("putting it back")))
    assert view.cycle is not None
    assert view.cycle.back == "putting it back"


def test_a_lost_link_counts_from_its_first_failure() -> None:
    first = LinkChanged(t=T0, host="svc", state="lost", message=Safe("a"))
    view = after([first, replace(first, t=T0 + 9, message=Safe("b"))])
    assert view.links[0].since == T0
    assert view.links[0].message == "b"


def test_failed_requests_of_a_measured_cycle_are_said_with_their_causes() -> None:
    record = fake.record(4, t=T0)
    bad = replace(
        record.cells[-1], requests=RequestCounts(ok=1, failed=3, errors={"x": 1, "http-500": 2})
    )
    view = after([CycleEnded(t=T0, record=replace(record, cells=(*record.cells[:-1], bad)))])
    assert view.notice is not None
    assert view.notice.level == "warning"
    assert view.notice.evidence == ("at 16: 3 of 4 failed: http-500 × 2, x × 1",)
    assert after([CycleEnded(t=T0, record=record)]).notice is None
