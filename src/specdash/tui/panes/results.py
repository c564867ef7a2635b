"""Pane 5: the table that grows: depth x concurrency, and the curve."""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content

from specdash.core.records import CellFlag
from specdash.tui import fmt, strip
from specdash.tui.chart import Axis, Series, draw, value_axis
from specdash.tui.frame import Frame
from specdash.tui.paint import (
    BAD,
    DIM,
    FAINT,
    GOOD,
    NEXT,
    NOW,
    SELECTED,
    SERIES,
    STRONG,
    TEXT,
    WARN,
    Part,
    fit,
    line,
    outside,
    pad,
    right,
    wrap,
)
from specdash.tui.panes.base import Pane
from specdash.tui.table import Change, Entry, Results, Row

FLAG_WORDS: dict[CellFlag, str] = {
    "queued": "queued: more requests than the engine runs at once",
    "client-bound": "client-bound: this machine was the limit",
    "throttled": "throttled: the GPU clocks fell",
    "estimated-tokens": "tokens estimated: the server gave no usage",
    "not-fresh": "not fresh: measured without a restart",
    "short": "short: the budget ended before the interval was tight",
    "cut": "cut: ended early by the operator",
    "failed": "failed requests",
    "no-ignore-eos": "answers ended early: the server takes no ignore_eos",
}
NARROWEST_CHART = 34


@dataclass(frozen=True, slots=True)
class Shape:
    """What one concurrency's block of columns shows at this width."""

    half: bool
    reference: bool
    gain: bool
    tight: bool = False

    @property
    def label(self) -> int:
        """Width of the column that names the candidate."""
        return 9 if self.tight else 15

    @property
    def accept(self) -> int:
        return 7 if self.tight else 8

    @property
    def value(self) -> int:
        """Width of a figure without its warning sign."""
        return 7

    @property
    def change(self) -> int:
        return 6 if self.tight else 7

    @property
    def width(self) -> int:
        changes = self.change * (self.reference + self.gain)
        return self.value + 1 + (6 if self.half else 0) + changes

    def table(self, columns: int) -> int:
        """Width of the whole table with this many concurrencies."""
        return self.label + self.accept + self.width * columns


SHAPES = (
    Shape(True, True, True),
    Shape(False, True, True),
    Shape(False, True, True, tight=True),
    Shape(False, True, False, tight=True),
    Shape(False, False, False, tight=True),
)


class ResultsPane(Pane):
    """The results table, its words, and the curve of tok/s over depth."""

    NUMBER = 5
    NAME = "Results"

    def slice(self, frame: Frame) -> tuple[object, ...]:
        return (frame.results, frame.cursor, frame.column, self.has_focus)

    def title(self, frame: Frame) -> Content:
        row = next((row for row in frame.results.rows if row.reference), None)
        if row is None:
            return Content("")
        return line(("change against ", FAINT), (row_name(row, frame), DIM))

    def draw(self, frame: Frame, width: int, height: int) -> list[Content]:
        return result_lines(frame, width, height, focused=self.has_focus)


def row_name(row: Row, frame: Frame) -> str:
    """``steps 4``; ``off``."""
    if row.settings.short() == "off":
        return "off"
    return f"{outside(frame.words.knob)} {row.steps if row.steps >= 0 else '?'}"


def result_lines(frame: Frame, width: int, height: int, *, focused: bool) -> list[Content]:
    """Table left and curve right where there is room; else the curve below, or no curve."""
    results = frame.results
    if not results.rows:
        words = "No results yet. Each measured candidate adds a row here and a point to the curve."
        return [line((text, DIM)) for text in wrap(words, width, 2)]
    minimum = SHAPES[1].table(len(results.concurrencies))
    beside = width - minimum - 2 >= NARROWEST_CHART and height >= 6
    if beside:
        full = SHAPES[0].table(len(results.concurrencies))
        table_width = full if width - full - 2 >= NARROWEST_CHART + 6 else minimum
        table = table_lines(frame, table_width, height, focused=focused)
        chart = curve_lines(frame, width - table_width - 2, height)
        blank = Content(" " * table_width)
        table += [blank] * (height - len(table))
        return [
            Content.assemble(fit(a, table_width), "  ", b)
            for a, b in zip(table, chart, strict=False)
        ]
    wanted = len(results.rows) + 4
    if height - wanted >= 8:
        table = table_lines(frame, width, wanted, focused=focused)
        return [*table, *curve_lines(frame, width, height - len(table))]
    return table_lines(frame, width, height, focused=focused)


def table_lines(frame: Frame, width: int, height: int, *, focused: bool) -> list[Content]:
    """Two header lines, the rows around the cursor, and the chosen row in words."""
    results = frame.results
    columns = results.concurrencies
    shape = next(
        (s for s in SHAPES if s.table(len(columns)) <= width),
        SHAPES[-1],
    )
    fits = max(1, (width - shape.table(0)) // shape.width)
    first = max(0, min(frame.column - fits // 2, len(columns) - fits))
    shown = columns[first : first + fits]
    head = _head(frame, shown, shape, width)
    words = _row_words(frame, width)
    room = max(1, height - len(head) - min(len(words), 2 if height >= 8 else 1))
    top = max(0, min(frame.cursor - room // 2, len(results.rows) - room))
    body = [
        _row_line(frame, row, index == frame.cursor, focused, shown, shape, width)
        for index, row in list(enumerate(results.rows))[top : top + room]
    ]
    left = height - len(head) - len(body)
    return [*head, *body, *words[: max(0, left)]]


def _head(frame: Frame, columns: tuple[int, ...], shape: Shape, width: int) -> list[Content]:
    word = outside(frame.words.knob)
    top: list[Part] = [(" " * shape.table(0), "")]
    names: list[Part] = [
        (pad(f"  {word}", shape.label), DIM),
        (right("accept", 6).ljust(shape.accept), DIM),
    ]
    for concurrency in columns:
        chosen = concurrency == frame.concurrency
        title = fmt.count(concurrency, "request")
        style = f"bold {series_style(frame, concurrency)}"
        title = pad(("▾ " if chosen else "  ") + title, 15)[: shape.width]
        small = _miniature(frame, concurrency)
        rest = shape.width - len(title)
        top.append((title + (small if len(small) < rest else "").ljust(rest), style))
        names.append((right("tok/s", shape.value) + " ", DIM))
        if shape.half:
            names.append((pad("95 %", 6), FAINT))
        if shape.reference:
            names.append((right("vs ref", 6).ljust(shape.change), DIM))
        if shape.gain:
            names.append((right("gain", 6).ljust(shape.change), DIM))
    return [fit(line(*top), width), fit(line(*names), width)]


def _miniature(frame: Frame, concurrency: int) -> str:
    """The curve in a few characters, a depth each, on an axis from 0."""
    points = frame.results.curve(concurrency)
    highest = max((value for _, value in points), default=0.0)
    if len(points) < 2 or highest <= 0:
        return ""
    return strip.blocks([value for _, value in points], 1, 0.0, highest)[0]


def series_style(frame: Frame, concurrency: int) -> str:
    """Each concurrency keeps its colour in the table and in the curve."""
    columns = frame.results.concurrencies
    return SERIES[columns.index(concurrency) % len(SERIES)] if concurrency in columns else NOW


def _row_line(
    frame: Frame,
    row: Row,
    chosen: bool,
    focused: bool,
    columns: tuple[int, ...],
    shape: Shape,
    width: int,
) -> Content:
    name = "off" if row.settings.short() == "off" else str(row.steps if row.steps >= 0 else "?")
    short = row.settings.short() if "/" in row.settings.short() and not shape.tight else ""
    label = f"{'▸' if chosen else ' '} {name:<3} {short}"
    tag = " ref" if row.reference else " run" if row.running else ""
    accept = "" if row.accept_length is None else f"{row.accept_length:.2f}"
    parts: list[Part] = [
        (
            pad(label.rstrip(), shape.label - len(tag)),
            STRONG if not row.running else f"bold {NEXT}",
        ),
        (tag, DIM if row.reference else NEXT),
        (right(accept, 6).ljust(shape.accept), DIM),
    ]
    if row.failed and not any(entry.cell.good for entry in row.entries.values()):
        room = max(4, width - shape.table(0))
        parts.append((pad(f"✗ {outside(row.failed)}", room), BAD))
    else:
        for concurrency in columns:
            parts.extend(_block(row, row.entries.get(concurrency), shape))
    out = fit(line(*parts), width)
    return out.stylize(SELECTED) if chosen and focused else out


def _block(row: Row, entry: Entry | None, shape: Shape) -> list[Part]:
    if entry is None:
        return [(right("·", shape.value).ljust(shape.width), FAINT)]
    cell = entry.cell
    warned = any(flag != "not-fresh" for flag in cell.flags)
    if cell.output_tok_s is None:
        words = "failed" if cell.requests.failed or "failed" in cell.flags else fmt.UNKNOWN
        return [((right(words, shape.value) + "!").ljust(shape.width), BAD)]
    style = f"bold {GOOD}" if entry.best else TEXT
    text = fmt.rate(cell.output_tok_s)
    parts: list[Part] = [
        (right(("◆ " if entry.best else "") + text, shape.value), style),
        ("!" if warned else " ", WARN),
    ]
    if shape.half:
        half = fmt.half_width(cell.output_tok_s_low, cell.output_tok_s_high)
        parts.append((pad(half, 6), FAINT))
    if shape.reference:
        word = "ref" if row.reference else ""
        parts.append(_change(word, entry.against_reference, shape.change))
    if shape.gain:
        parts.append(_change("", entry.marginal, shape.change))
    return parts


def _change(word: str, change: Change | None, width: int) -> Part:
    if change is None:
        return (right(word, 6).ljust(width), FAINT)
    text = fmt.change(change.fraction)
    if not change.clear:
        # The intervals overlap: a difference nobody has seen.
        return (right(f"≈{text}", 6).ljust(width), DIM)
    return (right(text, 6).ljust(width), GOOD if change.fraction > 0 else WARN)


def _row_words(frame: Frame, width: int) -> list[Content]:
    """The chosen row in words: runs, note, and every flag of its cells."""
    row = frame.row
    if row is None:
        return []
    name = row_name(row, frame)
    if "/" in row.settings.short():
        name += f" ({row.settings.short()})"
    parts: list[Part] = [("▸ ", DIM), (f"{name}: ", STRONG)]
    facts: list[str] = []
    if row.runs:
        verb = "measured" if row.entries else "tried"
        facts.append(f"{verb} {row.runs}×" if row.runs > 1 else f"{verb} once")
    if any(e.best for e in row.entries.values()):
        best = [fmt.count(c, "request") for c, e in row.entries.items() if e.best]
        facts.append("◆ fastest at " + ", ".join(best))
    if row.note:
        facts.append(f"note: {outside(row.note)}")
    parts.append((" · ".join(facts), DIM))
    flags = [*_flag_words(row), *_causes(row)]
    out = [fit(line(*parts), width)]
    if row.failed:
        out.append(fit(line(("  ✗ ", BAD), (outside(row.failed), BAD)), width))
    if flags:
        out.append(fit(line(("  ! ", WARN), ("; ".join(flags), WARN)), width))
    return out


def _causes(row: Row) -> list[str]:
    """Why requests of a cell failed, with how many."""
    return [
        f"at {concurrency}: {outside(fmt.causes(entry.cell.requests.errors))}"
        for concurrency, entry in sorted(row.entries.items())
        if entry.cell.requests.errors
    ]


def _flag_words(row: Row) -> list[str]:
    seen: dict[CellFlag, list[int]] = {}
    for concurrency, entry in sorted(row.entries.items()):
        for flag in entry.cell.flags:
            seen.setdefault(flag, []).append(concurrency)
    everywhere = len(row.entries)
    out = []
    for flag, places in seen.items():
        where = "" if len(places) == everywhere else f"at {', '.join(map(str, places))}: "
        out.append(where + FLAG_WORDS.get(flag, flag))
    return out


def curve_lines(frame: Frame, width: int, height: int) -> list[Content]:
    """tok/s over depth: a small chart a concurrency side by side, or the chosen one alone.

    Each has an axis of its own from 0, since aggregate tok/s at 16 requests dwarfs one request.
    """
    columns = frame.results.concurrencies
    if not columns or height < 4:
        return [Content("")] * max(0, height)
    each = (width - 2 * (len(columns) - 1)) // len(columns)
    if each >= 26:
        charts = [_curve(frame, c, each, height) for c in columns]
        return [Content("  ").join([chart[row] for chart in charts]) for row in range(height)]
    return _curve(frame, frame.concurrency or columns[0], width, height)


def _curve(frame: Frame, concurrency: int, width: int, height: int) -> list[Content]:
    results: Results = frame.results
    points = results.curve(concurrency)
    style = series_style(frame, concurrency)
    words = "tok/s over depth, " if width >= 34 else "tok/s, "
    name = fmt.count(concurrency, "request")
    indent = " " * max(0, (width - len(words) - len(name)) // 2)
    title = fit(line(indent, (words, DIM), (name, f"bold {style}")), width)
    depths = [row.steps for row in results.rows if row.steps >= 0]
    low, high = min(depths, default=0), max(depths, default=1)
    if low == high:
        low, high = max(0, low - 1), high + 1
    pad_x = (high - low) * 0.04
    whole = {*depths, low, high}
    if high - low <= 12:
        whole = set(range(low, high + 1))
    x = Axis(
        low - pad_x,
        high + pad_x,
        tuple((float(d), "off" if d == 0 else str(d)) for d in sorted(whole)),
    )
    y = value_axis(max((value for _, value in points), default=1.0) * 1.12, height - 2)
    series = [Series([(float(k), value) for k, value in points], style, marks="●", values=True)]
    return [title, *draw(series, x, y, width, height - 1)]
