"""With an operator there: cancelling, cancelling again, and mistakes of specdash's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from specdash.core.clock import SystemClock, wait_until
from specdash.core.errors import WorkFailedError
from specdash.core.events import (
    CycleEnded,
    Event,
    GpusSampled,
    LogLine,
    Notice,
    StageStarted,
    StatusChanged,
)
from specdash.core.ports import Question
from specdash.core.records import CycleRecord, StageName
from specdash.core.settings import Candidate
from specdash.demo.faults import Fault

from .conftest import Bench, Opened


async def until(condition: Callable[[], bool]) -> None:
    async def probe() -> bool | None:
        return condition() or None

    await wait_until(probe, clock=SystemClock(), deadline_s=75.0, every_s=0.01)


def ended(bench: Bench) -> list[CycleRecord]:
    return [event.record for event in bench.events if isinstance(event, CycleEnded)]


def attended(bench: Bench) -> None:
    bench.session._unattended = False


class Silent:
    """Implements ``Decide``: an operator who never answers. ``waiting`` is what is asked."""

    def __init__(self) -> None:
        self.waiting: list[Question] = []

    async def ask(self, question: Question) -> bool:
        self.waiting.append(question)
        await asyncio.Event().wait()
        return False


STAGES: tuple[StageName, ...] = (
    "preflight",
    "stop",
    "free",
    "write",
    "start",
    "load",
    "verify",
    "measure",
)


@pytest.mark.parametrize("stage", STAGES)
async def test_a_cancel_at_any_stage_leaves_a_named_state_that_is_true(
    open_box: Opened, stage: StageName
) -> None:
    bench = await open_box(steps=2, yes=("run-plan",))
    attended(bench)
    before = bench.config()
    cancelling: list[asyncio.Future[None]] = []

    def look(event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == stage and not cancelling:
            cancelling.append(asyncio.ensure_future(bench.session.cancel()))

    bench.session._hub.observe(look)
    bench.session.submit(Candidate(4), concurrency=(1,))
    bench.session.submit(Candidate(5), concurrency=(1,))
    await until(lambda: bool(ended(bench)))
    await cancelling[0]
    (record,) = ended(bench)
    assert record.outcome == "cancelled"
    assert bench.session.queue == (), "a cancel is no way to start the next one"
    assert not bench.session.busy
    state = record.end_state
    if stage == "preflight" or (stage == "stop" and "untouched" in state):
        # Whether the rig was read, or the stop sent, is a matter of milliseconds.
        assert state.endswith("untouched") or state.startswith("untouched")
    elif stage == "measure":
        assert state == "running, steps 4/1/5"
    else:
        assert state == "stopped, config says steps 2/1/3"
    if stage != "measure":
        assert bench.config() == before
    await until(lambda: _status(bench) == ("active" if "stopped" not in state else "inactive"))


def _status(bench: Bench) -> str:
    seen = [event for event in bench.events if isinstance(event, StatusChanged)]
    return seen[-1].service.state if seen else ""


async def test_a_second_cancel_answers_the_question_with_no(open_box: Opened) -> None:
    bench = await open_box(Fault.CRASH_ON_LOAD, steps=2)
    attended(bench)
    silent = Silent()
    object.__setattr__(bench.session._world, "decide", silent)
    before = bench.config()
    bench.session.submit(Candidate(4), concurrency=(1,))
    await until(lambda: bool(silent.waiting))
    assert silent.waiting[0].kind == "restore"
    await bench.session.cancel()
    (record,) = ended(bench)
    assert record.outcome == "failed"
    assert record.end_state == "stopped, config says steps 2/1/3"
    assert bench.config() == before


async def test_a_second_cancel_does_not_wait_for_the_old_service(open_box: Opened) -> None:
    bench = await open_box(Fault.NEVER_READY, steps=2)
    attended(bench)
    before = bench.config()
    bench.session.submit(Candidate(4), concurrency=(1,))
    starting = "starting the service with the last good config"

    def said() -> bool:
        return any(isinstance(e, LogLine) and e.text == starting for e in bench.events)

    await until(said)
    await bench.session.cancel()
    (record,) = ended(bench)
    assert record.end_state.endswith(
        "config says steps 2/1/3; not waited for until it was ready"
    ), record.end_state
    assert bench.config() == before


async def test_impatient_cancels_never_leave_the_config_half_way(open_box: Opened) -> None:
    bench = await open_box(steps=2, yes=("run-plan",))
    attended(bench)
    before = bench.config()
    bench.session.submit(Candidate(4), concurrency=(1,))
    await until(
        lambda: any(isinstance(e, StageStarted) and e.stage == "load" for e in bench.events)
    )
    await asyncio.gather(*(bench.session.cancel() for _ in range(5)))
    (record,) = ended(bench)
    assert record.end_state == "stopped, config says steps 2/1/3"
    assert bench.config() == before


async def test_a_mistake_on_the_way_back_is_told_and_the_cycle_ends(
    open_box: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await open_box(Fault.CRASH_ON_LOAD, steps=2)

    async def broken(*_: object) -> None:
        raise KeyError("not foreseen")

    monkeypatch.setattr("specdash.cycle.back.put_back", broken)
    record = (await bench.cycle(4)).record
    assert record.end_state.startswith("unknown: the way back failed")
    said = [event for event in bench.events if isinstance(event, Notice)]
    assert any("not foreseen" in line for event in said for line in event.evidence)
    assert not any("Traceback" in str(event) for event in said)


async def test_a_journal_that_fails_at_the_end_does_not_hide_the_end(
    open_box: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await open_box(steps=2)
    journal = bench.session._world.journal
    write = journal.write

    async def full(kind: str, **data: object) -> None:
        if kind == "ended":
            raise WorkFailedError("The journal cannot be written: no space left.")
        await write(kind, **data)

    monkeypatch.setattr(journal, "write", full)
    assert (await bench.cycle(None)).record.outcome == "measured"
    assert ended(bench)
    assert any(isinstance(e, Notice) and "no space left" in e.message for e in bench.events)


@pytest.mark.parametrize("name", ["_status", "_gpus", "_log"])
async def test_a_stream_that_breaks_says_so_once_and_comes_back(
    open_box: Opened, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    bench = await open_box(steps=2)
    streams = bench.session._live
    await streams.stop()
    body = getattr(streams, name)
    left = 2

    async def broken() -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise ZeroDivisionError("not foreseen")
        await body()

    monkeypatch.setattr(streams, name, broken)
    bench.events.clear()
    streams.start()
    wanted = {"_status": StatusChanged, "_gpus": GpusSampled, "_log": LogLine}[name]
    bench.fault()
    await until(lambda: left < 0)
    if name != "_log":
        await until(lambda: any(isinstance(event, wanted) for event in bench.events))
    said = [event for event in bench.events if isinstance(event, Notice)]
    assert len(said) == 1
    assert said[0].level == "error"
    assert "not foreseen" in said[0].evidence[0]
    (journal,) = bench.state.rglob("*.jsonl")
    assert "Traceback" in journal.read_text()


async def test_a_config_that_cannot_be_read_is_a_message_and_the_link_stays_up(
    open_box: Opened,
) -> None:
    bench = await open_box(steps=2)
    path = bench.session.rig.config.path
    bench.session._live._config_due = 0.0
    data = bench.config()
    with open(path, "wb") as file:  # noqa: ASYNC230, PTH123
        file.write(b"[Service]\nExecStart=/bin/true 'never closed\n")
    bench.session._live._config_due = 0.0
    await until(lambda: any(isinstance(e, Notice) for e in bench.events))
    seen = [event for event in bench.events if isinstance(event, StatusChanged)]
    await until(lambda: len([e for e in bench.events if isinstance(e, StatusChanged)]) > len(seen))
    with open(path, "wb") as file:  # noqa: ASYNC230, PTH123
        file.write(data)
