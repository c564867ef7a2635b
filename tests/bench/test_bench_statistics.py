"""Percentiles, intervals and differences."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.bench.statistics import (
    FINEST,
    SLICE_COUNTS,
    autocorrelation,
    batch_means,
    difference,
    slice_rates,
    spread,
    t95,
)


@given(
    st.lists(
        st.tuples(st.floats(0, 1000, allow_nan=False), st.integers(1, 5)), min_size=1, max_size=30
    )
)
def test_weights_are_repetition(pairs: list[tuple[float, int]]) -> None:
    values = [value for value, _ in pairs]
    weights = [weight for _, weight in pairs]
    repeated = [value for value, weight in pairs for _ in range(weight)]
    weighted, plain = spread(values, weights), spread(repeated)
    for name in ("mean", "p50", "p95", "p99"):
        assert getattr(weighted, name) == pytest.approx(getattr(plain, name))


def test_percentiles_interpolate() -> None:
    figures = spread([float(n) for n in range(1, 101)])
    assert figures.mean == 50.5
    assert figures.p50 == 50.5
    assert figures.p95 == pytest.approx(95.05)
    assert figures.p99 == pytest.approx(99.01)


def test_nothing_measured_is_unknown() -> None:
    assert spread([]).to_json() == {"mean": None, "p50": None, "p95": None, "p99": None}


def test_t_is_never_too_narrow() -> None:
    values = [t95(freedom) for freedom in range(1, 200)]
    assert all(a >= b for a, b in pairwise(values))
    assert values[8] == 2.262
    assert t95(0) == float("inf")


def test_slices_add_up_to_the_window() -> None:
    times = [k * 0.013 for k in range(1, 1001)]
    totals = list(range(3, 3003, 3))
    rates = slice_rates([(times, totals)], 1.0, 11.0)
    assert len(rates) == FINEST
    assert sum(rates) / FINEST == pytest.approx(3 / 0.013)
    assert max(rates) - min(rates) < 1e-6  # an even source has even slices


def test_slices_know_a_pause() -> None:
    rates = slice_rates([([1.0, 2.0, 6.0, 7.0], [10, 20, 20, 30])], 2.0, 6.0)
    assert sum(rates) == pytest.approx(0.0)


def test_the_divisions_are_whole() -> None:
    assert all(FINEST % count == 0 for count in SLICE_COUNTS)


def _source(rng: random.Random, seconds: float) -> tuple[list[float], list[int]]:
    """Rounds of about 15 ms that give 1 to 4 tokens."""
    moment, total = 0.0, 0
    times: list[float] = []
    totals: list[int] = []
    while moment < seconds:
        moment += 0.015 * rng.uniform(0.8, 1.2)
        total += 1 + sum(rng.random() < 0.6 for _ in range(3))
        times.append(moment)
        totals.append(total)
    return times, totals


@pytest.mark.parametrize("seconds", [2.0, 8.0])
def test_the_interval_covers_the_truth(seconds: float) -> None:
    truth = (1 + 3 * 0.6) / 0.015
    hits = 0
    for seed in range(200):
        times, totals = _source(random.Random(seed), seconds + 1)
        inside = [k for k, moment in enumerate(times) if 0.5 < moment <= 0.5 + seconds]
        tokens = totals[inside[-1]] - totals[inside[0] - 1]
        slices = slice_rates([(times, totals)], 0.5, 0.5 + seconds)
        interval = batch_means(slices, tokens / seconds, len(inside))
        assert interval is not None
        hits += interval.low <= truth <= interval.high
    assert 180 <= hits <= 200


def test_correlated_slices_get_a_wider_interval() -> None:
    rng = random.Random(7)
    steps = [rng.choice((-1, 1)) * 5.0 for _ in range(5)]
    level = [100 + step for step in steps for _ in range(FINEST // 5)]
    mixed = level[:]
    rng.shuffle(mixed)
    assert autocorrelation(level) > 0.3
    wide, narrow = batch_means(level, 100, 1000), batch_means(mixed, 100, 1000)
    assert wide is not None
    assert narrow is not None
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


def test_too_little_has_no_interval() -> None:
    assert batch_means([1.0] * FINEST, 1.0, 2 * SLICE_COUNTS[-1] - 1) is None
    assert batch_means([1.0] * FINEST, 1.0, 2 * SLICE_COUNTS[-1]) is not None


def test_a_constant_rate_is_certain() -> None:
    interval = batch_means([7.0] * FINEST, 7.0, 1000)
    assert interval is not None
    assert (interval.low, interval.mean, interval.high) == (7.0, 7.0, 7.0)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ((100.0, 98.0, 102.0), (110.0, 108.0, 112.0), "better"),
        ((110.0, 108.0, 112.0), (100.0, 98.0, 102.0), "worse"),
        ((100.0, 97.0, 103.0), (102.0, 99.0, 105.0), "same"),
        ((100.0, None, None), (110.0, 109.0, 111.0), "unknown"),
    ],
)
def test_verdicts(
    before: tuple[float, float | None, float | None],
    after: tuple[float, float | None, float | None],
    verdict: str,
) -> None:
    assert difference(before, after).verdict == verdict


def test_half_widths_add_as_squares() -> None:
    found = difference((100.0, 97.0, 103.0), (110.0, 106.0, 114.0))
    assert (found.value, found.low, found.high) == (10.0, 5.0, 15.0)
