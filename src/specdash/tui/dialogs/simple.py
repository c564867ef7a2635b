"""The small dialogs: a message with its evidence, a yes or no, a note, an export format."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events, on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input

from specdash.core.events import Notice
from specdash.core.text import make_safe
from specdash.tui.dialogs.base import Choice, Dialog, heading
from specdash.tui.entry import Entry
from specdash.tui.paint import BAD, DIM, NOW, TEXT, WARN, line, lines, wrap


class MessageDialog(Dialog[None]):
    """The last message with the lines that prove it."""

    def __init__(self, notice: Notice, *, simulated: bool) -> None:
        title = {"info": "Message", "warning": "Warning", "error": "What failed"}[notice.level]
        super().__init__(title, None, leave="Close", simulated=simulated)
        self._notice = notice

    def text(self, width: int) -> Content:
        notice = self._notice
        style = {"info": NOW, "warning": WARN, "error": BAD}[notice.level]
        out = [line((row, f"bold {style}")) for row in wrap(notice.message, width, 20)]
        if notice.remedy:
            out.append(Content(""))
            out += [line((row, TEXT)) for row in wrap(notice.remedy, width, 20)]
        if notice.evidence:
            out += [Content(""), heading("Evidence")]
            for item in notice.evidence:
                rows = wrap(item, width - 4, 8) or [""]
                out += [
                    line(("  " if not index else "    ", DIM), (row, DIM))
                    for index, row in enumerate(rows)
                ]
        return lines(out)


class ConfirmDialog(Dialog[bool]):
    """One thing to say yes to, by ``y`` and nothing else."""

    def __init__(
        self, title: str, body: Sequence[str], yes: str, *, danger: bool, simulated: bool, no: str
    ) -> None:
        super().__init__(title, False, leave=no, simulated=simulated)
        self._body = body
        self._withdrawn = False
        self.choices = (Choice("y", yes, True, danger),)

    def withdraw(self) -> None:
        """What is asked came to its end by itself: answer no, once nothing lies above."""
        self._withdrawn = True
        if self.app.screen is self:
            self.dismiss(self.nothing)

    def on_screen_resume(self) -> None:
        if self._withdrawn:
            # The dialog above is still on its way out.
            self.set_timer(0.05, self.withdraw)

    def text(self, width: int) -> Content:
        out: list[Content] = []
        for paragraph in self._body:
            if out:
                out.append(Content(""))
            out += [line((row, TEXT)) for row in wrap(paragraph, width, 20)]
        return lines(out)


class ExportDialog(Dialog[str]):
    """Which form the results are written in; "" for none."""

    def __init__(self, *, simulated: bool) -> None:
        super().__init__("Export the results", "", simulated=simulated)
        self.choices = (
            Choice("m", "Markdown", "md"),
            Choice("c", "CSV", "csv"),
            Choice("j", "JSON", "json"),
        )

    def text(self, width: int) -> Content:
        words = "Every finished cycle of this rig, with settings, intervals, flags and timings."
        return lines(line((row, TEXT)) for row in wrap(words, width, 4))


class NoteDialog(Dialog[str | None]):
    """Why the next candidate is tried. Enter keeps it, Esc leaves the old one."""

    def __init__(self, note: str, *, simulated: bool) -> None:
        super().__init__("Note", None, leave="Cancel", simulated=simulated)
        self._note = note

    def below(self) -> ComposeResult:
        yield Entry(self._note, id="note-box")

    def opened(self) -> None:
        self.query_one("#note-box", Input).focus()

    def text(self, width: int) -> Content:
        words = "Why is this candidate tried? The note is kept with its results. Enter keeps it."
        return lines(line((row, TEXT)) for row in wrap(words, width, 4))

    @on(Input.Submitted, "#note-box")
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(make_safe(event.value))

    def pressed(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            self.dismiss(None)
