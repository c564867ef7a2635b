"""Text from outside can neither style nor control the terminal, wherever it is shown."""

from __future__ import annotations

import asyncio
import unicodedata
from dataclasses import replace

import fake_session as fake
import pytest
from cockpit_scenes import settle
from textual import events
from textual.widgets import Input

from specdash.core.errors import WorkFailedError
from specdash.core.events import (
    CommandRan,
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
    StatusChanged,
)
from specdash.core.gpu import Gpu, GpuProcess, Problem, Snapshot
from specdash.core.plan import Plan, PlannedStage, PlannedWrite, Refusal
from specdash.core.ports import Question
from specdash.core.records import Failure
from specdash.core.service import ServiceStatus
from specdash.core.settings import Candidate, Resolution, Settings
from specdash.core.text import make_safe
from specdash.session.port import CandidateCheck, EngineWords
from specdash.tui.app import CockpitApp
from specdash.tui.themes import load_themes

HOSTILE = (
    "overwritten\r[/] [/foo] [b]x [GPU requires reset] [@click=app.quit]q[/] $primary "
    "\x1b]52;c;QUFBQQ==\x07\x1b[2J\x1b[31m\x9b1m\x9d52;c;AA\x9c\x85\x00\x7f\u202eevil\u2066"
)
SAFE = make_safe(HOSTILE)
BAD_SETTINGS = Settings(HOSTILE, 3, 1, 4, HOSTILE, True)
T0 = fake.T0


def hostile_events() -> list[Event]:
    status = ServiceStatus(
        HOSTILE, "active", HOSTILE, 1, HOSTILE, HOSTILE, 3, HOSTILE, 1, True, HOSTILE
    )
    gpus = (
        Gpu(0, "GPU-0", HOSTILE, 1000, 500, throttle_reasons=(HOSTILE,), pstate=HOSTILE),
        Gpu(1, HOSTILE, HOSTILE, 1000, 500, state="lost"),
    )
    holders = (GpuProcess("GPU-0", 1, HOSTILE, HOSTILE, 3),)
    problems = (Problem("garbled", HOSTILE, HOSTILE),)
    candidate = Candidate(4, note=HOSTILE)
    return [
        LinkChanged(t=T0, host=HOSTILE, state="lost", message=SAFE),
        StatusChanged(t=T0, service=status, now=BAD_SETTINGS, config=BAD_SETTINGS, model=SAFE),
        GpusSampled(t=T0, snapshot=Snapshot(HOSTILE, gpus, holders, problems)),
        *fake.cycle_start(4),
        StageStarted(t=T0, stage="stop"),
        StageNote(t=T0, stage="stop", detail=SAFE),
        StageEnded(t=T0, stage="stop", state="done", seconds=1.0, detail=SAFE),
        StageStarted(t=T0, stage="load"),
        LoadProgress(t=T0, phase="weights", detail=SAFE),
        QueueChanged(t=T0, queue=(candidate,)),
        LogLine(t=T0, source="service", text=SAFE),
        CommandRan(
            t=T0, host=HOSTILE, argv=(HOSTILE, "a b"), exit_status=1, seconds=1, output=SAFE
        ),
        Notice(t=T0, level="error", message=SAFE, remedy=SAFE, evidence=(SAFE,)),
    ]


class HostileSession(fake.FakeSession):
    """Everything this session says is hostile."""

    def check(self, candidate: Candidate, base: Settings | None = None) -> CandidateCheck:
        if candidate.num_steps > 9:
            return CandidateCheck(None, SAFE)
        settings = replace(BAD_SETTINGS, num_steps=candidate.num_steps)
        return CandidateCheck(Resolution(candidate, settings, (HOSTILE,)))

    async def plan(self, candidate: Candidate) -> Plan:
        stage = PlannedStage(
            "write", HOSTILE, ((HOSTILE, "x"),), (PlannedWrite(HOSTILE, f"+{HOSTILE}\n-{HOSTILE}"),)
        )
        return Plan(
            HOSTILE,
            BAD_SETTINGS,
            Resolution(candidate, BAD_SETTINGS, (HOSTILE,)),
            (stage,),
            (Refusal("x", HOSTILE, HOSTILE),),
            (HOSTILE,),
        )


def hostile_app() -> tuple[CockpitApp, HostileSession]:
    record = replace(
        fake.record(3, t=T0, note=HOSTILE),
        resolved=BAD_SETTINGS,
        end_state=HOSTILE,
        failure=Failure("load", HOSTILE, HOSTILE, (HOSTILE,)),
        outcome="failed",
        rig=HOSTILE,
    )
    session = HostileSession(
        hostile_events(),
        rig=fake.make_rig(name=HOSTILE),
        results=[record],
        words=EngineWords(HOSTILE, HOSTILE, True),
    )
    app = CockpitApp(
        session,  # type: ignore[arg-type]
        themes=load_themes().themes,
        theme="night",
        clock=fake.FakeClock(),
    )
    app.animation_level = "none"
    return app, session


def check_screen(app: CockpitApp) -> str:
    text = ""
    for strip in app.screen._compositor.render_strips():
        for segment in strip:
            assert segment.control is None
            text += segment.text
        text += "\n"
    for char in text.replace("\n", ""):
        assert unicodedata.category(char) not in ("Cc", "Cs"), repr(char)
        assert char not in "\u202e\u2066"
    return text


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 40), (200, 60)])
async def test_every_pane_and_dialog_shows_hostile_text_as_text(size: tuple[int, int]) -> None:
    app, session = hostile_app()
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        check_screen(app)
        for key in ("2", "3", "4", "5", "1"):
            await pilot.press(key)
            await settle(pilot)
            check_screen(app)
            await pilot.press("escape")
        for key in ("d", "r", "question_mark", "n", "e", "v", "l"):
            await pilot.press(key)
            await settle(pilot)
            check_screen(app)
            await pilot.press("escape")
            await settle(pilot)
        question = Question("force-free", HOSTILE, (HOSTILE,), None, HOSTILE)
        for item in (question, replace(question, type_to_confirm=HOSTILE)):
            asking = asyncio.ensure_future(app.decide.ask(item))
            await settle(pilot)
            check_screen(app)
            await pilot.press("escape")
            assert await asking is False
        record = replace(
            fake.failed_record(), end_state=HOSTILE, failure=Failure("load", HOSTILE, HOSTILE)
        )
        session.push(CycleEnded(t=T0, record=record))
        await settle(pilot)
        check_screen(app)
        app.fail(WorkFailedError(HOSTILE, remedy=HOSTILE, evidence=(HOSTILE,)))
        app.say(HOSTILE)
        await settle(pilot)
        check_screen(app)
        assert app.is_running


async def test_brackets_survive_where_there_is_room() -> None:
    app, _ = hostile_app()
    async with app.run_test(size=(200, 60)) as pilot:
        await settle(pilot)
        await pilot.press("l")
        await settle(pilot)
        assert (
            "[/] [/foo] [b]x [GPU requires reset] [@click=app.quit]q[/] $primary"
            in check_screen(app)
        )


async def test_what_is_pasted_is_made_safe() -> None:
    app, _ = hostile_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("l", "slash")
        await settle(pilot)
        app.focused.post_message(events.Paste(HOSTILE.split("\r")[1]))  # type: ignore[union-attr]
        await settle(pilot)
        box = app.screen.query_one("#log-filter", Input)
        assert box.value == make_safe(box.value)
        assert "[/foo]" in box.value
        check_screen(app)
