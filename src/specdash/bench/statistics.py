"""Percentiles and intervals. Pure; no figure without its method.

The interval of a rate is *batch means*: the window is cut into equal slices, the rates of the
slices are treated as draws, and because what a server does now depends on what it did just
before, the slices are made longer until neighbours no longer look alike (lag-1 autocorrelation
small); where they still do with the fewest slices, the variance is widened by the factor an
AR(1) process would need. Student's t with slices - 1 degrees of freedom gives 95 %.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from specdash.core.records import Spread

METHOD = "batch means over equal time slices, 95 %, Student's t, widened for autocorrelation"

SLICE_COUNTS = (40, 20, 10)
"""Tried in this order: the most slices whose neighbours do not look alike."""

FINEST = SLICE_COUNTS[0]
MIN_ARRIVALS_PER_SLICE = 2.0
MAX_CORRELATION = 0.2

# Two-sided 95 % quantiles of Student's t by degrees of freedom.
_T95 = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    7: 2.365,
    8: 2.306,
    9: 2.262,
    10: 2.228,
    12: 2.179,
    14: 2.145,
    16: 2.120,
    19: 2.093,
    25: 2.060,
    30: 2.042,
    39: 2.023,
    60: 2.000,
    120: 1.980,
}


def t95(freedom: int) -> float:
    """Student's t, two-sided 95 %; between rows of the table the wider one."""
    if freedom < 1:
        return math.inf
    return _T95[max(row for row in _T95 if row <= freedom)]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval, from ``slices`` slices."""

    mean: float
    low: float
    high: float
    slices: int


def batch_means(slices: Sequence[float], mean: float, arrivals: int) -> Interval | None:
    """The interval of ``mean`` from the rates of :data:`FINEST` equal time slices.

    None where fewer than two arrivals fall into a slice at the fewest slices.
    """
    best: Interval | None = None
    for count in SLICE_COUNTS:
        if arrivals < count * MIN_ARRIVALS_PER_SLICE:
            continue
        rates = merged(slices, count)
        correlation = autocorrelation(rates)
        best = _interval(rates, correlation, mean)
        if correlation <= MAX_CORRELATION:
            break
    return best


def merged(slices: Sequence[float], count: int) -> list[float]:
    """The mean rates of ``count`` longer slices."""
    width = len(slices) // count
    return [math.fsum(slices[k * width : (k + 1) * width]) / width for k in range(count)]


def slice_rates(
    curves: Sequence[tuple[Sequence[float], Sequence[int]]], opened: float, closed: float
) -> list[float]:
    """Tokens a second in each of :data:`FINEST` equal slices of the window.

    A curve is (moments, tokens by then) of one request. Between two arrivals the tokens are
    taken as made evenly: which side of a border a whole chunk fell on says nothing of the
    server's pace, and would only widen the interval.
    """
    width = (closed - opened) / FINEST
    borders = [opened + place * width for place in range(FINEST)] + [closed]
    made = [0.0] * (FINEST + 1)
    for times, totals in curves:
        for place, border in enumerate(borders):
            made[place] += _made_by(times, totals, border)
    return [(after - before) / width for before, after in pairwise(made)]


def _made_by(times: Sequence[float], totals: Sequence[int], moment: float) -> float:
    after = bisect_right(times, moment)
    if after == 0:
        return 0.0
    if after == len(times):
        return float(totals[-1])
    share = (moment - times[after - 1]) / (times[after] - times[after - 1])
    return totals[after - 1] + (totals[after] - totals[after - 1]) * share


def autocorrelation(values: Sequence[float]) -> float:
    """Lag-1 autocorrelation; 0 for a constant series."""
    mean = math.fsum(values) / len(values)
    centred = [value - mean for value in values]
    power = math.fsum(value * value for value in centred)
    if power <= 0:
        return 0.0
    return math.fsum(a * b for a, b in pairwise(centred)) / power


def _interval(rates: Sequence[float], correlation: float, mean: float) -> Interval:
    slices = len(rates)
    centre = math.fsum(rates) / slices
    variance = math.fsum((rate - centre) ** 2 for rate in rates) / (slices - 1)
    if correlation > MAX_CORRELATION:
        bounded = min(correlation, 0.9)
        variance *= (1 + bounded) / (1 - bounded)
    half = t95(slices - 1) * math.sqrt(variance / slices)
    return Interval(mean, max(0.0, mean - half), mean + half, slices)


def spread(values: Sequence[float], weights: Sequence[int] | None = None) -> Spread:
    """Mean and percentiles in the unit given; with weights, as if each value stood there that
    often. Percentiles interpolate linearly between ranks."""
    pairs = sorted(zip(values, weights or [1] * len(values), strict=True))
    pairs = [pair for pair in pairs if pair[1] > 0]
    if not pairs:
        return Spread()
    ends = list(accumulate(weight for _, weight in pairs))
    total = ends[-1]
    mean = math.fsum(value * weight for value, weight in pairs) / total

    def at(fraction: float) -> float:
        rank = fraction * (total - 1)
        below = math.floor(rank)
        low = pairs[bisect_left(ends, below + 1)][0]
        high = pairs[bisect_left(ends, min(below + 2, total))][0]
        return low + (high - low) * (rank - below)

    return Spread(mean=mean, p50=at(0.5), p95=at(0.95), p99=at(0.99))


@dataclass(frozen=True, slots=True)
class Difference:
    """``after - before`` with its 95 % interval (None where one of the two has none)."""

    value: float
    low: float | None
    high: float | None

    @property
    def verdict(self) -> str:
        """``better`` or ``worse`` where the interval leaves 0 out, ``same`` where it does not,
        ``unknown`` without an interval."""
        if self.low is None or self.high is None:
            return "unknown"
        if self.low > 0:
            return "better"
        if self.high < 0:
            return "worse"
        return "same"


def difference(
    before: tuple[float, float | None, float | None],
    after: tuple[float, float | None, float | None],
) -> Difference:
    """The difference of two independent figures, each (mean, low, high): half-widths add as
    squares."""
    value = after[0] - before[0]
    halves = [
        None if low is None or high is None else max(mean - low, high - mean, 0.0)
        for mean, low, high in (before, after)
    ]
    if halves[0] is None or halves[1] is None:
        return Difference(value, None, None)
    half = math.hypot(halves[0], halves[1])
    return Difference(value, value - half, value + half)
