"""The log drawer: slides over the bottom; follows, pauses, filters, saves."""

from __future__ import annotations

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input

from specdash.tui import fmt
from specdash.tui.entry import Entry as EntryLine
from specdash.tui.logbuf import Entry, LogBuffer
from specdash.tui.paint import BAD, DIM, FAINT, NEXT, NOW, STRONG, TEXT, WARN, fit, line, lines

_STYLES = {"service": TEXT, "specdash": DIM, "command": NEXT, "output": DIM, "notice": WARN}


class LogBody(Widget, can_focus=True):
    """The lines themselves."""

    def __init__(self, buffer: LogBuffer, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.buffer = buffer

    def render(self) -> Content:
        width, height = self.content_size
        shown = self.buffer.window(height)
        rows = [
            _entry_line(entry, width, above)
            for entry, above in zip(shown, [None, *shown], strict=False)
        ]
        if not rows:
            words = "No line matches the filter." if self.buffer.filter else "Nothing logged yet."
            rows = [line((words, DIM))]
        return lines(rows)

    def on_key(self, event: events.Key) -> None:
        height = max(1, self.content_size.height)
        moves = {
            "up": 1,
            "k": 1,
            "down": -1,
            "j": -1,
            "pageup": height - 1,
            "pagedown": 1 - height,
            "home": self.buffer.total,
        }
        if event.key in moves:
            self.buffer.scroll(moves[event.key], height)
            self.post_message(LogDrawer.Moved())
            event.stop()

    def on_mouse_scroll_up(self) -> None:
        self.buffer.scroll(3, max(1, self.content_size.height))
        self.post_message(LogDrawer.Moved())

    def on_mouse_scroll_down(self) -> None:
        self.buffer.scroll(-3, max(1, self.content_size.height))
        self.post_message(LogDrawer.Moved())


_TIME_FROM = 72
"""From this width on a line has room for the time before it."""


def _entry_line(entry: Entry, width: int, above: Entry | None = None) -> Content:
    """One line; its clock time before it where there is room and it says something new."""
    style = BAD if entry.bad else _STYLES[entry.kind]
    gutter = {"service": "  ", "specdash": "· ", "command": "$ ", "output": "  | ", "notice": "! "}[
        entry.kind
    ]
    if width < _TIME_FROM:
        return fit(line((gutter, FAINT), (entry.text, style)), width)
    time = fmt.time_of_day(entry.t)
    known = above is not None and fmt.time_of_day(above.t) == time
    lead = " " * len(time) if known else time
    return fit(line((f"{lead} ", FAINT), (gutter, FAINT), (entry.text, style)), width)


class LogDrawer(Vertical):
    """The drawer with its title line and its filter."""

    class Moved(Message):
        """The part on screen changed."""

    class FilterChanged(Message):
        """The operator typed a filter; ``done`` when it was entered or left."""

        def __init__(self, text: str, done: bool) -> None:
            super().__init__()
            self.text = text
            self.done = done

    def __init__(self, buffer: LogBuffer, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.buffer = buffer

    def compose(self) -> ComposeResult:
        yield LogBody(self.buffer, id="log-body")
        yield EntryLine(placeholder="show lines that contain…", id="log-filter")

    def on_mount(self) -> None:
        self.query_one("#log-filter").display = False

    @property
    def body(self) -> LogBody:
        return self.query_one(LogBody)

    def show(self) -> None:
        """Repaint the lines and the state in the title."""
        buffer = self.buffer
        if not buffer.paused:
            state = ("following", NOW)
        elif buffer.unseen:
            state = (f"paused, {buffer.unseen} new", WARN)
        else:
            state = ("paused", WARN)
        found = (f"  {buffer.total} lines with “{buffer.filter}”", DIM) if buffer.filter else ""
        self.border_title = Content.assemble(("Log ", STRONG), state, found)
        self.border_subtitle = Content.assemble(
            ("/ filter  f follow  w save  l close", DIM),
        )
        self.body.refresh()

    def open_filter(self) -> None:
        box = self.query_one("#log-filter", Input)
        box.display = True
        box.focus()

    def close_filter(self) -> None:
        box = self.query_one("#log-filter", Input)
        box.display = False
        self.body.focus()

    @on(Input.Changed, "#log-filter")
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.FilterChanged(event.value, False))

    @on(Input.Submitted, "#log-filter")
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.FilterChanged(event.value, True))

    def on_key(self, event: events.Key) -> None:
        box = self.query_one("#log-filter", Input)
        if event.key == "escape" and box.display and box.has_focus:
            event.stop()
            box.value = ""
            self.post_message(self.FilterChanged("", True))
