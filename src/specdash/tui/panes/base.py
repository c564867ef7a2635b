"""What every pane shares: a numbered frame, focus, and repainting only when its part changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from specdash.tui.frame import Frame
from specdash.tui.paint import DIM, FAINT, STRONG, lines

_PLAIN = (int, float, str, bool, type(None))


def unchanged(old: Sequence[object], new: Sequence[object]) -> bool:
    """Whether two slices of a frame are the same. Frozen values are compared by identity."""
    return len(old) == len(new) and all(
        a is b or (isinstance(a, _PLAIN) and isinstance(b, _PLAIN) and a == b)
        for a, b in zip(old, new, strict=True)
    )


class Drawn(Widget):
    """A widget that draws lines from a frame."""

    class Failed(Message):
        """Drawing raised ``bug``."""

        def __init__(self, bug: Exception) -> None:
            super().__init__()
            self.bug = bug

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._frame: Frame | None = None
        self._slice: tuple[object, ...] = ()

    def slice(self, frame: Frame) -> tuple[object, ...]:
        """The values this widget draws."""
        raise NotImplementedError

    def draw(self, frame: Frame, width: int, height: int) -> list[Content]:
        """At most ``height`` lines of at most ``width`` cells."""
        raise NotImplementedError

    def show(self, frame: Frame) -> None:
        """Take a new frame; repaint if this widget's part of it changed."""
        new = self.slice(frame)
        repaint = self._frame is None or not unchanged(self._slice, new)
        self._frame, self._slice = frame, new
        if repaint:
            self.decorate(frame)
            self.refresh()

    def decorate(self, frame: Frame) -> None:
        """Update what is not in the lines (border titles)."""

    def render(self) -> Content:
        frame = self._frame
        width, height = self.content_size
        if frame is None or width <= 0 or height <= 0:
            return Content("")
        try:
            return lines(self.draw(frame, width, height)[:height])
        except Exception as bug:  # noqa: BLE001  one pane that fails must not end the screen
            self.app.post_message(self.Failed(bug))
            return Content("cannot be drawn: v says why")


class Pane(Drawn, can_focus=True):
    """One of the five panes."""

    NUMBER: ClassVar[int]
    NAME: ClassVar[str]

    def title(self, frame: Frame) -> Content:
        """What stands in the frame beside the number."""
        return Content("")

    def subtitle(self, frame: Frame) -> Content:
        return Content("")

    def decorate(self, frame: Frame) -> None:
        extra = self.title(frame)
        self.border_title = Content.assemble(
            (f"{self.NUMBER} ", FAINT if not self.has_focus else "$sd-key"),
            (self.NAME, STRONG if self.has_focus else DIM),
            *((" ", extra) if extra else ()),
        )
        self.border_subtitle = self.subtitle(frame)

    def watch_has_focus(self, has_focus: bool) -> None:
        super().watch_has_focus(has_focus)
        if self._frame is not None:
            self.decorate(self._frame)
            self.refresh()
