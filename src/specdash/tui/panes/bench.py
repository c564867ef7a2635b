"""Pane 4: the measurement as it runs: one large figure, the live line, the rest beside it."""

from __future__ import annotations

from textual.content import Content

from specdash.core.events import CellProgress
from specdash.core.records import Cell
from specdash.tui import digits, fmt
from specdash.tui.chart import Axis, Series, draw, time_axis, value_axis
from specdash.tui.frame import Frame
from specdash.tui.paint import (
    BAD,
    DIM,
    FAINT,
    GOOD,
    NEXT,
    NOW,
    STRONG,
    TEXT,
    WARN,
    bar,
    fit,
    line,
    wrap,
)
from specdash.tui.panes.base import Pane
from specdash.tui.panes.results import curve_lines
from specdash.tui.state import CellRun, Cycle

FIGURES_WIDTH = 30
NARROWEST_CHART = 26
PAINTS_A_SECOND = 5
"""Of a running cell: more figures than an eye reads would only cost what a key press needs."""
CURVE_ELSEWHERE = 100
"""From this width on the results pane is wide enough to hold the curve itself."""


class BenchPane(Pane):
    """Live tok/s, aggregate and per request, TTFT, accept length, progress against the budget."""

    NUMBER = 4
    NAME = "Benchmark"

    def slice(self, frame: Frame) -> tuple[object, ...]:
        cycle = frame.view.cycle
        if cycle is None:
            return (None, frame.results, frame.column)
        return (cycle.record, cycle.current, *_moment(cycle.cell), frame.results, frame.column)

    def title(self, frame: Frame) -> Content:
        cycle = frame.view.cycle
        if cycle is None or cycle.cell is None:
            return Content("")
        settings = cycle.resolution.settings
        words = f"{settings.short()} at {fmt.count(cycle.cell.concurrency, 'request')}"
        return line((words, TEXT))

    def subtitle(self, frame: Frame) -> Content:
        cycle = frame.view.cycle
        if cycle is None or cycle.cell is None:
            return Content("")
        wanted = cycle.concurrency
        place = (
            wanted.index(cycle.cell.concurrency) + 1 if cycle.cell.concurrency in wanted else None
        )
        words = "" if place is None else f"cell {place} of {len(wanted)}"
        return line((words, DIM))

    def draw(self, frame: Frame, width: int, height: int) -> list[Content]:
        return bench_lines(frame, width, height)


def _moment(cell: CellRun | None) -> tuple[object, ...]:
    """What of a cell is worth a repaint: a fifth of a second, and what must be seen at once."""
    if cell is None:
        return (None,)
    warming = cell.progress is None or cell.progress.warming
    at = round(cell.points[-1].t * PAINTS_A_SECOND) if cell.points else -1
    failed = 0 if cell.progress is None else cell.progress.failed
    return (cell.concurrency, cell.started, cell.measured, warming, failed, at)


def bench_lines(frame: Frame, width: int, height: int) -> list[Content]:
    """Figures left, chart right; figures alone where it is narrow."""
    cycle = frame.view.cycle
    if cycle is None or cycle.cell is None:
        return _waiting(frame, width, height)
    cell = cycle.cell
    left_width = min(FIGURES_WIDTH, width)
    if width - left_width - 1 < NARROWEST_CHART:
        left_width = width
    left = _figures(cycle, cell, left_width, height)
    if left_width == width:
        return left
    right = _live_chart(cycle, cell, width - left_width - 1, height)
    blank = Content(" " * left_width)
    left += [blank] * (height - len(left))
    return [Content.assemble(fit(a, left_width), " ", b) for a, b in zip(left, right, strict=False)]


def _waiting(frame: Frame, width: int, height: int) -> list[Content]:
    """What comes, and until then the curve so far where the results pane has no room for it."""
    cycle = frame.view.cycle
    if cycle is not None and cycle.running and cycle.current is not None:
        wanted = [str(c) for c in cycle.concurrency]
        after = " and ".join(filter(None, (", ".join(wanted[:-1]), wanted[-1]))) if wanted else ""
        words = f"Waits for the service: {cycle.current.name} runs."
        words += f" Then {after} requests at a time." if after else ""
    else:
        words = "Nothing is being measured. m measures what runs now, with no restart."
    out = [line((text, DIM)) for text in wrap(words, width, 3)]
    if frame.results.concurrencies and width < CURVE_ELSEWHERE and height - len(out) >= 7:
        out.append(Content(""))
        out.extend(curve_lines(frame, width, height - len(out)))
    return out


def status_words(cell: CellRun, cycle: Cycle) -> tuple[str, str]:
    """What the cell is doing, and its style."""
    if cell.measured is not None:
        if not cell.measured.good:
            return "failed: no good request", BAD
        return ("cut", WARN) if "cut" in cell.measured.flags else ("measured", GOOD)
    if not cycle.running:
        return "ended", DIM
    progress = cell.progress
    if progress is None:
        return "starting", DIM
    return ("warming up", WARN) if progress.warming else ("measuring", NEXT)


def _figures(cycle: Cycle, cell: CellRun, width: int, height: int) -> list[Content]:
    progress, done = cell.progress, cell.measured
    status, style = status_words(cell, cycle)
    now = done.output_tok_s if done is not None else None if progress is None else progress.tok_s
    out: list[Content] = []
    if height >= 7:
        text = fmt.UNKNOWN if now is None else fmt.rate(now).replace(" ", "")
        rows = digits.large(text) if now is not None else ["", "  n/a", ""]
        if len(rows[0]) > width - 8:
            rows = ["", f"  {text}", ""]
        unit = ["", status, "tok/s"]
        out.extend(
            fit(line((row, f"bold {NOW}"), "  ", (unit[i], style if i == 1 else DIM)), width)
            for i, row in enumerate(rows)
        )
        if height >= 11:
            out.append(Content(""))
    else:
        out.append(
            fit(line((fmt.rate(now), f"bold {NOW}"), (" tok/s ", DIM), (status, style)), width)
        )
    rows_left = height - len(out)
    rest = _live_rows(cell, width) if done is None else _done_rows(done, width)
    if done is None and progress is not None and rows_left >= 4:
        rest.append(_progress_line(progress, width))
    return [*out, *rest[:rows_left]]


def _pair(label: str, value: str, width: int, style: str = TEXT, extra: str = "") -> Content:
    return fit(
        line((f"{label:<12}", DIM), (value, style), (f" {extra}" if extra else "", DIM)), width
    )


def _live_rows(cell: CellRun, width: int) -> list[Content]:
    p = cell.progress
    if p is None:
        return [_pair("in flight", "not yet", width, DIM)]
    failed = (f"failed {p.failed}", BAD) if p.failed else ("", DIM)
    return [
        _pair("mean", fmt.rate(p.mean_tok_s), width, STRONG, "tok/s"),
        _pair("per request", fmt.rate(p.per_request_tok_s), width, NEXT, "tok/s"),
        _pair("TTFT", fmt.millis(p.ttft_ms), width),
        _accept(p.accept_length, width),
        fit(
            line(
                ("in flight   ", DIM),
                (f"{p.in_flight} of {p.concurrency}", TEXT),
                (f"  done {p.done}  ", DIM),
                failed,
            ),
            width,
        ),
    ]


def _done_rows(cell: Cell, width: int) -> list[Content]:
    bad = cell.requests.failed
    half = fmt.half_width(cell.output_tok_s_low, cell.output_tok_s_high)
    return [
        _pair("interval", half or fmt.UNKNOWN, width, STRONG, "tok/s, 95 %"),
        _pair("per request", fmt.rate(cell.per_request_tok_s), width, TEXT, "tok/s"),
        _pair("TTFT", fmt.millis(cell.ttft_ms.p50), width, TEXT, "median"),
        _accept(cell.accept_length, width),
        fit(
            line(
                ("requests    ", DIM),
                (f"{cell.requests.ok} good", TEXT),
                (f"  {bad} failed", BAD) if bad else "",
            ),
            width,
        ),
    ]


def _accept(value: float | None, width: int) -> Content:
    text = fmt.UNKNOWN if value is None else f"{value:.2f}"
    return _pair("accept len", text, width, TEXT, "tok a round" if value is not None else "")


def _progress_line(p: CellProgress, width: int) -> Content:
    if p.warming:
        return fit(line(("warm-up: left out of the figures", WARN)), width)
    times = f" {fmt.clock(p.elapsed_s)} / {fmt.clock(p.budget_s)}"
    meter = max(4, min(16, width - len(times)))
    share = p.elapsed_s / p.budget_s if p.budget_s > 0 else 0.0
    return fit(line(bar(share, meter, NEXT), (times, DIM)), width)


def _live_chart(cycle: Cycle, cell: CellRun, width: int, height: int) -> list[Content]:
    points = cell.points
    highest = max((p.tok_s for p in points if p.tok_s is not None), default=0.0)
    y = value_axis(highest * 1.05, height - 1)
    last = points[-1].t if points else 0.0
    budget = cell.progress.budget_s if cell.progress is not None else 0.0
    warm = [p.t for p in points if p.warming]
    warm_end = max(warm, default=0.0)
    end = max(last, warm_end + budget) if cell.measured is None else max(last, 1.0)
    x = time_axis(end, width)
    x = Axis(0.0, end, x.ticks)
    series = [
        Series([(p.t, p.tok_s) for p in points], NOW, fill="$sd-tint"),
        Series([(p.t, p.per_request_tok_s) for p in points], NEXT),
    ]
    if cell.concurrency == 1:
        # One request is the aggregate: a second line would only hide the first.
        del series[1:]
    shade = (0.0, warm_end, "warm-up", FAINT) if warm else None
    return draw(series, x, y, width, height, shade=shade)
