"""Figures as text. Unknown is ``n/a``, never 0."""

from __future__ import annotations

import time
from collections.abc import Mapping

UNKNOWN = "n/a"


def time_of_day(wall: float) -> str:
    """``HH:MM:SS`` here, of seconds since the epoch."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(wall))
    except (OverflowError, OSError, ValueError):
        return "--:--:--"


def clock(seconds: float | None) -> str:
    """A running time: ``0:41``, ``12:03``, ``1:02:03``."""
    if seconds is None:
        return UNKNOWN
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, secs = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{secs:02d}" if hours else f"{minutes}:{secs:02d}"


def took(seconds: float | None) -> str:
    """A finished time: ``0.8 s``, ``41 s``, ``2 min 05 s``."""
    if seconds is None:
        return UNKNOWN
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def ago(seconds: float) -> str:
    """How long ago: ``12 s``, ``4 min``, ``3 h``, ``2 d``."""
    whole = max(0, int(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if whole >= size * (1 if unit != "h" else 2):
            return f"{whole // size} {unit}"
    return f"{whole} s"


def gib(mib: int | None) -> str:
    """MiB as GiB with one decimal, without the unit."""
    return UNKNOWN if mib is None else f"{mib / 1024:.1f}"


def rate(value: float | None) -> str:
    """Tokens per second: one decimal below 100, whole above, grouped from 10 000."""
    if value is None:
        return UNKNOWN
    if abs(value) < 99.95:
        return f"{value:.1f}"
    return f"{value:.0f}" if abs(value) < 9999.5 else f"{value:,.0f}".replace(",", " ")


def millis(value: float | None) -> str:
    """``182 ms``, ``1.84 s``."""
    if value is None:
        return UNKNOWN
    return f"{value:.0f} ms" if value < 9999.5 / 10 else f"{value / 1000:.2f} s"


def half_width(low: float | None, high: float | None) -> str:
    """Half of an interval, ``±3``; "" where there is none."""
    if low is None or high is None:
        return ""
    half = abs(high - low) / 2
    return f"±{half:.1f}" if half < 9.95 else f"±{half:.0f}"


def change(fraction: float | None) -> str:
    """A change against something: ``+21%``, ``-3%``, ``+0%``."""
    if fraction is None:
        return ""
    percent = fraction * 100
    rounded = round(percent)
    if rounded == 0:
        return "±0%"
    return f"{rounded:+d}%" if abs(rounded) < 1000 else f"x{fraction + 1:.1f}"


def count(number: int, word: str, plural: str | None = None) -> str:
    """``1 request``, ``4 requests``."""
    return f"{number} {word if number == 1 else plural or word + 's'}"


def causes(errors: Mapping[str, int]) -> str:
    """Why requests failed, the most frequent first: ``http-500 × 32, timeout × 1``."""
    ordered = sorted(errors.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{cause} × {number}" for cause, number in ordered)
