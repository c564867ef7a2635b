"""Line charts: plotext draws the dots, this module the frame.

Every axis is fixed by the caller, so that a flat line looks flat. plotext 6 keeps one public
figure for the whole process; here each drawing makes a figure of its own and drops it, so that
nothing is shared between charts, apps or threads (``benchmarks/charts.py`` has the figures).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import plotext
from rich.cells import cell_len
from textual.content import Content

from specdash.tui.paint import DIM, FAINT, Part

_BLANK = "\u2800"


@dataclass(frozen=True, slots=True)
class Series:
    """One line. A point whose y is None or not finite breaks it.

    ``fill`` tints what lies below. ``marks`` puts a dot, and ``values`` the figure, at each point.
    """

    points: Sequence[tuple[float, float | None]]
    style: str
    fill: str = ""
    marks: str = ""
    values: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """A fixed axis with its ticks."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...] = ()

    def share(self, value: float) -> float:
        """Where ``value`` lies, 0..1 on the axis."""
        span = self.high - self.low
        return 0.0 if span <= 0 else (value - self.low) / span


def nice_ceiling(value: float) -> float:
    """The next step at or above ``value`` whose quarters are round numbers too."""
    if not math.isfinite(value) or value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 4.8, 6, 8, 10):
        if value <= step * power * (1 + 1e-9):
            return step * power
    return 10 * power


def value_axis(highest: float, rows: int) -> Axis:
    """0 to a round ceiling, with as many labels as ``rows`` carry well."""
    high = nice_ceiling(highest)
    parts = 4 if rows >= 9 else 2 if rows >= 5 else 1
    ticks = tuple((high * i / parts, _tick(high * i / parts)) for i in range(parts + 1))
    return Axis(0.0, high, ticks)


def time_axis(end: float, width: int) -> Axis:
    """0 to ``end`` seconds, a label about every 16 columns at a round distance."""
    wanted = max(1, width // 16)
    for step in (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 1800, 3600):
        if end / step <= wanted:
            break
    ticks = []
    at = 0.0
    while at <= end:
        ticks.append((at, f"{at:.0f} s" if at < 120 else f"{at / 60:g} min"))
        at += step
    return Axis(0.0, max(end, 1.0), tuple(ticks))


def draw(
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    width: int,
    height: int,
    *,
    shade: tuple[float, float, str, str] | None = None,
) -> list[Content]:
    """``height`` lines of ``width`` cells: y labels left, x labels below, the lines between.

    ``shade`` is (from x, to x, label, style): a labelled stretch of the x axis.
    """
    gutter = max((cell_len(label) for _, label in y.ticks), default=0)
    inner = width - gutter - 1
    rows = height - (1 if x.ticks else 0)
    if inner < 4 or rows < 2:
        return [Content(" " * max(0, width))] * max(0, height)
    grid = _Grid(inner, rows)
    tick_rows = {grid.row(y.share(value)): label for value, label in y.ticks}
    for row in tick_rows:
        grid.rule(row)
    if shade is not None:
        grid.shade(x.share(shade[0]), x.share(shade[1]), shade[2], shade[3])
    for item in series:
        grid.line(item, x, y)
    for item in series:
        grid.annotate(item, x, y)
    out: list[Content] = []
    for row in range(rows):
        label = tick_rows.get(row, "")
        frame = "┤" if label else "│"
        out.append(
            Content.assemble(
                (" " * (gutter - cell_len(label)) + label, DIM), (frame, FAINT), *grid.parts(row)
            )
        )
    if x.ticks:
        out.append(Content.assemble((" " * (gutter + 1) + _tick_row(x, inner), DIM)))
    return out


class _Grid:
    """Characters and styles of the canvas."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.chars = [[" "] * width for _ in range(height)]
        self.styles = [[""] * width for _ in range(height)]
        self.fills = [[""] * width for _ in range(height)]

    def row(self, share: float) -> int:
        return max(0, min(self.height - 1, round((1 - share) * (self.height - 1))))

    def column(self, share: float) -> int:
        return max(0, min(self.width - 1, round(share * (self.width - 1))))

    def rule(self, row: int) -> None:
        for column in range(self.width):
            if column % 2 == 0:
                self.put(row, column, "·", FAINT)

    def shade(self, start: float, end: float, label: str, style: str) -> None:
        first, last = self.column(start), self.column(end)
        if last - first < 2:
            return
        for row in range(self.height):
            self.put(row, last, "┊", style)
        text = label if len(label) < last - first else ""
        for offset, char in enumerate(text):
            self.put(0, first + offset, char, style)

    def line(self, item: Series, x: Axis, y: Axis) -> None:
        for row, text in enumerate(_raster(item.points, x, y, self.width, self.height)):
            for column, char in enumerate(text[: self.width]):
                if char not in (" ", _BLANK):
                    self.put(row, column, _over(self.chars[row][column], char), item.style)
                    if item.fill:
                        for below in range(row + 1, self.height):
                            self.fills[below][column] = item.fill

    def annotate(self, item: Series, x: Axis, y: Axis) -> None:
        for at, value in item.points:
            if value is None or not math.isfinite(value) or not item.marks:
                continue
            row, column = self.row(y.share(value)), self.column(x.share(at))
            self.put(row, column, item.marks, f"bold {item.style}")
            if item.values:
                self._label(row, column, _tick(value), item.style)

    def _label(self, row: int, column: int, text: str, style: str) -> None:
        if len(text) > self.width:
            return
        start = max(0, min(self.width - len(text), column - len(text) // 2))
        for near in (row - 1, row + 1):
            if not 0 <= near < self.height:
                continue
            cells = self.chars[near][max(0, start - 1) : start + len(text) + 1]
            if all(char in " ·" for char in cells):
                for offset, char in enumerate(text):
                    self.put(near, start + offset, char, style)
                return

    def put(self, row: int, column: int, char: str, style: str) -> None:
        self.chars[row][column] = char
        self.styles[row][column] = style

    def parts(self, row: int) -> list[Part]:
        """One row as runs of one style; a blank joins any run on the same ground."""
        out: list[Part] = []
        run, style, fill = "", "", ""
        cells = zip(self.chars[row], self.styles[row], self.fills[row], strict=True)
        for char, cell_style, cell_fill in cells:
            same = cell_fill == fill and (char == " " or cell_style == style)
            if not same:
                if run:
                    out.append((run, f"{style} on {fill}".strip() if fill else style))
                run, style, fill = "", cell_style, cell_fill
            elif run.isspace():
                style = cell_style
            run += char
        if run:
            out.append((run, f"{style} on {fill}".strip() if fill else style))
        return out


def _raster(
    points: Sequence[tuple[float, float | None]], x: Axis, y: Axis, width: int, height: int
) -> list[str]:
    """The dots of one line as rows of braille characters."""
    segments: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value is None or not math.isfinite(value) or not math.isfinite(at):
            if segments[-1]:
                segments.append([])
            continue
        segments[-1].append((at, max(y.low, min(y.high, value))))
    if x.high <= x.low or y.high <= y.low:
        return []
    # A terminal of our own: the module's public figure is one for the whole process.
    terminal = type(plotext.terminal)()
    terminal.limit(False, False)
    figure = terminal._master
    figure.plot_size(width, height)
    figure.axes(False)
    figure.ruler("both", "both").frequency(0)
    figure.ruler("x").lim(x.low, x.high)
    figure.ruler("y").lim(y.low, y.high)
    for segment in segments:
        if not segment:
            continue
        signal = figure.signal(
            [at for at, _ in segment], [value for _, value in segment], marker="braille"
        )
        if len(segment) > 1:
            signal.lines()
        figure.draw(signal)
    text = figure.build().string(colorless=True)
    return [str(row) for row in text.split("\n")]


def _over(below: str, above: str) -> str:
    """Two braille characters in one cell keep the dots of both."""
    if "\u2800" <= below <= "\u28ff" and "\u2800" <= above <= "\u28ff":
        return chr(ord(below) | ord(above))
    return above


def _tick(value: float) -> str:
    if value >= 9999.5:
        return f"{value / 1000:.0f}k"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _tick_row(axis: Axis, width: int) -> str:
    row = [" "] * width
    free = 0
    for value, label in axis.ticks:
        start = round(axis.share(value) * (width - 1)) - len(label) // 2
        start = max(0, min(width - len(label), start))
        if start < free:
            continue
        row[start : start + len(label)] = list(label)
        free = start + len(label) + 1
    return "".join(row)
