"""Every key and what it does, from the one table of actions."""

from __future__ import annotations

from textual.content import Content

from specdash.tui.actions import ACTIONS, Action, Group, Situation
from specdash.tui.dialogs.base import Dialog, heading
from specdash.tui.paint import DIM, FAINT, KEY, TEXT, fit, line, lines, pad, wrap

GROUPS: tuple[Group, ...] = ("Run", "Candidate", "Results", "Log", "Look", "Leave")
_KEY_WIDTH = 7
_LABEL_WIDTH = 12
_WHERE = {"editor": "in Candidate", "results": "in Results", "log": "in the log"}


class HelpDialog(Dialog[None]):
    """The whole table; an action that cannot be done now says why."""

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
        if action.group == group:
            out.extend(_rows(action, situation, width))
    if group == "Candidate":
        out.append(
            line(
                (pad("0-9", _KEY_WIDTH), KEY),
                (pad("type", _LABEL_WIDTH), TEXT),
                ("in Candidate: type the number", DIM),
            )
        )
    return out


def _rows(action: Action, situation: Situation, width: int) -> list[Content]:
    why = action.why_not(situation)
    where = _WHERE.get(action.scope, "")
    words = f"{where}: {action.help[0].lower()}{action.help[1:]}" if where else action.help
    if why:
        words += f" Not now: {why}"
    room = max(10, width - _KEY_WIDTH - _LABEL_WIDTH)
    rows = wrap(words, room, 4)
    key_style = FAINT if why else KEY
    out = [
        line(
            (pad(action.key, _KEY_WIDTH), key_style),
            (pad(action.label, _LABEL_WIDTH), FAINT if why else TEXT),
            (rows[0], FAINT if why else DIM),
        )
    ]
    blank = " " * (_KEY_WIDTH + _LABEL_WIDTH)
    out += [line(blank, (row, FAINT if why else DIM)) for row in rows[1:]]
    return out
