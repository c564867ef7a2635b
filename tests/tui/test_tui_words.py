"""What the cockpit says where a newcomer would otherwise read something that is not so."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import fake_session as fake
from cockpit_scenes import settle
from test_tui_keys import Rig, running

from specdash.core.events import CycleEnded, StageEnded, StageStarted
from specdash.core.plan import Plan
from specdash.core.ports import Question
from specdash.core.records import CycleRecord, Failure
from specdash.core.settings import Candidate
from specdash.tui.dialogs.plan import PlanDialog
from specdash.tui.dialogs.question import QuestionDialog
from specdash.tui.dialogs.simple import ConfirmDialog
from specdash.tui.panes.editor import editor_lines
from specdash.tui.panes.service import service_lines


def cancelled_record() -> CycleRecord:
    return replace(
        fake.failed_record(),
        outcome="cancelled",
        failure=Failure("load", "The cycle was cancelled.", "", ()),
        end_state="stopped, config says steps 3/1/4",
    )


async def plan_that_writes_nothing(candidate: Candidate) -> Plan:
    plan = fake.make_plan(candidate, fake.eagle(3))
    return replace(plan, stages=tuple(replace(stage, writes=()) for stage in plan.stages))


async def end(rig: Rig, record: CycleRecord) -> None:
    rig.session.is_busy = False
    rig.session.push(CycleEnded(t=fake.T0 + 5, record=record))
    await settle(rig.pilot)


async def test_a_restart_that_changes_nothing_is_called_that_and_says_so_first() -> None:
    async with running("idle") as rig:
        rig.session.plan = plan_that_writes_nothing  # type: ignore[method-assign]
        await rig.press("4", "r")
        shown = rig.on_screen
        assert "Restart unchanged: steps 3" in shown
        assert "Nothing changes in the launch config; the service is restarted" in shown
        await rig.press("escape", "plus", "r")
        assert "Run: steps 4" in rig.on_screen
        assert "Nothing changes" not in rig.on_screen


async def test_keys_typed_ahead_of_the_plan_do_nothing_but_esc_and_q() -> None:
    for key in ("escape", "q"):
        async with running("idle") as rig:
            rig.session.plan_gate = asyncio.Event()
            await rig.press("plus", "r")
            assert "Making the plan ..." in rig.on_screen
            await rig.press("enter", "y", "plus", "5")
            assert isinstance(rig.app.screen, PlanDialog)
            assert rig.app.editor.steps == 4
            await rig.press(key)
            assert not isinstance(rig.app.screen, PlanDialog)
            assert "Making the plan" not in rig.on_screen
            assert rig.asked("submit") == []


async def test_the_question_of_a_cancel_goes_with_its_cycle() -> None:
    async with running("load") as rig:
        await rig.press("c")
        assert isinstance(rig.app.screen, ConfirmDialog)
        await end(rig, fake.failed_record())
        assert not isinstance(rig.app.screen, ConfirmDialog)
        assert rig.asked("cancel") == []


async def test_it_goes_from_under_another_question_too() -> None:
    async with running("load") as rig:
        await rig.press("c")
        asking = asyncio.ensure_future(rig.app.decide.ask(Question("restore", "Start again?")))
        await settle(rig.pilot)
        assert isinstance(rig.app.screen, QuestionDialog)
        assert "Leave it stopped" in rig.on_screen
        await end(rig, fake.failed_record())
        await rig.press("escape")
        assert await asking is False
        assert len(rig.app.screen_stack) == 1
        assert rig.asked("cancel") == []


async def test_leaving_a_service_that_the_last_cycle_left_stopped_tells_it() -> None:
    async with running("load") as rig:
        rig.session.push(fake.status("inactive"))
        await end(rig, cancelled_record())
        await rig.press("q")
        assert rig.app.parting.startswith("The service is stopped.")
        assert "config says steps 3/1/4" in rig.app.parting


async def test_leaving_a_service_that_runs_tells_nothing() -> None:
    async with running("load") as rig:
        rig.session.push(fake.status(now=fake.eagle(3)))
        await end(rig, cancelled_record())
        await rig.press("q")
        assert rig.app.parting == ""


async def test_a_cancel_is_no_failure() -> None:
    async with running("load") as rig:
        await end(rig, cancelled_record())
        assert "cancelled at load" in rig.on_screen
        assert "load failed" not in rig.on_screen
        assert rig.app.view.failure is None
        await rig.press("v")
        assert "What failed" not in rig.on_screen


async def test_until_the_engine_was_verified_it_starts_with_the_new_depth() -> None:
    async with running("load") as rig:
        # An old status may still say what ran before.
        rig.session.push(fake.status("activating", now=fake.eagle(3)))
        await settle(rig.pilot)
        assert service_lines(rig.app.view, 60)[2].plain.startswith("starting with 4/1/5")
        assert "the same as what runs now" not in rig.on_screen
        rig.session.push(
            StageEnded(t=fake.T0, stage="load", state="done", seconds=3),
            StageStarted(t=fake.T0, stage="verify"),
            StageEnded(t=fake.T0, stage="verify", state="done", seconds=1),
            fake.status(now=fake.eagle(4)),
        )
        await settle(rig.pilot)
        assert service_lines(rig.app.view, 60)[2].plain.startswith("now steps 4")


async def test_nothing_is_called_good_before_a_config_was_read() -> None:
    async with running("idle") as rig:
        rig.app.view = replace(rig.app.view, now=None, config=None)
        rig.app.paint_now()
        text = "\n".join(row.plain for row in editor_lines(rig.app.frame(), 60, 12, focused=False))
        assert "not read yet" in text
        assert "✓" not in text
        assert "kept" not in text


async def test_queueing_says_how_many_wait() -> None:
    async with running("bench") as rig:
        await rig.press("plus", "r", "y", "plus", "R")
        assert "2 queued: steps 6 waits for the running cycle." in rig.on_screen
