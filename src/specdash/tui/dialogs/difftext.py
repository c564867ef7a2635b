"""A unified diff as lines for a dialog, with what differs inside a changed line set off."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len
from textual.content import Content

from specdash.tui.paint import BAD, DIM, FAINT, GOOD, fit, line, visible

AROUND = 48
"""Characters kept on both sides of what differs, where a line is too long to be shown whole."""

_MOST_ROWS = 4
_WORD = re.compile(r"\s+|[^\s]+")

Span = tuple[int, int]


def diff_lines(diff: str, width: int, *, whole: bool = False) -> list[Content]:
    """``diff`` with its signs kept and coloured.

    A changed line is wrapped, and where it is very long (and not ``whole``) cut down to what
    differs; a line that stays is cut at the edge.
    """
    out: list[Content] = []
    first = True
    for sign, text, span in _rows(diff):
        if sign == "@":
            if not first:
                out.append(line((" ⋯", FAINT)))
            first = False
        elif sign == " ":
            out.append(fit(line((f" {text}", DIM)), width))
        else:
            out.extend(_changed(sign, text, span, width, whole))
    return out


def _rows(diff: str) -> Iterator[tuple[str, str, Span]]:
    """Sign, text, and what differs from the line it replaces or is replaced by."""
    removed: list[str] = []
    added: list[str] = []
    # Lines as a diff has them: a carriage return inside one is shown, not obeyed.
    for row in [*map(visible, diff.split("\n")), ""]:
        if row.startswith(("+++ ", "--- ")) and not (removed or added):
            continue
        if row.startswith("-"):
            if added:
                yield from _block(removed, added)
            removed.append(row[1:])
        elif row.startswith("+"):
            added.append(row[1:])
        else:
            yield from _block(removed, added)
            if row.startswith("@@"):
                yield "@", row, (0, 0)
            elif row:
                yield " ", row[1:], (0, 0)


def _block(removed: list[str], added: list[str]) -> Iterator[tuple[str, str, Span]]:
    """Removed and added lines of one place, paired in their order; empties both."""
    pairs = [_difference(a, b) for a, b in zip(removed, added, strict=False)]
    for index, text in enumerate(removed):
        yield "-", text, pairs[index][0] if index < len(pairs) else (0, 0)
    for index, text in enumerate(added):
        yield "+", text, pairs[index][1] if index < len(pairs) else (0, 0)
    removed.clear()
    added.clear()


def _difference(old: str, new: str) -> tuple[Span, Span]:
    """Where two lines differ, from the first to the last word that does."""
    a, b = _WORD.findall(old), _WORD.findall(new)
    head = 0
    while head < min(len(a), len(b)) and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    start = sum(map(len, a[:head]))
    return (
        (start, len(old) - sum(map(len, a[len(a) - tail :]))),
        (start, len(new) - sum(map(len, b[len(b) - tail :]))),
    )


def _changed(sign: str, text: str, span: Span, width: int, whole: bool) -> list[Content]:
    style = GOOD if sign == "+" else BAD
    room = max(8, width - 1)
    if not whole and cell_len(text) > room * _MOST_ROWS and span != (0, 0):
        start, end = max(0, span[0] - AROUND), min(len(text), span[1] + AROUND)
        before, after = "… " if start else "", " …" if end < len(text) else ""
        shift = len(before) - start
        text = before + text[start:end] + after
        span = (span[0] + shift, span[1] + shift)
    out: list[Content] = []
    at = 0
    for piece in _pieces(text, room) or [""]:
        first, last = (min(max(edge - at, 0), len(piece)) for edge in span)
        out.append(
            line(
                (sign if not at else " ", style),
                (piece[:first], style),
                (piece[first:last], f"bold reverse {style}"),
                (piece[last:], style),
            )
        )
        at += len(piece)
    return out


def _pieces(text: str, width: int) -> list[str]:
    """``text`` cut into pieces of at most ``width`` cells, nothing lost."""
    out: list[str] = []
    current, used = "", 0
    for char in text:
        size = cell_len(char)
        if used + size > width and current:
            out.append(current)
            current, used = "", 0
        current += char
        used += size
    return [*out, current] if current else out
