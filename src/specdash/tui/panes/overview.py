"""The strip of a small terminal: everything the main job needs, whatever pane is open below."""

from __future__ import annotations

from textual.content import Content

from specdash.tui import fmt, strip
from specdash.tui.frame import Frame
from specdash.tui.paint import (
    BAD,
    DIM,
    FAINT,
    GOOD,
    KEY,
    NEXT,
    NOW,
    STRONG,
    TEXT,
    WARN,
    Part,
    bar,
    fit,
    line,
    outside,
    spread,
)
from specdash.tui.panes.base import Drawn
from specdash.tui.panes.bench import status_words
from specdash.tui.panes.editor import next_words
from specdash.tui.panes.gpus import stale_for, totals
from specdash.tui.panes.service import (
    STAGE_MARKS,
    STATE_MARKS,
    back_words,
    cycle_words,
    describe,
    stage_extra,
)

HEIGHT = 4
_LABEL = 7


class Overview(Drawn):
    """Four lines: service and candidate, stage, GPUs, tok/s."""

    def slice(self, frame: Frame) -> tuple[object, ...]:
        view = frame.view
        stale = stale_for(view.gpus, frame.now)
        return (
            view.service,
            view.now,
            view.cycle,
            view.gpus,
            view.queue,
            frame.check,
            int(frame.now) if view.running else 0,
            None if stale is None else int(stale),
        )

    def draw(self, frame: Frame, width: int, height: int) -> list[Content]:
        rows = [
            _service(frame, width),
            _stage(frame, width),
            _gpus(frame, width),
            _bench(frame, width),
        ]
        return rows[:height]


def _label(word: str) -> tuple[str, str]:
    return (f"{word:<{_LABEL}}", DIM)


def _service(frame: Frame, width: int) -> Content:
    view = frame.view
    status = view.service
    state = "unknown" if status is None else status.state
    mark, style = STATE_MARKS[state]
    label = "  now "
    now = describe(view.now) if view.now is not None else "engine does not answer"
    now_style = NOW if view.now is not None else DIM
    if view.starting is not None:
        label, now, now_style = "  starting with ", view.starting.short(), NEXT
    left = line((f"{mark} ", style), (state, f"bold {style}"), (label, DIM), (now, now_style))
    queue = len(view.queue)
    refused = frame.check.resolution is None
    right = line(
        (f"{queue} queued  " if queue else "", DIM),
        (next_words(frame), f"bold {BAD if refused else NEXT}"),
    )
    return spread(left, right, width)


def _stage(frame: Frame, width: int) -> Content:
    cycle = frame.view.cycle
    if cycle is None:
        return fit(line(_label("stage"), ("no cycle yet", DIM)), width)
    stage = cycle.current
    marks = [(STAGE_MARKS[item.state][0], STAGE_MARKS[item.state][1]) for item in cycle.stages]
    if stage is None:
        record = cycle.record
        words: str = "between stages" if record is None else record.outcome
        if record is not None and record.outcome != "measured" and record.end_state:
            words += f"; now {outside(record.end_state)}"
        elif cycle.winding_down:
            words = f"way back: {back_words(cycle)}"
        good = record is not None and record.outcome == "measured"
        head = (f"{cycle_words(cycle)} ", DIM)
        return fit(
            line(_label("stage"), head, *marks, "  ", (words, GOOD if good else TEXT)), width
        )
    elapsed = frame.now - (frame.now if stage.started is None else stage.started)
    limit = "" if stage.deadline_s is None else f" / {fmt.clock(stage.deadline_s)}"
    parts: list[Part] = [
        _label("stage"),
        (f"{cycle_words(cycle)} ", NEXT),
        *marks,
        "  ",
        (f"{stage.name} ", f"bold {NEXT}"),
        (fmt.clock(elapsed), STRONG),
        (limit, DIM),
        (f"  {stage_extra(stage, cycle)}", TEXT),
    ]
    return fit(line(*parts), width)


def _gpus(frame: Frame, width: int) -> Content:
    view = frame.view.gpus
    if view.snapshot is None:
        return fit(line(_label("GPUs"), ("no reading yet", DIM)), width)
    sums = totals(view.snapshot)
    stale = stale_for(view, frame.now)
    figures = f"  {fmt.gib(sums.used_mib)} / {fmt.gib(sums.total_mib)} GiB"
    if sums.power_w is not None:
        figures += f"  {sums.power_w:.0f} W"
    if stale is not None:
        figures += f"  stale {fmt.ago(stale)}"
    style = WARN if stale is not None else STRONG
    if sums.used_mib is None or not sums.total_mib:
        return fit(line(_label("GPUs"), (figures.strip(), style)), width)
    meter = max(4, width - _LABEL - len(figures))
    return fit(
        line(
            _label("GPUs"),
            bar(sums.used_mib / sums.total_mib, meter, FAINT if stale else NOW),
            (figures, style),
        ),
        width,
    )


def _bench(frame: Frame, width: int) -> Content:
    cycle = frame.view.cycle
    if cycle is None or cycle.cell is None:
        return fit(line(_label("tok/s"), ("nothing measured in this session yet", DIM)), width)
    cell = cycle.cell
    status, style = status_words(cell, cycle)
    done, p = cell.measured, cell.progress
    now = done.output_tok_s if done is not None else None if p is None else p.tok_s
    parts: list[Part] = [
        _label("tok/s"),
        (f"{fmt.rate(now)} ", f"bold {NOW}"),
        (f"{status} ", style),
        (f"{cycle.resolution.settings.short()} at {fmt.count(cell.concurrency, 'request')}", TEXT),
    ]
    if done is None and p is not None:
        parts.append((f"  mean {fmt.rate(p.mean_tok_s)}", DIM))
        if not p.warming:
            parts.append((f"  {fmt.clock(p.elapsed_s)} / {fmt.clock(p.budget_s)}", DIM))
    left = line(*parts)
    room = width - left.cell_length - 2
    if room >= 8 and cell.points:
        values = [point.tok_s for point in cell.points[-room:]]
        highest = max((value for value in values if value is not None), default=1.0)
        text = strip.blocks(values, 1, 0.0, highest or 1.0)[0]
        return fit(line(left, "  ", (text, NOW)), width)
    return fit(left, width)


class Tabs(Drawn):
    """The names of the panes on one line, where only one is open."""

    NAMES = ("Service", "GPUs", "Candidate", "Benchmark", "Results")

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.active = 1

    def slice(self, frame: Frame) -> tuple[object, ...]:
        return (self.active,)

    def draw(self, frame: Frame, width: int, height: int) -> list[Content]:
        parts: list[Part] = []
        for number, name in enumerate(self.NAMES, 1):
            chosen = number == self.active
            parts.append((f" {number} ", KEY if not chosen else f"{KEY} on $sd-selected"))
            parts.append((f"{name} ", f"{STRONG} on $sd-selected" if chosen else DIM))
            parts.append(" ")
        return [fit(line(*parts), width)]
