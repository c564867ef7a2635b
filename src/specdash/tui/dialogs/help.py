"""Every key and what it does, from the one table of actions."""

from __future__ import annotations

from textual.content import Content

from specdash.tui.actions import ACTIONS, Action, Group, Situation
from specdash.tui.dialogs.base import Dialog, heading
from specdash.tui.paint import DIM, FAINT, KEY, TEXT, fit, line, lines, pad, wrap

GROUPS: tuple[Group, ...] = ("Run", "Candidate", "Results", "Log", "Look", "Leave")
_KEY_WIDTH = 6
_LABEL_WIDTH = 11


class HelpDialog(Dialog[None]):
    """The whole table; a key that is not valid now is faint."""

    def __init__(self, situation: Situation, *, simulated: bool) -> None:
        super().__init__("Keys", None, leave="Close", simulated=simulated)
        self._situation = situation

    def text(self, width: int) -> Content:
        return help_text(self._situation, width)


def help_text(situation: Situation, width: int) -> Content:
    """Two columns where there is room for them."""
    blocks = [_block(group, situation, width) for group in GROUPS]
    if width < 100:
        return lines([row for block in blocks for row in (*block, Content(""))])
    half = (width - 3) // 2
    blocks = [_block(group, situation, half) for group in GROUPS]
    left: list[Content] = []
    right: list[Content] = []
    for block in blocks:
        target = left if len(left) <= len(right) else right
        target += [*block, Content("")]
    height = max(len(left), len(right))
    left += [Content("")] * (height - len(left))
    right += [Content("")] * (height - len(right))
    return lines(Content.assemble(fit(a, half), "   ", b) for a, b in zip(left, right, strict=True))


def _block(group: Group, situation: Situation, width: int) -> list[Content]:
    out = [heading(group)]
    for action in ACTIONS:
        if action.group == group and action.help:
            out.extend(_rows(action, situation, width))
    return out


def _rows(action: Action, situation: Situation, width: int) -> list[Content]:
    """A key that is not valid now is faint here; pressed, it says why."""
    style = FAINT if action.why_not(situation) else ""
    room = max(10, width - _KEY_WIDTH - _LABEL_WIDTH)
    rows = wrap(action.help, room, 4)
    out = [
        line(
            (pad(action.shown, _KEY_WIDTH), style or KEY),
            (pad(action.label, _LABEL_WIDTH), style or TEXT),
            (rows[0], style or DIM),
        )
    ]
    blank = " " * (_KEY_WIDTH + _LABEL_WIDTH)
    out += [line(blank, (row, style or DIM)) for row in rows[1:]]
    return out
