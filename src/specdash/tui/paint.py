"""The roles of colour, and how lines of text are put together for a widget.

A role is a Textual style with theme variables in it, so that a theme change repaints everything.
Meaning is always carried by a word or a shape first; colour only repeats it.
"""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from rich.cells import cell_len, set_cell_size
from textual.color import Color, ColorParseError
from textual.content import Content
from textual.theme import Theme

from specdash.core.text import Safe, make_safe

TEXT = "$sd-text"
STRONG = "bold $sd-text"
DIM = "$sd-dim"
FAINT = "$sd-faint"
GOOD = "$sd-good"
WARN = "$sd-warn"
BAD = "$sd-bad"
NOW = "$sd-now"
NEXT = "$sd-next"
TRACE = "$sd-trace"
KEY = "bold $sd-key"
BADGE = "bold $sd-badge-text on $sd-badge"
ALERT = "bold $sd-badge-text on $sd-bad"
SELECTED = "on $sd-selected"
SERIES = ("$sd-series-1", "$sd-series-2", "$sd-series-3", "$sd-series-4")

Part = str | tuple[str, str] | Content


@lru_cache(maxsize=4096)
def outside(text: str, *, keep_newlines: bool = False) -> Safe:
    """A plain ``str`` of a core value may quote a host or a file: make it safe where it is shown."""
    return make_safe(text, keep_newlines=keep_newlines)


def visible(text: str) -> Safe:
    """Like :func:`outside`, but a control character shows as its escape instead of acting or
    vanishing: what is about to be run or written must hide nothing."""
    return make_safe("".join(_escape(char) for char in text))


def command(argv: Sequence[str]) -> Safe:
    """An argument list as a shell would take it, with nothing hidden."""
    return visible(shlex.join(argv))


def _escape(char: str) -> str:
    if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return char
    return char.encode("unicode_escape").decode("ascii")


def line(*parts: Part) -> Content:
    """One line. A string is taken as it is (never as markup), a pair is (text, style)."""
    return Content.assemble(*parts)


def lines(rows: Iterable[Content]) -> Content:
    """Several lines as one piece of content."""
    return Content("\n").join(rows)


def fit(content: Content, width: int) -> Content:
    """``content`` cut with an ellipsis, or padded, to exactly ``width`` cells."""
    if width <= 0:
        return Content("")
    return content.truncate(width, ellipsis=True, pad=True)


def spread(left: Content, right: Content, width: int) -> Content:
    """``left`` and ``right`` at the two ends of a line; the right end wins where both cannot fit."""
    room = width - right.cell_length - 1
    if room < 4:
        return fit(left, width)
    return Content.assemble(fit(left, room), " ", right)


def pad(text: str, width: int) -> str:
    """``text`` cut or padded to exactly ``width`` cells, left aligned."""
    if cell_len(text) > width > 0:
        return set_cell_size(text, width - 1) + "…"
    return set_cell_size(text, max(0, width))


def right(text: str, width: int) -> str:
    """``text`` right aligned in ``width`` cells."""
    missing = width - cell_len(text)
    return " " * missing + text if missing > 0 else pad(text, width)


def wrap(text: str, width: int, limit: int = 99) -> list[str]:
    """Break ``text`` at spaces into at most ``limit`` lines; a cut is marked with an ellipsis."""
    if width < 4:
        return [pad(text, max(0, width))]
    out: list[str] = []
    current = ""
    for word in text.split():
        while cell_len(word) > width:
            room = width - cell_len(current) - (1 if current else 0)
            if room < 4:
                out.append(current)
                current = ""
                continue
            head = set_cell_size(word, room).rstrip()
            out.append(f"{current} {head}" if current else head)
            word = word[len(head) :]
            current = ""
        if not word:
            continue
        longer = f"{current} {word}" if current else word
        if cell_len(longer) <= width:
            current = longer
        else:
            out.append(current)
            current = word
    if current:
        out.append(current)
    if len(out) > limit:
        kept = out[:limit]
        kept[-1] = set_cell_size(kept[-1], min(cell_len(kept[-1]), width - 1)).rstrip() + "…"
        return kept
    return out


def bar(fraction: float, width: int, style: str, *, empty: str = "$sd-track") -> Content:
    """A horizontal bar on a fixed axis, to an eighth of a cell."""
    if width <= 0:
        return Content("")
    eighths = round(max(0.0, min(1.0, fraction)) * width * 8)
    if fraction > 0 and eighths == 0:
        eighths = 1
    full, part = divmod(eighths, 8)
    tail = " ▏▎▍▌▋▊▉"[part] if part else ""
    rest = width - full - (1 if tail else 0)
    return Content.assemble(
        ("█" * full, style),
        (tail, f"{style} on {empty}") if tail else "",
        (" " * rest, f"on {empty}") if rest else "",
    )


def joined(parts: Sequence[Part], separator: Part) -> Content:
    """``parts`` with ``separator`` between them."""
    out: list[Part] = []
    for index, part in enumerate(parts):
        if index:
            out.append(separator)
        out.append(part)
    return Content.assemble(*out)


def role_colors(theme: Theme) -> Mapping[str, str]:
    """The value of every ``$sd-`` variable under ``theme``; a theme's own variables win."""
    if theme.ansi:
        return _ansi_roles(theme)
    ink = _color(theme.foreground, "#e0e0e0" if theme.dark else "#1c1c1c")
    paper = _color(theme.background, "#121212" if theme.dark else "#f4f4f4")
    primary = _color(theme.primary, "#5fafff")
    accent = _color(theme.accent, primary.hex)
    good = _color(theme.success, "#5faf5f")
    warn = _color(theme.warning, "#d7af5f")
    bad = _color(theme.error, "#d75f5f")
    second = _color(theme.secondary, primary.hex)
    return {
        "sd-text": ink.hex,
        "sd-dim": paper.blend(ink, 0.66).hex,
        "sd-faint": paper.blend(ink, 0.36).hex,
        "sd-track": paper.blend(ink, 0.12).hex,
        "sd-tint": paper.blend(primary, 0.16).hex,
        "sd-trace": paper.blend(primary, 0.5).hex,
        "sd-selected": paper.blend(primary, 0.22).hex,
        "sd-frame": paper.blend(ink, 0.22).hex,
        "sd-good": good.hex,
        "sd-warn": warn.hex,
        "sd-bad": bad.hex,
        "sd-now": primary.hex,
        "sd-next": accent.hex,
        "sd-key": accent.hex,
        "sd-badge": warn.hex,
        "sd-badge-text": paper.hex,
        "sd-series-1": primary.hex,
        "sd-series-2": accent.hex,
        "sd-series-3": second.hex,
        "sd-series-4": good.hex,
    }


def _ansi_roles(theme: Theme) -> Mapping[str, str]:
    """Sixteen colours of the terminal's own choosing: nothing here can be blended."""
    return {
        "sd-text": "ansi_default",
        "sd-dim": "ansi_default",
        "sd-faint": "ansi_bright_black",
        "sd-track": "ansi_bright_black" if theme.dark else "ansi_white",
        "sd-tint": "ansi_default",
        "sd-trace": "ansi_blue",
        "sd-selected": "ansi_bright_black" if theme.dark else "ansi_white",
        "sd-frame": "ansi_bright_black",
        "sd-good": "ansi_green",
        "sd-warn": "ansi_yellow",
        "sd-bad": "ansi_red",
        "sd-now": "ansi_blue" if not theme.dark else "ansi_cyan",
        "sd-next": "ansi_magenta",
        "sd-key": "ansi_magenta",
        "sd-badge": "ansi_yellow",
        "sd-badge-text": "ansi_black",
        "sd-series-1": "ansi_blue" if not theme.dark else "ansi_cyan",
        "sd-series-2": "ansi_magenta",
        "sd-series-3": "ansi_green",
        "sd-series-4": "ansi_yellow",
    }


def _color(value: str | None, fallback: str) -> Color:
    try:
        parsed = Color.parse(value or fallback)
    except ColorParseError:
        parsed = Color.parse(fallback)
    return parsed if parsed.ansi is None else Color.parse(fallback)
