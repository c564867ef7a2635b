"""A fault of specdash itself is a message: the app lives on and no traceback is on the screen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import fake_session as fake
import pytest
from cockpit_scenes import make_app, settle
from test_tui_keys import running, screen_text

from specdash.core.events import CycleEnded, Event, Notice
from specdash.core.ports import Question
from specdash.core.text import make_safe
from specdash.tui import cockpit
from specdash.tui.app import CockpitApp
from specdash.tui.dialogs.plan import PlanDialog
from specdash.tui.panes.bench import BenchPane

BUG = "not foreseen [/x]"


def broken(*_: object, **__: object) -> object:
    raise ZeroDivisionError(BUG)


async def said_and_alive(rig: object) -> None:
    app: CockpitApp = rig.app  # type: ignore[attr-defined]
    shown = screen_text(app)
    assert "specdash itself made a mistake" in shown
    assert "Traceback" not in shown
    await rig.press("v")  # type: ignore[attr-defined]
    assert f"ZeroDivisionError: {BUG}" in screen_text(app)
    assert "Traceback" not in screen_text(app)
    await rig.press("escape", "escape", "question_mark")  # type: ignore[attr-defined]
    assert "Keys" in screen_text(app)
    assert app.is_running


async def test_a_pane_that_cannot_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running("bench") as rig:
        monkeypatch.setattr(BenchPane, "draw", broken)
        rig.app.pane("bench").refresh()
        await settle(rig.pilot)
        await settle(rig.pilot)
        assert "cannot be drawn" in rig.on_screen
        assert "GPUs" in rig.on_screen
        await said_and_alive(rig)
        await rig.press("escape", "4")
        said = [e for e in rig.app.log_buffer.text().splitlines() if "made a mistake" in e]
        assert len(said) == 1, "said once, however often it is painted"


async def test_an_event_that_cannot_be_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running("idle") as rig:
        real: Callable[..., object] = cockpit.reduce

        def now_and_then(view: object, event: Event) -> object:
            return broken() if isinstance(event, CycleEnded) else real(view, event)

        monkeypatch.setattr(cockpit, "reduce", now_and_then)
        rig.session.push(CycleEnded(t=fake.T0, record=fake.record(4, t=fake.T0)))
        await settle(rig.pilot)
        await said_and_alive(rig)
        await rig.press("escape")
        rig.session.push(Notice(t=fake.T0, level="info", message=make_safe("still reading")))
        await settle(rig.pilot)
        assert "still reading" in rig.on_screen


@pytest.mark.parametrize(
    ("method", "keys"),
    [
        ("submit", ("plus", "r", "y")),
        ("measure", ("m",)),
        ("check", ("plus",)),
        ("export", ("e", "m")),
        ("open", ()),
    ],
)
async def test_a_session_that_breaks(
    method: str, keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running("results") as rig:
        if method == "open":
            rig.app.work(_broken(), "open")
            await settle(rig.pilot)
        monkeypatch.setattr(rig.session, method, broken)
        await rig.press(*keys)
        monkeypatch.undo()
        await said_and_alive(rig)


async def _broken() -> None:
    broken()


async def test_a_plan_that_breaks_says_so_in_its_dialog(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running("idle") as rig:
        monkeypatch.setattr(rig.session, "plan", broken)
        await rig.press("plus", "r")
        assert isinstance(rig.app.screen, PlanDialog)
        assert BUG in rig.on_screen
        await rig.press("y", "escape")
        assert rig.asked("submit") == []


async def test_a_dialog_that_cannot_be_shown_can_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running("idle") as rig:
        monkeypatch.setattr(PlanDialog, "text", broken)
        await rig.press("plus", "r")
        assert "cannot be shown" in rig.on_screen
        await rig.press("escape")
        await said_and_alive(rig)


async def test_a_stream_of_events_that_ends_is_said() -> None:
    app, session = make_app("idle")

    async def events() -> AsyncIterator[Event]:
        yield fake.LINKS[0]
        broken()

    session.events = events  # type: ignore[method-assign]
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert "specdash itself made a mistake" in screen_text(app)


async def test_what_ends_the_app_leaves_no_traceback_with_its_variables() -> None:
    app, _ = make_app("idle")
    with pytest.raises(ZeroDivisionError):
        async with app.run_test(size=(80, 24)) as pilot:
            await settle(pilot)
            try:
                broken()
            except ZeroDivisionError as bug:
                app._handle_exception(bug)
    assert app._exit_renderables == []
    assert app.broken is not None
    assert app.broken.evidence[0] == f"ZeroDivisionError: {BUG}"


class SlowToLeave(fake.FakeSession):
    """Closing cancels the cycle, which asks whether to start the old service again."""

    def __init__(self, app: CockpitApp) -> None:
        super().__init__(fake.benchmark_running())
        self.app = app
        self.is_busy = True

    async def close(self) -> None:
        self.calls.append(("close", None))
        question = Question("restore", "Start the service again with steps 1/1/2?")
        answer = await self.app.decide.ask(question)
        state = "running, steps 1/1/2, restored" if answer else "stopped, config says steps 1/1/2"
        record = replace(fake.record(4, t=fake.T0), outcome="cancelled", end_state=state)
        self._results = (*self._results, record)
        self.is_busy = False


@pytest.mark.parametrize(
    ("key", "state"),
    [("y", "running, steps 1/1/2, restored"), ("escape", "stopped, config says steps 1/1/2")],
)
async def test_leaving_during_a_cycle_asks_on_the_screen_and_tells_the_state_behind_it(
    key: str, state: str
) -> None:
    app, _ = make_app("bench")
    session = SlowToLeave(app)
    app.session = session  # type: ignore[assignment]
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        for pressed in ("q", "y"):
            await pilot.press(pressed)
            await settle(pilot)
        assert "Start the service again with steps 1/1/2?" in screen_text(app)
        await pilot.press(key)
        await asyncio.sleep(0)
        await settle(pilot)
    assert app.session_closed
    assert app.parting == f"The cycle was cancelled. The rig now: {state}."
    assert session.calls.count(("close", None)) == 1
