"""A secret for a host: typed unseen, handed on once, kept nowhere on this side."""

from __future__ import annotations

from textual import events, on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input

from specdash.core.ports import SecretKind, SecretQuestion
from specdash.core.text import make_safe
from specdash.tui.dialogs.base import Dialog
from specdash.tui.paint import BAD, DIM, STRONG, TEXT, line, lines, outside, wrap

TITLES: dict[SecretKind, str] = {
    "password": "Password",
    "passphrase": "Passphrase of a key",
    "answer": "An answer for the login",
}


class SecretEntry(Input):
    """An Input whose value leaves it in one way only: submitted. No copy, no cut."""

    def __init__(self, *, echo: bool, id: str | None = None) -> None:  # noqa: A002
        super().__init__(password=not echo, select_on_focus=False, max_length=1024, id=id)
        self.cursor_blink = False
        self._echo = echo

    def validate_value(self, value: str) -> str:
        # A masked value is never drawn, and must stay as it was typed.
        return make_safe(value) if self._echo else value

    def action_copy(self) -> None:
        """The terminal's clipboard is no place for a secret."""

    def action_cut(self) -> None:
        """As copy."""


class SecretDialog(Dialog[str | None]):
    """Enter hands on what was typed, Esc goes on without it."""

    AROUND = 7

    def __init__(self, question: SecretQuestion, *, simulated: bool) -> None:
        super().__init__(TITLES[question.kind], None, leave="Go on without", simulated=simulated)
        self._question = question
        self._empty = False

    def below(self) -> ComposeResult:
        yield SecretEntry(echo=self._question.echo, id="secret-box")

    def opened(self) -> None:
        self.query_one("#secret-box", Input).focus()

    def text(self, width: int) -> Content:
        question = self._question
        out = [
            line(("host  ", DIM), (outside(question.host), STRONG)),
            line(("for   ", DIM), (outside(question.subject), STRONG)),
            Content(""),
        ]
        if question.attempt > 1:
            words = f"The one before was not accepted. Attempt {question.attempt}."
            out += [line((words, BAD)), Content("")]
        out += [line((row, TEXT)) for row in wrap(question.prompt, width, 4)]
        kept = (
            "Used once, never kept."
            if question.kind == "answer"
            else "Kept in memory until specdash ends; never written, never shown."
        )
        out += [line((row, DIM)) for row in wrap(f"Enter sends it. {kept}", width, 2)]
        if self._empty:
            out += [Content(""), line(("Nothing was typed. Esc goes on without.", BAD))]
        return lines(out)

    @on(Input.Submitted, "#secret-box")
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        # An empty answer may be meant (a push to a phone); an empty password is a slip.
        if event.value or self._question.kind == "answer":
            self.dismiss(event.value)
            return
        self._empty = True
        self.paint()

    def pressed(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            self.dismiss(None)
