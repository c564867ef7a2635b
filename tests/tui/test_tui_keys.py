"""Keys and dialogs, pressed as an operator would press them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import fake_session as fake
import pytest
from cockpit_scenes import make_app, settle
from textual.pilot import Pilot

from specdash.core.errors import UnreachableError
from specdash.core.events import CycleEnded, LogLine, Notice, StageStarted
from specdash.core.ports import Question
from specdash.core.settings import Candidate
from specdash.core.text import make_safe
from specdash.tui.actions import ACTIONS, BY_ID
from specdash.tui.app import CockpitApp
from specdash.tui.dialogs.plan import PlanDialog
from specdash.tui.dialogs.question import QuestionDialog
from specdash.tui.themes import load_themes

SIZE = (120, 40)


class Rig:
    """An app under test with its pilot and its session."""

    def __init__(self, app: CockpitApp, session: fake.FakeSession, pilot: Pilot[None]) -> None:
        self.app, self.session, self.pilot = app, session, pilot

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(key)
            await settle(self.pilot)

    def asked(self, name: str) -> list[object]:
        return [value for called, value in self.session.calls if called == name]

    @property
    def on_screen(self) -> str:
        return screen_text(self.app)


def screen_text(app: CockpitApp) -> str:
    """What the terminal shows, without styles."""
    height = app.size.height
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips[:height])


@asynccontextmanager
async def running(
    scene: str, *, size: tuple[int, int] = SIZE, **options: object
) -> AsyncIterator[Rig]:
    app, session = make_app(scene, **options)  # type: ignore[arg-type]
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        yield Rig(app, session, pilot)


async def test_r_shows_the_plan_and_only_y_runs_it() -> None:
    async with running("idle") as rig:
        await rig.press("plus", "r")
        assert isinstance(rig.app.screen, PlanDialog)
        shown = rig.on_screen
        assert "systemctl stop sglang-qwen122.service" in shown
        assert "+  --speculative-num-steps 4" in shown
        assert "-  --speculative-num-steps 3" in shown
        assert rig.asked("submit") == []
        await rig.press("y")
        assert rig.asked("submit") == [Candidate(4)]


@pytest.mark.parametrize("key", ["enter", "escape"])
async def test_enter_and_esc_leave_the_plan_without_running(key: str) -> None:
    async with running("idle") as rig:
        await rig.press("plus", "r", key)
        assert not isinstance(rig.app.screen, PlanDialog)
        assert rig.asked("submit") == []
        assert not rig.app.said_yes


async def test_no_other_key_runs_the_plan() -> None:
    async with running("idle") as rig:
        await rig.press("plus", "r", "space", "Y", "r", "R", "tab", "x", "m", "q", "down")
        assert isinstance(rig.app.screen, PlanDialog)
        await rig.press("enter")
        assert [name for name, _ in rig.session.calls] == ["open", "plan"]


async def test_y_before_the_rig_was_read_does_nothing() -> None:
    async with running("idle") as rig:
        rig.session.plan_gate = asyncio.Event()
        await rig.press("plus", "r", "y")
        assert "Making the plan" in rig.on_screen
        assert rig.asked("submit") == []
        rig.session.plan_gate.set()
        await settle(rig.pilot)
        await rig.press("y")
        assert rig.asked("submit") == [Candidate(4)]


async def test_the_plan_that_was_shown_is_the_one_that_runs() -> None:
    """Neither keys nor a new status change the candidate under an open dialog."""
    async with running("idle") as rig:
        await rig.press("r", "plus", "plus")
        rig.session.push(fake.status(now=fake.eagle(5)))
        await settle(rig.pilot)
        assert rig.app.editor.steps == 5
        await rig.press("y")
        assert rig.asked("plan") == [Candidate(3)]
        assert rig.asked("submit") == [Candidate(3)]


async def test_a_plan_with_refusals_cannot_be_run() -> None:
    async with running("idle") as rig:
        rig.session.plan_refused = True
        await rig.press("plus", "r")
        assert "anna@ws2 has locked this rig" in rig.on_screen
        await rig.press("y")
        assert rig.asked("submit") == []
        assert isinstance(rig.app.screen, PlanDialog)


async def test_a_rig_that_cannot_be_read_says_why() -> None:
    async with running("idle") as rig:
        rig.session.plan_error = UnreachableError(
            "svc does not answer", remedy="Check the VPN.", evidence=("ssh: timeout [/x]",)
        )
        await rig.press("plus", "r")
        assert "svc does not answer" in rig.on_screen
        assert "Check the VPN." in rig.on_screen
        assert "ssh: timeout [/x]" in rig.on_screen
        await rig.press("y", "enter")
        assert rig.asked("submit") == []


async def test_shift_r_runs_without_asking_only_after_a_first_yes() -> None:
    async with running("idle") as rig:
        await rig.press("plus", "R")
        assert rig.asked("submit") == []
        assert "press r" in rig.on_screen
        await rig.press("r", "y")
        rig.session.is_busy = False
        await rig.press("plus", "R")
        assert rig.asked("submit") == [Candidate(4), Candidate(5)]


async def test_while_a_cycle_runs_y_queues_and_a_cuts() -> None:
    async with running("bench") as rig:
        await rig.press("plus", "r")
        assert "A cycle runs" in rig.on_screen
        await rig.press("y")
        assert rig.asked("submit") == [Candidate(5)]
        assert "queued" in rig.on_screen
        await rig.press("plus", "r", "a")
        assert rig.asked("submit_first") == [Candidate(6)]


async def test_d_shows_the_change_and_can_run_nothing() -> None:
    async with running("idle") as rig:
        await rig.press("plus", "d")
        assert "+  --speculative-num-steps 4" in rig.on_screen
        await rig.press("y")
        assert isinstance(rig.app.screen, PlanDialog)
        await rig.press("enter")
        assert rig.asked("submit") == []


async def test_a_refused_candidate_says_the_rule_when_r_is_pressed() -> None:
    async with running("idle") as rig:
        await rig.press("3", "9", "9")
        assert "steps must lie between 0 and 32" in rig.on_screen
        await rig.press("r")
        assert rig.asked("plan") == []
        assert "The engine would refuse this" in rig.on_screen


async def test_the_rule_is_applied_as_typed() -> None:
    async with running("idle") as rig:
        await rig.press("3", "1", "0")
        assert "next 10/1/11" in rig.on_screen
        assert "= steps + 1" in rig.on_screen
        await rig.press("down", "down", "7")
        assert "topk 1: draft tokens 7 become steps + 1" in rig.on_screen
        await rig.press("backspace", "up", "right")
        assert "next 10/2/20" in rig.on_screen


async def test_digits_type_in_the_editor_and_go_to_panes_elsewhere() -> None:
    async with running("results") as rig:
        await rig.press("2")
        assert rig.app.open_pane == "gpus"
        await rig.press("3", "5")
        assert rig.app.open_pane == "editor"
        assert rig.app.editor.steps == 5
        await rig.press("escape")
        assert rig.app.open_pane == "gpus"


async def test_plus_and_minus_work_in_every_pane() -> None:
    async with running("results") as rig:
        for pane in ("1", "2", "4", "5", "3"):
            await rig.press(pane)
            before = rig.app.editor.steps
            await rig.press("plus")
            assert rig.app.editor.steps == before + 1
        await rig.press("minus")
        assert rig.app.editor.steps == before


async def test_a_number_again_and_z_zoom_and_esc_gives_the_panes_back() -> None:
    async with running("results") as rig:
        await rig.press("2", "2")
        assert rig.app.zoomed
        assert "Candidate" not in rig.on_screen
        await rig.press("escape")
        assert not rig.app.zoomed
        await rig.press("z")
        assert rig.app.zoomed
        await rig.press("tab")
        assert rig.app.open_pane == "editor"
        await rig.press("z")
        assert not rig.app.zoomed


async def test_tab_goes_round_all_panes_both_ways() -> None:
    async with running("idle") as rig:
        seen = []
        for _ in range(5):
            await rig.press("tab")
            seen.append(rig.app.open_pane)
        assert seen == ["gpus", "editor", "bench", "results", "service"]
        await rig.press("shift+tab")
        assert rig.app.open_pane == "results"


async def test_m_measures_and_is_refused_while_a_cycle_runs_or_nothing_serves() -> None:
    async with running("idle") as rig:
        await rig.press("m")
        assert rig.asked("measure") == [None]
        await rig.press("m")
        assert len(rig.asked("measure")) == 1
        assert "A cycle runs" in rig.on_screen
    async with running("idle") as rig:
        rig.session.push(fake.status("inactive"))
        await settle(rig.pilot)
        await rig.press("m")
        assert rig.asked("measure") == []
        assert "the service is inactive" in rig.on_screen


async def test_cancel_asks_while_the_service_is_down() -> None:
    async with running("load") as rig:
        await rig.press("c")
        assert "Cancel during load?" in rig.on_screen
        await rig.press("enter")
        assert rig.asked("cancel") == []
        await rig.press("c", "y")
        assert rig.asked("cancel") == [None]


async def test_cancel_does_not_ask_where_nothing_is_lost() -> None:
    async with running("bench") as rig:
        await rig.press("c")
        assert rig.asked("cancel") == [None]


async def test_a_disabled_key_says_why() -> None:
    async with running("idle") as rig:
        for key, words in (
            ("c", "Nothing runs that could be cancelled."),
            ("s", "No cell is being measured."),
            ("b", "There is no result yet"),
            ("e", "There is no result yet to export."),
            ("v", "There is no message to show."),
            ("x", "The queue is empty."),
        ):
            await rig.press(key)
            assert words in rig.on_screen, key


async def test_a_read_only_rig_runs_nothing() -> None:
    async with running("idle", rig=fake.make_rig(read_only=True)) as rig:
        assert "READ-ONLY" in rig.on_screen
        await rig.press("plus", "r", "R")
        assert "read-only" in rig.on_screen
        assert rig.asked("plan") == []
        await rig.press("d")
        assert rig.asked("plan") == [Candidate(4)]


async def test_skip_and_unqueue() -> None:
    async with running("bench") as rig:
        await rig.press("s")
        assert rig.asked("skip_cell") == [None]
        await rig.press("x")
        assert rig.asked("unqueue") == [0]


async def test_b_sets_the_reference_row() -> None:
    async with running("results") as rig:
        assert "change against off" in rig.on_screen
        await rig.press("5", "down", "down", "b")
        assert "change against steps 2" in rig.on_screen


async def test_a_note_goes_with_the_candidate_and_is_not_markup() -> None:
    async with running("idle") as rig:
        await rig.press("n", *"why [/b]".replace(" ", "_"))
        await rig.press("enter")
        assert rig.app.editor.note == "why_[/b]"
        assert "why_[/b]" in rig.on_screen
        await rig.press("r", "y")
        assert rig.asked("submit") == [Candidate(3, note="why_[/b]")]
        assert rig.app.editor.note == ""


async def test_esc_leaves_the_old_note() -> None:
    async with running("idle") as rig:
        await rig.press("n", "a", "enter", "n", "b", "escape")
        assert rig.app.editor.note == "a"


async def test_export_says_where_it_went() -> None:
    async with running("results") as rig:
        await rig.press("e", "enter")
        assert rig.asked("export") == []
        await rig.press("e", "c")
        assert rig.asked("export") == ["csv"]
        assert "results written to ~/specdash-qwen122.csv" in rig.on_screen


async def test_the_log_follows_pauses_filters_and_closes() -> None:
    async with running("log") as rig:
        await rig.press("l")
        assert "Log following" in rig.on_screen
        assert "fired up and ready" in rig.on_screen
        await rig.press("up", "up")
        assert "paused" in rig.on_screen
        rig.session.push(LogLine(t=fake.T0, source="service", text=make_safe("one more")))
        await settle(rig.pilot)
        assert "paused, 1 new" in rig.on_screen
        await rig.press("f")
        assert "Log following" in rig.on_screen
        await rig.press("slash", *"nvml", "enter")
        assert "Failed to initialize NVML" in rig.on_screen
        assert "fired up" not in rig.on_screen
        await rig.press("slash", "escape")
        assert "fired up" in rig.on_screen
        await rig.press("l")
        assert "Log following" not in rig.on_screen
        assert rig.app.focused is rig.app.pane("service")


async def test_letters_typed_into_the_filter_are_no_commands() -> None:
    async with running("log") as rig:
        await rig.press("l", "slash", "r", "q", "m", "c")
        assert [name for name, _ in rig.session.calls] == ["open"]
        assert rig.app.log_buffer.filter == "rqmc"


async def test_the_log_is_saved_where_the_caller_can() -> None:
    saved: list[tuple[str, str]] = []

    async def save(name: str, text: str) -> object:
        saved.append((name, text))
        return make_safe("/tmp/x.log")

    async with running("log") as rig:
        await rig.press("l", "w")
        assert "cannot write files" in rig.on_screen
        rig.app._save_text = save  # type: ignore[assignment]
        await rig.press("w")
        assert saved[0][0] == "qwen122.log"
        assert "pct exec 129 -- nvidia-smi -q" in saved[0][1]


async def test_evidence_of_a_failure_is_one_key_away() -> None:
    async with running("failure") as rig:
        assert "load failed" in rig.on_screen
        await rig.press("v")
        assert "torch.OutOfMemoryError" in rig.on_screen
        await rig.press("enter", "escape")
        assert "v evidence" not in rig.on_screen.splitlines()[-2]


async def test_quit_closes_the_session_first() -> None:
    async with running("idle") as rig:
        await rig.press("q")
        assert rig.asked("close") == [None]
        assert rig.app.session_closed


async def test_quit_asks_while_a_cycle_runs() -> None:
    async with running("bench") as rig:
        await rig.press("q", "enter")
        assert rig.asked("close") == []
        await rig.press("ctrl+c")
        assert "A cycle runs" in rig.on_screen
        await rig.press("y")
        assert rig.asked("close") == [None]


async def test_questions_are_no_unless_y() -> None:
    question = Question(
        "force-free",
        "A process of somebody else holds GPU 2",
        ("node: pid 4711, user anna, python train.py [/x], 41.2 GiB",),
    )
    async with running("load") as rig:
        for key, answer in (("enter", False), ("escape", False), ("y", True)):
            asking = asyncio.ensure_future(rig.app.decide.ask(question))
            await settle(rig.pilot)
            assert "python train.py [/x], 41.2 GiB" in rig.on_screen
            await rig.press("space", "tab", key)
            assert await asking is answer


async def test_two_questions_wait_for_one_another() -> None:
    async with running("load") as rig:
        one = asyncio.ensure_future(rig.app.decide.ask(Question("protected", "first")))
        two = asyncio.ensure_future(rig.app.decide.ask(Question("protected", "second")))
        await settle(rig.pilot)
        assert "first" in rig.on_screen
        await rig.press("y")
        assert await one is True
        assert "second" in rig.on_screen
        await rig.press("enter")
        assert await two is False


async def test_type_to_confirm_takes_the_text_and_nothing_else() -> None:
    question = Question("protected", "Protected rig", ("qwen122",), type_to_confirm="yes")
    async with running("load") as rig:
        asking = asyncio.ensure_future(rig.app.decide.ask(question))
        await settle(rig.pilot)
        await rig.press("y", "enter")
        assert not asking.done()
        assert "That is not the text" in rig.on_screen
        await rig.press("enter", "y", "e", "s", "enter")
        assert await asking is True
        asking = asyncio.ensure_future(rig.app.decide.ask(question))
        await settle(rig.pilot)
        await rig.press("y", "e", "s", "escape")
        assert await asking is False


async def test_a_plan_said_yes_to_is_not_asked_again_and_never_twice() -> None:
    async with running("idle") as rig:
        await rig.press("plus", "r", "y")
        assert await rig.app.decide.ask(Question("run-plan", "go?")) is True
        asking = asyncio.ensure_future(rig.app.decide.ask(Question("run-plan", "go?")))
        await settle(rig.pilot)
        assert isinstance(rig.app.screen, QuestionDialog)
        await rig.press("enter")
        assert await asking is False


async def test_without_a_screen_every_answer_is_no() -> None:
    app, _ = make_app("idle")
    assert await app.decide.ask(Question("restore", "x")) is False
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
    assert await app.decide.ask(Question("restore", "x")) is False


async def test_cancel_voids_what_was_granted() -> None:
    async with running("bench") as rig:
        rig.app.decide.grant_run()
        await rig.press("c")
        asking = asyncio.ensure_future(rig.app.decide.ask(Question("run-plan", "go?")))
        await settle(rig.pilot)
        assert isinstance(rig.app.screen, QuestionDialog)
        await rig.press("escape")
        assert await asking is False


async def test_a_failing_session_is_a_message_and_not_a_crash() -> None:
    app, session = make_app("idle")

    async def refuse() -> None:
        raise UnreachableError("node: host key [/unknown]", remedy="Run ssh once by hand.")

    session.open = refuse  # type: ignore[method-assign]
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        assert "node: host key [/unknown]" in screen_text(app)
        assert "Run ssh once by hand." in screen_text(app)


async def test_nothing_but_quit_and_help_works_on_a_terminal_too_small_to_read() -> None:
    async with running("idle", size=(50, 10)) as rig:
        assert "60 × 16" in rig.on_screen
        assert "50 × 10" in rig.on_screen
        await rig.press("r", "m", "plus")
        assert [name for name, _ in rig.session.calls] == ["open"]
        await rig.pilot.resize_terminal(80, 24)
        await settle(rig.pilot)
        assert "sglang-qwen122" in rig.on_screen
        await rig.press("m")
        assert rig.asked("measure") == [None]


async def test_a_small_terminal_shows_everything_the_main_job_needs() -> None:
    async with running("bench", size=(80, 24)) as rig:
        for pane in ("1", "2", "3", "4"):
            await rig.press(pane)
            shown = rig.on_screen
            for words in ("measure 1:07", "751", "356.4 / 382.4 GiB", "next 4/1/5", "r run"):
                assert words in shown, (pane, words)
            await rig.press("escape")


async def test_every_action_is_bound_has_a_deed_and_a_key_in_the_help() -> None:
    async with running("idle") as rig:
        await rig.press("question_mark")
        for action in ACTIONS:
            has_deed = hasattr(rig.app, f"do_{action.id}") or action.id.startswith("pane_")
            assert has_deed, action.id
    keys: dict[tuple[str, str], str] = {}
    for action in ACTIONS:
        for key in action.bound.split(","):
            assert keys.setdefault((action.scope, key), action.id) == action.id
            if action.scope != "global":
                assert ("global", key) not in keys or action.scope == "log", (action.id, key)
    assert set(BY_ID) == {action.id for action in ACTIONS}


async def test_clicking_a_key_in_the_footer_is_that_key() -> None:
    async with running("results") as rig:
        await rig.pilot.click("#footer", offset=(11, 0))
        await settle(rig.pilot)
        assert rig.asked("measure") == [None]


async def test_themes_can_be_changed_live() -> None:
    async with running("bench") as rig:
        seen = {rig.app.theme}
        for _ in range(len(load_themes().found) + 1):
            await rig.press("t")
            seen.add(rig.app.theme)
            assert "measure" in rig.on_screen
        assert {"night", "day", "ansi-dark", "ansi-light"} <= seen


async def test_a_storm_of_events_is_painted_at_most_ten_times_a_second() -> None:
    async with running("bench") as rig:
        painted = 0
        header = rig.app.pane("bench")
        original = header.show

        def count(frame: object) -> None:
            nonlocal painted
            painted += 1
            original(frame)  # type: ignore[arg-type]

        header.show = count  # type: ignore[method-assign, assignment]
        for event in fake.measuring(4, 4):
            rig.app.take(event)
        assert painted == 0
        await rig.pilot.pause()
        assert painted <= 2


async def test_info_goes_by_itself_and_errors_stay() -> None:
    async with running("idle") as rig:
        clock = rig.app.clock
        assert isinstance(clock, fake.FakeClock)
        rig.session.push(Notice(t=fake.T0, level="info", message=make_safe("for a while")))
        await settle(rig.pilot)
        assert "for a while" in rig.on_screen
        clock.advance(30)
        rig.app._tick()
        await settle(rig.pilot)
        assert "for a while" not in rig.on_screen
        rig.session.push(Notice(t=fake.T0, level="error", message=make_safe("for good")))
        await settle(rig.pilot)
        clock.advance(3000)
        rig.app._tick()
        await settle(rig.pilot)
        assert "for good" in rig.on_screen


async def test_the_cursor_goes_to_the_row_that_was_just_measured() -> None:
    async with running("bench") as rig:
        rig.session.push(CycleEnded(t=fake.T0, record=fake.record(4, t=fake.T0, number=77)))
        await settle(rig.pilot)
        row = rig.app.frame().row
        assert row is not None
        assert row.steps == 4


async def test_a_lost_gpu_reading_is_called_stale() -> None:
    async with running("idle") as rig:
        clock = rig.app.clock
        assert isinstance(clock, fake.FakeClock)
        clock.advance(12.5)
        rig.app._tick()
        await settle(rig.pilot)
        assert "stale 13 s" in rig.on_screen


async def test_a_stage_that_starts_is_seen() -> None:
    async with running("load") as rig:
        rig.session.push(StageStarted(t=fake.T0, stage="verify", deadline_s=60.0))
        await settle(rig.pilot)
        assert "verify    0:00 / 1:00" in rig.on_screen
