"""Secrets asked on screen: typed unseen, handed on once, and found nowhere afterwards."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from cockpit_scenes import make_app, settle
from test_tui_keys import screen_text
from textual import events
from textual.pilot import Pilot

from specdash.core.ports import SecretQuestion
from specdash.core.text import make_safe
from specdash.tui.app import CockpitApp
from specdash.tui.dialogs.secret import SecretDialog

QUESTION = SecretQuestion("password", "node", "root@pve-node.lan", make_safe("Password:"))
SECRET = "s3cret[/]Pa55"
SIZES = [(80, 24), (120, 40), (200, 60)]


async def put(
    app: CockpitApp, pilot: Pilot[None], question: SecretQuestion
) -> asyncio.Task[str | None]:
    asking = asyncio.ensure_future(app.decide.ask_secret(question))
    await settle(pilot)
    assert isinstance(app.screen, SecretDialog)
    return asking


def keys_of(text: str) -> list[str]:
    names = {"[": "left_square_bracket", "]": "right_square_bracket", "/": "slash"}
    return [names.get(char, char) for char in text]


@pytest.mark.parametrize("size", SIZES)
async def test_a_password_is_typed_unseen_and_handed_on(size: tuple[int, int]) -> None:
    app, session = make_app("idle")
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        asking = await put(app, pilot, QUESTION)
        shown = screen_text(app)
        assert "root@pve-node.lan" in shown
        assert "node" in shown
        assert "SIMULATED" in shown
        await pilot.press(*keys_of(SECRET))
        await settle(pilot)
        shown = screen_text(app)
        assert "•" * len(SECRET) in shown
        for start in range(len(SECRET) - 3):
            assert SECRET[start : start + 4] not in shown
        await pilot.press("enter")
        assert await asking == SECRET
        await settle(pilot)
        assert SECRET not in screen_text(app) + app.log_buffer.text() + str(app.view)
        assert [name for name, _ in session.calls] == ["open"]


async def test_esc_goes_on_without_and_enter_on_nothing_is_a_slip() -> None:
    app, _ = make_app("idle")
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        asking = await put(app, pilot, QUESTION)
        await pilot.press("enter")
        await settle(pilot)
        assert not asking.done()
        assert "Nothing was typed" in screen_text(app)
        await pilot.press("x", "escape")
        assert await asking is None
        await settle(pilot)
        assert "r, d or m asks for it again" in screen_text(app)


async def test_a_wrong_attempt_is_said() -> None:
    app, _ = make_app("idle")
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        asking = await put(app, pilot, replace(QUESTION, attempt=2))
        assert "The one before was not accepted. Attempt 2." in screen_text(app)
        await pilot.press("escape")
        await asking


async def test_a_login_that_tries_by_itself_does_not_ask_again_until_a_key_needs_it() -> None:
    """The streams connect again and again; the operator said once that there is no password."""
    app, _ = make_app("idle")
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        asking = await put(app, pilot, QUESTION)
        await pilot.press("escape")
        await asking
        assert await app.decide.ask_secret(QUESTION) is None
        other = await put(app, pilot, replace(QUESTION, subject="root@other"))
        await pilot.press("escape")
        await other
        await pilot.press("d", "escape")
        await settle(pilot)
        asking = await put(app, pilot, QUESTION)
        await pilot.press("a", "enter")
        assert await asking == "a"


async def test_a_one_time_code_may_be_seen_and_may_be_empty() -> None:
    app, _ = make_app("idle")
    question = replace(QUESTION, kind="answer", prompt=make_safe("Code [/x]:"), echo=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        asking = await put(app, pilot, question)
        assert "Code [/x]:" in screen_text(app)
        await pilot.press("4", "2")
        await settle(pilot)
        assert "42" in screen_text(app)
        await pilot.press("enter")
        assert await asking == "42"
        asking = await put(app, pilot, replace(question, echo=False))
        await pilot.press("enter")
        assert await asking == ""


async def test_what_is_pasted_stays_as_it_is_and_cannot_be_copied() -> None:
    app, _ = make_app("idle")
    copied: list[str] = []
    app.copy_to_clipboard = copied.append  # type: ignore[method-assign]
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        asking = await put(app, pilot, QUESTION)
        assert app.focused is not None
        app.focused.post_message(events.Paste("a\x1b[2Jb\u202ec"))
        await settle(pilot)
        await pilot.press("home", "shift+end", "ctrl+c", "ctrl+x")
        await settle(pilot)
        assert copied == []
        assert "\u202e" not in screen_text(app)
        await pilot.press("enter")
        assert await asking == "a\x1b[2Jb\u202ec"


async def test_hostile_words_around_a_secret_are_text() -> None:
    hostile = "\x1b]52;c;QQ==\x07[@click=app.quit]q[/] \u202e"
    app, _ = make_app("idle")
    question = SecretQuestion("passphrase", hostile, hostile, make_safe(hostile))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        asking = await put(app, pilot, question)
        shown = screen_text(app)
        assert "[@click=app.quit]q[/]" in shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        await pilot.press("escape")
        await asking


async def test_a_login_given_up_takes_its_dialog_along() -> None:
    app, _ = make_app("idle")
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        asking = await put(app, pilot, QUESTION)
        asking.cancel()
        await asyncio.wait({asking})
        await settle(pilot)
        assert not isinstance(app.screen, SecretDialog)
        assert app.is_running


async def test_without_a_screen_nobody_knows_a_secret() -> None:
    app, _ = make_app("idle")
    assert await app.decide.ask_secret(QUESTION) is None
