"""A decision only the operator can take, with the exact targets."""

from __future__ import annotations

from textual import events, on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input, Static

from specdash.core.ports import Question, QuestionKind
from specdash.tui.dialogs.base import Choice, Dialog, heading
from specdash.tui.entry import Entry
from specdash.tui.paint import BAD, DIM, TEXT, WARN, line, lines, outside, visible, wrap

YES: dict[QuestionKind, str] = {
    "run-plan": "run it",
    "reap-orphans": "end these processes",
    "force-free": "end this process",
    "protected": "go on with this protected rig",
    "allow-reload": "reload anyway",
    "restore": "restart with the last good config",
}
WHY: dict[QuestionKind, str] = {
    "run-plan": "This stops the service, changes its launch config and starts it again.",
    "reap-orphans": "Probably processes of this rig: same user, engine name, same GPUs or port.",
    "force-free": "This process is not part of the rig. Somebody else may need it.",
    "protected": "The rig file says that this rig is protected.",
    "allow-reload": "A reload can take the GPUs away from containers that run now.",
    "restore": "The service is stopped. The last good config is in place and known to work.",
}


class QuestionDialog(Dialog[bool]):
    """Yes only by its key, or by typing the text the question names."""

    AROUND = 9

    def __init__(self, question: Question, *, simulated: bool, because: str = "") -> None:
        """``because`` is what led to the question, where the cockpit knows it."""
        super().__init__(
            outside(question.title) or "A decision",
            False,
            leave="Leave it stopped" if question.kind == "restore" else "Cancel",
            simulated=simulated,
        )
        self._question = question
        self._because = because
        self._wrong = False
        if question.type_to_confirm is None:
            danger = question.kind not in ("run-plan", "restore")
            self.choices = (Choice("y", YES[question.kind], True, danger),)

    def below(self) -> ComposeResult:
        if self._question.type_to_confirm is not None:
            yield Static("", id="type-what", markup=False)
            yield Entry(id="type-box")

    def opened(self) -> None:
        wanted = self._question.type_to_confirm
        if wanted is not None:
            self.query_one("#type-what", Static).update(
                line(
                    ("Type ", TEXT),
                    (outside(wanted), f"bold {WARN}"),
                    (" and Enter for yes:", TEXT),
                )
            )
            self.query_one("#type-box", Input).focus()

    def text(self, width: int) -> Content:
        question = self._question
        out: list[Content] = []
        if self._because:
            out += [line((row, f"bold {BAD}")) for row in wrap(self._because, width, 6)]
            out.append(Content(""))
        out += [line((row, TEXT)) for row in wrap(WHY[question.kind], width, 4)]
        if question.details:
            out += [Content(""), heading("Exactly")]
            for item in question.details:
                rows = wrap(visible(item), width - 4, 6) or [""]
                out += [
                    line(("  ", DIM), (row if not index else "  " + row, WARN))
                    for index, row in enumerate(rows)
                ]
        if self._wrong:
            out += [Content(""), line(("That is not the text. Nothing was done.", BAD))]
        return lines(out)

    @on(Input.Submitted, "#type-box")
    def _typed(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value == outside(self._question.type_to_confirm or ""):
            self.dismiss(True)
            return
        self._wrong = True
        self.query_one("#type-box", Input).value = ""
        self.paint()

    def pressed(self, event: events.Key) -> None:
        if self._question.type_to_confirm is None:
            super().pressed(event)
        elif event.key == "escape":
            event.stop()
            self.dismiss(False)
