"""Pane 2: GPU memory on a fixed axis, its history across the reload, and who holds it."""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content

from specdash.core.gpu import Gpu, GpuProcess, Snapshot
from specdash.tui import fmt, strip
from specdash.tui.frame import Frame
from specdash.tui.paint import (
    BAD,
    DIM,
    FAINT,
    NOW,
    STRONG,
    TEXT,
    TRACE,
    WARN,
    Part,
    bar,
    fit,
    line,
    outside,
    right,
    spread,
)
from specdash.tui.panes.base import Pane
from specdash.tui.state import GpuView, View, gpu_key

STALE_S = 3.0
NOT_SLOWED = ("idle", "gpu_idle")
"""Among the reasons for the clocks, but nothing is held back."""
SHORTEST_SPAN_S = 60.0
LABEL_WIDTH = 4


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the GPUs that tell; None where none does."""

    gpus: int
    used_mib: int | None
    total_mib: int | None
    power_w: float | None
    utilization: float | None


def totals(snapshot: Snapshot) -> Totals:
    """Memory, power and mean utilisation of all GPUs of a reading."""
    used = [g.memory_used_mib for g in snapshot.gpus if g.memory_used_mib is not None]
    total = [g.memory_total_mib for g in snapshot.gpus if g.memory_total_mib is not None]
    power = [g.power_draw_w for g in snapshot.gpus if g.power_draw_w is not None]
    util = [g.utilization_percent for g in snapshot.gpus if g.utilization_percent is not None]
    return Totals(
        len(snapshot.gpus),
        sum(used) if used else None,
        sum(total) if total else None,
        sum(power) if power else None,
        sum(util) / len(util) if util else None,
    )


def stale_for(view: GpuView, now: float) -> float | None:
    """Age of the reading where it is too old to be called live."""
    age = now - view.t
    return age if view.snapshot is not None and age > STALE_S else None


class GpusPane(Pane):
    """A bar, a sparkline and the holders for each GPU."""

    NUMBER = 2
    NAME = "GPUs"

    def slice(self, frame: Frame) -> tuple[object, ...]:
        stale = stale_for(frame.view.gpus, frame.now)
        return (frame.view.gpus, None if stale is None else int(stale))

    def title(self, frame: Frame) -> Content:
        snapshot = frame.view.gpus.snapshot
        if snapshot is None or not snapshot.gpus:
            return Content("")
        names = {outside(gpu.name or "") for gpu in snapshot.gpus}
        words = f"{len(snapshot.gpus)} × {names.pop()}" if len(names) == 1 else ""
        return line((words, FAINT))

    def subtitle(self, frame: Frame) -> Content:
        view = frame.view.gpus
        stale = stale_for(view, frame.now)
        if stale is not None:
            return line((f"stale {fmt.ago(stale)}", WARN))
        if view.snapshot is None:
            return Content("")
        sums = totals(view.snapshot)
        parts = [f"{fmt.gib(sums.used_mib)} / {fmt.gib(sums.total_mib)} GiB"]
        if sums.power_w is not None:
            parts.append(f"{sums.power_w:,.0f} W".replace(",", " "))
        return line((" · ".join(parts), TEXT))

    def draw(self, frame: Frame, width: int, height: int) -> list[Content]:
        return gpu_lines(frame.view, frame.now, width, height)


def gpu_lines(view: View, now: float, width: int, height: int) -> list[Content]:
    """All GPUs in ``height`` lines: three lines each where there is room, else two, else one."""
    gpus = view.gpus
    snapshot = gpus.snapshot
    if snapshot is None:
        return [line(("no reading yet", DIM))]
    out: list[Content] = []
    for problem in snapshot.problems[:2]:
        out.append(fit(line(("! ", WARN), (outside(problem.message), WARN)), width))
        out.append(fit(line(("  ", DIM), (outside(problem.remedy), DIM)), width))
    count = len(snapshot.gpus)
    if not count:
        return out or [line(("this host reports no GPU", DIM))]
    room = height - len(out)
    marks = bool(gpus.marks) and room >= 2 * count + 1
    if marks:
        room -= 1
    each = room // count
    stale = stale_for(gpus, now) is not None
    window = _window(gpus, now)
    shown = count if each >= 1 else max(0, room - 1)
    for position, gpu in enumerate(snapshot.gpus[:shown]):
        samples = gpus.history.get(gpu_key(gpu, position), ())
        peak = gpus.peaks.get(gpu_key(gpu, position))
        holders = [p for p in snapshot.processes if p.gpu_uuid in (gpu.uuid, None)]
        if each <= 1:
            out.append(_compact_line(gpu, samples, window, width, stale))
            continue
        out.append(_bar_line(gpu, peak, width, stale))
        rows = max(1, min(4, each - 2)) if each >= 3 else 1
        out.extend(_strip_lines(gpu, samples, window, width, rows, gpus))
        if each >= 3:
            out.append(_holder_line(holders, width))
            if each - 2 - rows >= 1 and count > 1:
                out.append(Content(""))
    if marks:
        out.append(_mark_line(gpus, window, width))
    if shown < count:
        out.append(fit(line((f"+{fmt.count(count - shown, 'more GPU')}: z zooms", DIM)), width))
    return out


def _window(gpus: GpuView, now: float) -> tuple[float, float]:
    """The time the sparklines span: all that is kept, never less than a minute."""
    starts = [samples[0][0] for samples in gpus.history.values() if samples]
    start = min(starts, default=now)
    end = max(gpus.t, start + SHORTEST_SPAN_S)
    return start, end


def _memory_style(gpu: Gpu, stale: bool) -> str:
    if gpu.state == "lost":
        return BAD
    return FAINT if stale else NOW


def _bar_line(gpu: Gpu, peak: int | None, width: int, stale: bool) -> Content:
    """``0 ██████░░ 82.1 / 95.6 GiB  98%  412/600 W  67 °C``."""
    label = (f"{_name(gpu):<{LABEL_WIDTH}}", STRONG)
    if gpu.state == "lost":
        return fit(line(label, ("lost: the driver no longer reaches this GPU", BAD)), width)
    figures = _figures(gpu, stale, wide=width >= 84)
    memory = f"{fmt.gib(gpu.memory_used_mib):>6} / {fmt.gib(gpu.memory_total_mib)} GiB"
    used_style = DIM if stale else STRONG
    room = width - LABEL_WIDTH - len(memory) - figures.cell_length - 1
    if room < 6:
        figures = Content("")
        room = width - LABEL_WIDTH - len(memory) - 1
    meter = _meter(gpu, max(4, room), stale, peak)
    return fit(line(label, meter, (memory, used_style), figures), width)


def _meter(gpu: Gpu, width: int, stale: bool, peak: int | None) -> Content:
    used, total = gpu.memory_used_mib, gpu.memory_total_mib
    if used is None or not total:
        return line((fit(Content("memory not reported"), width).plain, DIM))
    meter = bar(used / total, width, _memory_style(gpu, stale))
    place = min(width - 1, int((peak or 0) / total * width))
    if peak is not None and peak > used and place > int(used / total * width):
        # The high-water mark of this cycle stays visible while memory is lower.
        return line(meter[:place], ("▏", f"{DIM} on $sd-track"), meter[place + 1 :])
    return meter


def _figures(gpu: Gpu, stale: bool, *, wide: bool) -> Content:
    style = DIM if stale else TEXT
    util = "" if gpu.utilization_percent is None else f"{gpu.utilization_percent}%"
    power = "" if gpu.power_draw_w is None else f"{gpu.power_draw_w:.0f}"
    if power and wide and gpu.power_limit_w is not None:
        power += f"/{gpu.power_limit_w:.0f}"
    temp = "" if gpu.temperature_c is None else f"{gpu.temperature_c}"
    parts: list[tuple[str, str]] = [
        ("  " + (right(util, 4) if util else " n/a"), style),
        ("  " + (right(power, 7 if wide else 3) + " W" if power else "  n/a"), style),
        ("  " + (right(temp, 2) + "°C" if temp else " n/a"), style),
    ]
    slow = [reason for reason in gpu.throttle_reasons if reason and reason not in NOT_SLOWED]
    if slow:
        parts.append((f"  {outside(slow[0])}", WARN))
    return line(*parts)


def _strip_lines(
    gpu: Gpu,
    samples: tuple[tuple[float, float | None], ...],
    window: tuple[float, float],
    width: int,
    rows: int,
    gpus: GpuView,
) -> list[Content]:
    inner = width - LABEL_WIDTH
    total = gpu.memory_total_mib
    if inner < 4 or not total:
        return [line((" " * LABEL_WIDTH, ""), ("no memory history", FAINT))]
    values = strip.columns(samples, window[0], window[1], inner)
    at = {column for column, _ in _mark_columns(gpus, window, inner)}
    return [
        line(" " * LABEL_WIDTH, *_with_marks(text, at))
        for text in strip.blocks(values, rows, 0.0, float(total))
    ]


def _with_marks(text: str, columns: set[int]) -> list[Part]:
    """The strip with a hairline where a stage began and the strip is blank."""
    out: list[Part] = []
    start = 0
    for column in sorted(columns):
        if column < len(text) and text[column] == " ":
            out += [(text[start:column], TRACE), ("┊", FAINT)]
            start = column + 1
    return [*out, (text[start:], TRACE)]


def _mark_columns(gpus: GpuView, window: tuple[float, float], width: int) -> list[tuple[int, str]]:
    span = window[1] - window[0]
    out: list[tuple[int, str]] = []
    for t, name in gpus.marks:
        column = int((t - window[0]) / span * width) if span > 0 else 0
        if 0 <= column < width:
            out.append((column, name))
    return out


def _mark_line(gpus: GpuView, window: tuple[float, float], width: int) -> Content:
    inner = width - LABEL_WIDTH
    columns = _mark_columns(gpus, window, inner)
    # The stages that move memory get their name first; the rest where there is room left.
    rank = {"load": 0, "stop": 1, "measure": 2, "free": 3, "start": 4, "verify": 5}
    kept: list[tuple[int, str]] = []
    for column, name in sorted(columns, key=lambda item: rank.get(item[1], 9)):
        start, end = column, column + len(name) + 1
        if end <= inner + 1 and all(end < c or start > c + len(n) + 1 for c, n in kept):
            kept.append((column, name))
    row = strip.place_labels([(c, f"╵{n}") for c, n in sorted(kept)], inner)
    ends = f"{window[1] - window[0]:.0f} s"
    if row[-len(ends) - 2 :].strip():
        ends = ""
    return spread(line(" " * LABEL_WIDTH, (row.rstrip(), DIM)), line((ends, FAINT)), width)


def _holder_line(holders: list[GpuProcess], width: int) -> Content:
    if not holders:
        return fit(line(" " * LABEL_WIDTH, ("no process holds memory", FAINT)), width)
    parts: list[str | tuple[str, str]] = [" " * LABEL_WIDTH]
    ordered = sorted(holders, key=lambda p: -(p.used_mib or 0))
    for index, process in enumerate(ordered):
        text = holder_words(process)
        more = len(ordered) - index
        if index and sum(len(p if isinstance(p, str) else p[0]) for p in parts) + len(text) > width:
            parts.append((f"  +{more}", DIM))
            break
        parts.append((("  " if index else "") + text, DIM))
    return fit(line(*parts), width)


def holder_words(process: GpuProcess) -> str:
    """``sglang::scheduler 81.9 GiB pid 4211 root``."""
    whole = outside(process.name or "unnamed process")
    name = whole.split(" ")[0].rsplit("/", 1)[-1] or whole
    used = "" if process.used_mib is None else f" {fmt.gib(process.used_mib)} GiB"
    pid = "" if process.pid is None else f" pid {process.pid}"
    user = "" if not process.user else f" {outside(process.user)}"
    return f"{name}{used}{pid}{user}"


def _compact_line(
    gpu: Gpu,
    samples: tuple[tuple[float, float | None], ...],
    window: tuple[float, float],
    width: int,
    stale: bool,
) -> Content:
    label = (f"{_name(gpu):<{LABEL_WIDTH}}", STRONG)
    if gpu.state == "lost":
        return fit(line(label, ("lost", BAD)), width)
    memory = f" {fmt.gib(gpu.memory_used_mib):>5}/{fmt.gib(gpu.memory_total_mib)} GiB"
    figures = _figures(gpu, stale, wide=False)
    room = width - LABEL_WIDTH - len(memory) - figures.cell_length
    if room < 8:
        figures = Content("")
        room = width - LABEL_WIDTH - len(memory)
    history = room // 2 if room >= 24 else 0
    meter = _meter(gpu, max(4, room - history - (1 if history else 0)), stale, None)
    parts: list[str | tuple[str, str] | Content] = [label, meter]
    if history and gpu.memory_total_mib:
        values = strip.columns(samples, window[0], window[1], history)
        text = strip.blocks(values, 1, 0.0, float(gpu.memory_total_mib))[0]
        parts.extend([" ", (text, TRACE)])
    return fit(line(*parts, (memory, DIM if stale else STRONG), figures), width)


def _name(gpu: Gpu) -> str:
    return "?" if gpu.index is None else str(gpu.index)
