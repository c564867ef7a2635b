"""Where the panes go at a terminal size: pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

SMALLEST = (60, 16)
FULL = (104, 34)


@dataclass(frozen=True, slots=True)
class Layout:
    """``single``: one pane under the overview strip. Else three rows: heights of the first two,
    width of their left panes; the results take what is left."""

    too_small: bool = False
    single: bool = False
    top: int = 0
    middle: int = 0
    left: int = 0
    drawer: int = 0


def arrange(width: int, height: int) -> Layout:
    """The layout of a terminal of ``width`` x ``height`` cells."""
    if width < SMALLEST[0] or height < SMALLEST[1]:
        return Layout(too_small=True)
    drawer = max(6, height * 2 // 5)
    if width < FULL[0] or height < FULL[1]:
        return Layout(single=True, drawer=drawer)
    spare = height - 2 - 32
    return Layout(
        top=15 + min(4, spare // 5),
        middle=10 + spare * 2 // 5,
        left=max(40, min(58, width * 36 // 100)),
        drawer=drawer,
    )
