"""A dialog whose default is always "no": Enter and Esc leave it without doing anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from specdash.tui.paint import BAD, BADGE, DIM, FAINT, KEY, STRONG, TEXT, Part, fit, line
from specdash.tui.panes.base import Drawn

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """One way out of a dialog, on one key."""

    key: str
    label: str
    value: T
    danger: bool = False


class Body(VerticalScroll, can_focus=True):
    """The text of a dialog; arrows and page keys scroll it."""


class ChoiceBar(Widget):
    """The ways out. The first one, to leave without doing anything, has the focus."""

    def __init__(self, leave: str, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._leave = leave
        self._choices: Sequence[Choice[Any]] = ()
        self._hints: Sequence[tuple[str, str]] = ()
        self._simulated = False
        self._places: list[tuple[int, int, str]] = []

    def show(
        self,
        choices: Sequence[Choice[Any]],
        simulated: bool,
        hints: Sequence[tuple[str, str]] = (),
    ) -> None:
        """``hints`` are keys that change what the dialog shows and do not leave it."""
        self._choices, self._simulated, self._hints = choices, simulated, hints
        self.refresh()

    def render(self) -> Content:
        leave = f" Esc  {self._leave} "
        parts: list[Part] = [(leave, f"{STRONG} reverse"), "   "]
        self._places = [(0, len(leave), "escape")]
        used = len(leave) + 3
        for choice in self._choices:
            size = len(choice.key) + 2 + len(choice.label)
            parts += [
                (choice.key, f"bold {BAD}" if choice.danger else KEY),
                (f"  {choice.label}", TEXT),
                "   ",
            ]
            self._places.append((used, used + size, choice.key))
            used += size + 3
        for key, label in self._hints:
            size = len(key) + 2 + len(label)
            parts += [(key, KEY), (f"  {label}", DIM), "   "]
            self._places.append((used, used + size, key))
            used += size + 3
        if self._simulated:
            parts.append((" SIMULATED ", BADGE))
        return fit(line(*parts), self.content_size.width)

    def on_click(self, event: events.Click) -> None:
        for start, end, key in self._places:
            if start <= event.x < end and isinstance(self.screen, Dialog):
                self.screen.choose(key)
                return


class Dialog(ModalScreen[T], Generic[T]):
    """Title, scrolling text, and the ways out by key.

    ``nothing`` is what the dialog gives back when it is left.
    """

    AROUND: ClassVar[int] = 5
    """Rows of the dialog that are not its text: frame, padding, choices."""

    def __init__(
        self, title: str, nothing: T, *, leave: str = "Cancel", simulated: bool = False
    ) -> None:
        super().__init__()
        self._title = title
        self.nothing = nothing
        self._leave = leave
        self._simulated = simulated
        self.choices: tuple[Choice[T], ...] = ()
        self.hints: tuple[tuple[str, str], ...] = ()

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield from self.above()
            with Body(id="dialog-body"):
                yield Static("", id="dialog-text", markup=False)
            yield from self.below()
            yield ChoiceBar(self._leave, id="dialog-choices")

    def above(self) -> ComposeResult:
        """Widgets over the text."""
        yield from ()

    def below(self) -> ComposeResult:
        """Widgets between the text and the choices."""
        yield from ()

    def on_mount(self) -> None:
        # Textual calls on_mount and on_key of every class in the line; subclasses use the hooks.
        box = self.query_one(".dialog", Vertical)
        box.border_title = self._titled()
        self.query_one(Body).focus()
        self.opened()
        self.paint()

    def retitle(self, title: str) -> None:
        """Another title from now on."""
        self._title = title
        if self.is_mounted:
            self.query_one(".dialog", Vertical).border_title = self._titled()

    def _titled(self) -> Content:
        return Content.assemble((f" {self._title} ", STRONG))

    def opened(self) -> None:
        """For the subclass: its widgets are there."""

    def text(self, width: int) -> Content:
        """What the dialog says at ``width`` cells."""
        raise NotImplementedError

    def below_frame(self) -> Content:
        """What stands in the lower frame, in sight however far the text is scrolled."""
        return Content("")

    def paint(self) -> None:
        """Write the text and the choices again."""
        if not self.is_mounted:
            return
        body = self.query_one(Body)
        # The ways out stay on screen however long the text is: the text scrolls above them.
        body.styles.max_height = max(3, self.app.size.height * 92 // 100 - self.AROUND)
        width = max(20, body.scrollable_content_region.width or self._width())
        try:
            content = self.text(width)
        except Exception as bug:  # noqa: BLE001  a dialog that cannot be shown can still be left
            self.app.post_message(Drawn.Failed(bug))
            content = line(("This cannot be shown: leave it, then v says why.", BAD))
        self.query_one("#dialog-text", Static).update(content)
        bar = self.query_one(ChoiceBar)
        bar.show(self.choices, self._simulated, self.hints)
        box = self.query_one(".dialog", Vertical)
        box.border_subtitle = self.below_frame().truncate(max(1, width), ellipsis=True)

    def _width(self) -> int:
        return max(20, min(110, self.app.size.width - 4) - 6)

    def on_resize(self) -> None:
        self.call_after_refresh(self.paint)

    def choose(self, key: str) -> None:
        """Leave by ``key``; a key that is no choice does nothing."""
        if key in ("escape", "enter"):
            self.dismiss(self.nothing)
            return
        for choice in self.choices:
            if choice.key == key:
                self.dismiss(choice.value)
                return

    def on_key(self, event: events.Key) -> None:
        self.pressed(event)

    def pressed(self, event: events.Key) -> None:
        """A key no widget of the dialog took."""
        if event.key in ("escape", "enter"):
            event.stop()
            self.choose(event.key)
        elif event.character is not None and event.character in (
            *(choice.key for choice in self.choices),
            *(key for key, _ in self.hints),
        ):
            event.stop()
            self.choose(event.character)


def heading(text: str) -> Content:
    return line((text, f"bold {DIM}"))


def bullet(text: str, style: str = TEXT, mark: str = "•") -> Content:
    return line((f"{mark} ", FAINT if mark == "•" else style), (text, style))
