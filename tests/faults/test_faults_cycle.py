"""Every fault ends in a sentence, a remedy and a rig in a named state."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from specdash.core.events import CellMeasured, CommandRan, CycleEnded, StageEnded, StageStarted
from specdash.core.records import STAGES
from specdash.core.settings import Candidate
from specdash.cycle.runner import Ask, Cycle
from specdash.demo.faults import Fault
from specdash.hosts.options import SshOptions
from specdash.rig.schema import CleanSpec, SafetySpec
from specdash.rig.store import places
from specdash.session.session import RigSession
from specdash.session.wiring import Wiring

from .conftest import Bench, Opened


async def test_a_cycle_measures_what_was_asked(open_box: Opened) -> None:
    bench = await open_box()
    before = bench.config()
    result = await bench.cycle(4)
    record = result.record
    assert record.outcome == "measured", record.failure
    assert record.simulated
    assert record.resolved is not None
    assert record.resolved.short() == "4/1/5"
    assert [stage.name for stage in record.stages] == list(STAGES)
    assert {stage.state for stage in record.stages} == {"done"}
    (cell,) = record.cells
    assert cell.requests.ok > 0
    assert cell.requests.failed == 0
    assert cell.output_tok_s is not None
    assert cell.accept_length is not None
    assert 1 <= cell.accept_length <= 5
    assert len(record.gpu_peak_mib) == 4
    assert min(record.gpu_peak_mib) > 50_000
    assert max(record.gpu_idle_mib) < 1024
    after = bench.config()
    assert after == before.replace(b"num-steps 1", b"num-steps 4").replace(
        b"num-draft-tokens 2", b"num-draft-tokens 5"
    )
    assert record.end_state == "running, steps 4/1/5"


async def test_the_journal_knows_each_act_before_it_is_done(open_box: Opened) -> None:
    bench = await open_box()
    await bench.cycle(2)
    (journal,) = bench.state.rglob("*.jsonl")
    kinds = [json.loads(line)["kind"] for line in journal.read_text().splitlines()]
    assert kinds.index("stop") < kinds.index("write") < kinds.index("cell") < kinds.index("ended")


async def test_results_are_there_at_the_next_start(open_box: Opened) -> None:
    bench = await open_box()
    result = await bench.cycle(2)
    again = await open_box()
    (old,) = again.session.results
    assert old.cells == result.record.cells
    assert old.id is not None


async def test_the_baseline_and_back_restores_the_bytes(open_box: Opened) -> None:
    bench = await open_box(steps=3)
    before = bench.config()
    off = await bench.cycle(0)
    assert off.record.outcome == "measured", off.record.failure
    assert b"speculative" not in bench.config()
    on = await bench.cycle(3)
    assert on.record.outcome == "measured", on.record.failure
    assert bench.config() == before


async def test_measure_only_restarts_nothing(open_box: Opened) -> None:
    bench = await open_box(steps=3)
    result = await bench.cycle(None)
    assert result.record.outcome == "measured", result.record.failure
    assert result.record.measure_only
    assert result.record.resolved is not None
    assert result.record.resolved.num_steps == 3
    assert "not-fresh" in result.record.cells[0].flags
    ran = [event.argv for event in bench.events if isinstance(event, CommandRan)]
    assert not [argv for argv in ran if argv[:2] in (("systemctl", "stop"), ("systemctl", "start"))]


@pytest.mark.parametrize(
    ("fault", "code"), [(Fault.DRIVER_MISMATCH, "driver-mismatch"), (Fault.GPU_LOST, "gpu-lost")]
)
async def test_gpus_that_cannot_be_read_leave_the_service_alone(
    open_box: Opened, fault: Fault, code: str
) -> None:
    bench = await open_box(steps=2)
    bench.fault(fault)
    result = await bench.cycle(4)
    assert result.record.failure is not None
    assert result.record.failure.stage == "preflight"
    assert result.error is not None
    assert result.error.code == code
    assert "None" not in result.error.message
    assert result.record.end_state == "running, steps 2/1/3, untouched"


@pytest.mark.parametrize(
    ("fault", "stage", "says"),
    [
        (Fault.OOM_ON_LOAD, "load", "memory"),
        (Fault.NOT_ENOUGH_MEMORY, "load", "memory"),
        (Fault.CRASH_ON_LOAD, "load", ""),
        (Fault.NEVER_READY, "load", "not ready"),
        (Fault.LOAD_STALLS, "load", "not ready"),
        (Fault.IGNORES_DEPTH, "verify", "3"),
        (Fault.GENERATE_500, "verify", "generation"),
        (Fault.GENERATE_HANGS, "verify", "generation"),
    ],
)
async def test_a_failed_start_brings_the_last_good_config_back(
    open_box: Opened, fault: Fault, stage: str, says: str
) -> None:
    bench = await open_box(steps=2)
    before = bench.config()
    bench.fault(fault)

    # The old service would fail the same way; the fault goes when the new one has shown it.
    def heal(event: object) -> None:
        if isinstance(event, StageEnded) and event.state == "failed":
            bench.fault()

    bench.session._hub.observe(heal)
    result = await bench.cycle(4)
    record = result.record
    assert record.outcome == "failed"
    assert record.failure is not None
    assert record.failure.stage == stage
    assert says in record.failure.cause
    assert record.failure.remedy
    assert bench.config() == before
    assert record.end_state == "running, steps 2/1/3, restored"
    assert (await bench.cycle(None)).record.resolved.num_steps == 2  # type: ignore[union-attr]


async def test_where_the_old_service_cannot_come_back_the_rig_is_named_stopped(
    open_box: Opened,
) -> None:
    bench = await open_box(steps=2)
    before = bench.config()
    bench.fault(Fault.CRASH_ON_LOAD)
    record = (await bench.cycle(4)).record
    assert record.outcome == "failed"
    assert bench.config() == before
    state, _, why = record.end_state.partition("; it did not come up again: ")
    assert why
    # The unit restarts on failure: it may be between two attempts or in one.
    assert state in {
        f"{name}, config says steps 2/1/3"
        for name in ("stopped", "started, active", "started, activating", "started, deactivating")
    }


async def test_attended_the_restart_is_asked(open_box: Opened) -> None:
    bench = await open_box(Fault.CRASH_ON_LOAD, yes=("run-plan",), steps=2)
    record = (await bench.cycle(4, unattended=False)).record
    assert "restore" in bench.answers.kinds()
    assert record.end_state == "stopped, config says steps 2/1/3"


async def test_an_orphan_is_reaped_and_named(open_box: Opened) -> None:
    bench = await open_box(Fault.ORPHAN_SCHEDULER)
    record = (await bench.cycle(3)).record
    assert record.outcome == "measured", record.failure
    reap = next(stage for stage in record.stages if stage.name == "reap")
    assert "ended" in reap.detail


async def test_an_orphan_that_ignores_sigterm_is_killed_after_its_grace(open_box: Opened) -> None:
    bench = await open_box(Fault.STUBBORN_ORPHAN)
    record = (await bench.cycle(3)).record
    assert record.outcome == "measured", record.failure


async def test_a_stop_that_hangs_is_named_and_nothing_is_written(open_box: Opened) -> None:
    bench = await open_box(Fault.STOP_HANGS)
    before = bench.config()
    record = (await bench.cycle(3)).record
    if record.outcome == "failed":
        assert record.failure is not None
        assert record.failure.stage == "stop"
    assert record.outcome == "measured" or bench.config() == before


async def test_a_foreign_holder_is_named_and_never_touched(open_box: Opened) -> None:
    bench = await open_box(Fault.FOREIGN_HOLDER, steps=2)
    before = bench.config()
    record = (await bench.cycle(3)).record
    assert record.outcome == "failed"
    assert record.failure is not None
    assert record.failure.stage == "free"
    assert "--force-free" in record.failure.remedy
    assert record.failure.evidence
    assert bench.config() == before
    assert "force-free" in bench.answers.kinds()
    signalled = [e.argv for e in bench.events if isinstance(e, CommandRan) and "TERM" in e.argv]
    assert not signalled


async def test_a_foreign_holder_goes_with_a_yes_of_its_own(open_box: Opened) -> None:
    bench = await open_box(Fault.FOREIGN_HOLDER, yes=("run-plan", "force-free", "restore"))
    record = (await bench.cycle(3)).record
    assert record.outcome == "measured", record.failure


async def test_memory_that_does_not_come_back_stops_before_the_write(open_box: Opened) -> None:
    bench = await open_box(Fault.MEMORY_STUCK, steps=2)
    before = bench.config()
    record = (await bench.cycle(3)).record
    assert record.outcome == "failed"
    assert record.failure is not None
    assert record.failure.stage == "free"
    assert bench.config() == before
    assert record.end_state.startswith("stopped")


@pytest.mark.parametrize("fault", [Fault.CONFIG_READ_ONLY, Fault.UNIT_PARSE_ERROR])
async def test_a_config_that_cannot_be_put_in_place(open_box: Opened, fault: Fault) -> None:
    bench = await open_box(steps=2)
    before = bench.config()
    bench.fault(fault)

    def heal(event: object) -> None:
        if isinstance(event, StageEnded) and event.state == "failed":
            bench.fault()

    bench.session._hub.observe(heal)
    record = (await bench.cycle(3)).record
    assert record.outcome == "failed"
    assert bench.config() == before
    assert record.end_state.startswith(("running, steps 2/1/3", "untouched"))
    again = (await bench.cycle(None)).record
    assert again.outcome == "measured", again.failure


@pytest.mark.parametrize(
    "fault",
    [Fault.STREAM_STALLS, Fault.STREAM_CUT, Fault.BROKEN_SSE],
)
async def test_failed_requests_are_counted_and_the_config_stays(
    open_box: Opened, fault: Fault
) -> None:
    bench = await open_box(steps=2)

    def break_it(event: object) -> None:
        if isinstance(event, StageStarted) and event.stage == "measure":
            bench.fault(fault)

    bench.session._hub.observe(break_it)
    async with asyncio.timeout(100):
        record = (await bench.cycle(3)).record
    assert record.outcome == "failed"
    assert record.failure is not None
    assert record.failure.stage == "measure"
    (cell,) = record.cells
    assert "failed" in cell.flags
    assert cell.requests.failed > 0
    assert cell.requests.errors
    assert cell.output_tok_s is None
    assert record.end_state == "running, steps 3/1/4"


async def test_one_bad_cell_leaves_the_others_standing(open_box: Opened) -> None:
    bench = await open_box(steps=2)

    def break_it(event: object) -> None:
        if isinstance(event, CellMeasured):
            bench.fault(Fault.GENERATE_500)

    bench.session._hub.observe(break_it)
    record = (await bench.cycle(3, concurrency=(1, 4))).record
    assert record.outcome == "measured"
    good, bad = record.cells
    assert good.requests.failed == 0
    assert "failed" in bad.flags
    assert bad.requests.errors.get("http-500", 0) > 0


@pytest.mark.parametrize("stage", STAGES)
async def test_cancelling_at_any_stage_leaves_a_named_state(open_box: Opened, stage: str) -> None:
    bench = await open_box(steps=2)
    before = bench.config()
    cycle = asyncio.create_task(bench.cycle(5))

    def cancel(event: object) -> None:
        if isinstance(event, StageStarted) and event.stage == stage:
            assert bench.session._cycle_task is not None
            bench.session._cycle_task.cancel()

    forget = bench.session._hub.observe(cancel)
    record = (await cycle).record
    forget()
    assert record.outcome == "cancelled"
    assert record.failure is not None
    assert record.failure.stage == stage
    states = {
        "preflight": "untouched: the rig was not read to its end",
        "stop": "running, steps 2/1/3, untouched",
        "measure": "running, steps 5/1/6",
    }
    assert record.end_state == states.get(stage, "running, steps 2/1/3, restored")
    if stage != "measure":
        assert bench.config() == before
    ended = [event for event in bench.events if isinstance(event, CycleEnded)]
    assert len(ended) == 1
    assert leftovers(bench) == []
    check = (await bench.cycle(None)).record
    assert check.outcome == "measured", check.failure


async def test_cancelling_at_any_moment_leaves_a_named_state_and_no_litter(
    open_box: Opened,
) -> None:
    bench = await open_box(steps=2)
    before = bench.config()
    named = (
        "untouched",
        "running, steps 2/1/3, untouched",
        "running, steps 2/1/3, restored",
        "running, steps 5/1/6",
        "running, steps 2/1/3",
    )
    for tenths in range(1, 30, 3):
        cycle = asyncio.create_task(bench.cycle(5 if bench.config() == before else 2))
        await asyncio.sleep(tenths / 10)
        await bench.session.cancel()
        record = (await cycle).record
        assert record.end_state.startswith(named), record.end_state
        assert leftovers(bench) == []
        assert b"--speculative-num-steps" in bench.config()


async def test_what_somebody_else_wrote_meanwhile_is_left_alone(open_box: Opened) -> None:
    bench = await open_box(Fault.CRASH_ON_LOAD, steps=2)
    theirs = b"# somebody else was here\n"

    def meddle(event: object) -> None:
        if isinstance(event, StageStarted) and event.stage == "start":
            path = Path(bench.session.rig.config.path)
            path.write_bytes(path.read_bytes() + theirs)

    bench.session._hub.observe(meddle)
    record = (await bench.cycle(4)).record
    assert record.outcome == "failed"
    assert bench.config().endswith(theirs)
    assert "somebody else" in record.end_state


async def test_the_old_config_is_kept_on_the_operators_machine(open_box: Opened) -> None:
    bench = await open_box()
    before = bench.config()
    for steps in (2, 1, 2):
        await bench.cycle(steps)
    kept = [path for path in (bench.state).rglob("backups/**/*") if path.is_file()]
    assert before in [path.read_bytes() for path in kept]
    assert len(kept) == 2
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept)
    assert leftovers(bench) == []


async def test_a_url_that_does_not_lead_to_the_service_stops_nothing(open_box: Opened) -> None:
    bench = await open_box()
    engine = bench.session.rig.engine
    elsewhere = replace(engine, url=engine.url.replace("127.0.0.1", "127.0.0.2"))
    fixed = replace(bench.session.rig, engine=elsewhere)
    wiring = Wiring(fixed, SshOptions(config_files=(bench.box.ssh_config,)), os.environ)
    session = RigSession(wiring, decide=bench.answers, places=places(os.environ), unattended=True)
    try:
        result = await session.run_cycle(Ask(Candidate(4), (1,), unattended=True))
    finally:
        await session.close()
    assert result.error is not None
    assert result.error.exit_code == 3
    assert result.error.code == "endpoint-unreachable"
    assert result.record.failure is not None
    assert result.record.failure.stage == "preflight"
    assert (await bench.cycle(None)).record.outcome == "measured"


@pytest.mark.parametrize("stage", ["stop", "write", "load"])
async def test_a_link_that_drops_and_comes_back_still_finds_the_way_back(
    open_box: Opened, stage: str
) -> None:
    bench = await open_box(steps=2)
    before = bench.config()

    def drop(event: object) -> None:
        if isinstance(event, StageStarted) and event.stage == stage:
            bench.fault(Fault.LINK_DROPS)
        if isinstance(event, StageEnded) and event.state == "failed":
            bench.fault()

    forget = bench.session._hub.observe(drop)
    record = (await bench.cycle(4)).record
    forget()
    bench.fault()
    if record.outcome == "failed":
        assert bench.config() == before
        assert record.end_state.startswith("running, steps 2/1/3")
    else:
        assert record.end_state == "running, steps 4/1/5"
    # A link that is lost in the middle of the write may leave the copy of the old config there.
    assert all("specdash-backup" in name for name in leftovers(bench))


async def test_a_locked_rig_is_refused_and_names_who_holds_it(open_box: Opened) -> None:
    bench = await open_box()
    locked = asyncio.Event()

    def see(event: object) -> None:
        if isinstance(event, StageStarted) and event.stage == "stop":
            locked.set()

    bench.session._hub.observe(see)
    first = asyncio.create_task(bench.cycle(3))
    await locked.wait()
    world = replace(bench.session._world, operator="ann@desk (specdash pid 1)")
    second = await Cycle(world, Ask(Candidate(2), (1,))).run()
    assert second.record.outcome == "refused"
    assert second.error is not None
    assert second.error.exit_code == 4
    assert "(specdash pid " in second.error.message
    assert "ann@desk" not in second.error.message
    assert (await first).record.outcome == "measured"


async def test_cycles_one_right_after_the_other_do_not_lock_each_other_out(
    open_box: Opened,
) -> None:
    bench = await open_box()
    for _ in range(3):
        record = (await bench.cycle(None)).record
        assert record.outcome == "measured", record.failure


async def test_read_only_and_protected_rigs(open_box: Opened) -> None:
    locked = await open_box(safety=SafetySpec(read_only=True))
    refused = await locked.cycle(3)
    assert refused.record.outcome == "refused"
    assert refused.error is not None
    assert refused.error.exit_code == 4
    assert refused.record.end_state.endswith("untouched")
    protected = await open_box(safety=SafetySpec(protected=True))
    assert (await protected.cycle(3)).record.outcome == "refused"
    assert protected.answers.asked[0].type_to_confirm == protected.session.rig.name


async def test_without_a_yes_nothing_runs(open_box: Opened) -> None:
    bench = await open_box(yes=())
    before = bench.config()
    result = await bench.cycle(3)
    assert result.record.outcome == "refused"
    ran = [event.argv for event in bench.events if isinstance(event, CommandRan)]
    assert not [argv for argv in ran if argv[:2] == ("systemctl", "stop")]
    assert bench.config() == before


async def test_an_illegal_candidate_is_refused_before_anything_stops(open_box: Opened) -> None:
    bench = await open_box()
    result = await bench.session.run_cycle(Ask(Candidate(3, 1, 9), (1,), unattended=True))
    assert result.record.outcome in ("refused", "measured")
    result = await bench.session.run_cycle(Ask(Candidate(2, 2, 500), (1,), unattended=True))
    assert result.record.outcome == "refused"
    assert result.record.end_state.endswith("untouched")


async def test_force_free_of_the_rig_file_needs_no_question(open_box: Opened) -> None:
    probe = await open_box(Fault.FOREIGN_HOLDER)
    name = next(q.subject for q in [*(await _asked(probe))] if q.kind == "force-free")
    bench = await open_box(
        Fault.FOREIGN_HOLDER, clean=replace(probe.session.rig.clean, force_free=(name,))
    )
    record = (await bench.cycle(3)).record
    assert record.outcome == "measured", record.failure
    assert "force-free" not in bench.answers.kinds()
    assert isinstance(bench.session.rig.clean, CleanSpec)


def leftovers(bench: Bench) -> list[str]:
    """Files of specdash that are left beside the launch config."""
    folder = Path(bench.session.rig.config.path).parent
    return [path.name for path in folder.rglob("*") if "specdash" in path.name]


async def _asked(bench):  # type: ignore[no-untyped-def]
    await bench.cycle(3)
    return bench.answers.asked


async def test_a_box_opened_by_its_rig_file_is_still_simulated(open_box: Opened) -> None:
    bench = await open_box(simulated=False)
    result = await bench.cycle(2)
    assert result.record.simulated
    assert (await bench.cycle(None)).record.simulated


async def test_a_mistake_of_our_own_still_brings_the_rig_back(
    open_box: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await open_box(steps=2)
    before = bench.config()

    async def broken(*_: object) -> None:
        raise ZeroDivisionError("not foreseen")

    monkeypatch.setattr("specdash.cycle.runner.load", broken)
    record = (await bench.cycle(4)).record
    assert record.outcome == "failed"
    assert record.failure is not None
    assert record.failure.stage == "load"
    assert "not foreseen" in record.failure.evidence[0]
    assert bench.config() == before
    assert record.end_state == "running, steps 2/1/3, restored"
    (journal,) = bench.state.rglob("*.jsonl")
    assert "Traceback" in journal.read_text()
