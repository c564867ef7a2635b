"""Sparklines on a fixed axis: a row or more of block eighths, a column a moment."""

from __future__ import annotations

from collections.abc import Sequence

_BLOCKS = " ▁▂▃▄▅▆▇█"

Sample = tuple[float, float | None]


def columns(samples: Sequence[Sample], start: float, end: float, width: int) -> list[float | None]:
    """Spread ``samples`` (time, value), oldest first, over ``width`` columns from start to end.

    A column shows the last sample in it, else what held before it; None before the first sample,
    after the last one, and where the value is unknown.
    """
    if width <= 0:
        return []
    out: list[float | None] = [None] * width
    if not samples or end <= start:
        return out
    step = (end - start) / width
    index = 0
    held: float | None = None
    last = samples[-1][0]
    for column in range(width):
        left, edge = start + column * step, start + (column + 1) * step
        while index < len(samples) and (samples[index][0] < edge or column == width - 1):
            held = samples[index][1]
            index += 1
        if left <= last:
            out[column] = held
    return out


def blocks(values: Sequence[float | None], height: int, low: float, high: float) -> list[str]:
    """``height`` rows of text, top first, for ``values`` on the axis ``low..high``.

    A known value is never drawn as nothing: the lowest row keeps a hairline.
    """
    span = high - low
    full = height * 8
    levels = [
        0
        if value is None or span <= 0
        else max(1, round(max(0.0, min(1.0, (value - low) / span)) * full))
        for value in values
    ]
    return [
        "".join(_BLOCKS[max(0, min(8, level - base))] for level in levels)
        for base in range(full - 8, -8, -8)
    ]


def place_labels(marks: Sequence[tuple[int, str]], width: int) -> str:
    """Put each label at its column on one row, leaving out what would run into another.

    Later marks give way to earlier ones; a label that would run over the edge is left out.
    """
    row = [" "] * max(0, width)
    free_from = 0
    for column, label in marks:
        if column < free_from or column + len(label) > width:
            continue
        row[column : column + len(label)] = list(label)
        free_from = column + len(label) + 1
    return "".join(row)
