from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.demo.model import (
    MEASURED_TOK_S,
    AcceptSequence,
    Shape,
    accept_length,
    max_running,
    step_s,
    survival,
    tok_s,
)


def chain(steps: int) -> Shape:
    return Shape(steps=steps, topk=1, draft_tokens=steps + 1 if steps else 0)


@pytest.mark.parametrize(("steps", "expected"), list(enumerate(MEASURED_TOK_S, start=1)))
def test_one_request_reproduces_the_operators_table(steps: int, expected: float) -> None:
    assert tok_s(chain(steps)) == pytest.approx(expected, rel=1e-9)


def test_beyond_five_it_falls() -> None:
    rates = [tok_s(chain(steps)) for steps in range(5, 25)]
    assert rates == sorted(rates, reverse=True)
    assert rates[1] < 0.995 * rates[0]


def test_baseline_is_slower_than_any_shallow_depth() -> None:
    assert tok_s(chain(0)) < 0.8 * tok_s(chain(1))


@pytest.mark.parametrize("batch", [16, 18, 26, 64])
def test_at_sixteen_and_more_four_beats_five(batch: int) -> None:
    four = min(batch, max_running(chain(4)))
    five = min(batch, max_running(chain(5)))
    assert tok_s(chain(4), four) > 1.02 * tok_s(chain(5), five)
    assert tok_s(chain(4), batch) > 1.02 * tok_s(chain(5), batch)


def test_capacity_shrinks_with_depth() -> None:
    held = [max_running(chain(steps)) for steps in range(1, 20)]
    assert held[0] == 26
    assert held == sorted(held, reverse=True)
    assert held[9] < 10
    assert held[3] >= 16
    assert max_running(chain(1), asked=8) == 8
    assert max_running(chain(200)) == 1


@pytest.mark.parametrize(("steps", "topk", "drafts"), [(1, 2, 2), (3, 2, 4), (3, 4, 8), (5, 8, 60)])
def test_a_tree_accepts_more_and_yields_less(steps: int, topk: int, drafts: int) -> None:
    tree = Shape(steps=steps, topk=topk, draft_tokens=drafts)
    assert accept_length(tree) >= accept_length(chain(steps))
    assert tok_s(tree) < tok_s(chain(steps))


@given(st.integers(1, 32), st.integers(1, 10), st.integers(2, 64), st.integers(1, 64))
def test_figures_stay_in_their_ranges(steps: int, topk: int, drafts: int, batch: int) -> None:
    shape = Shape(steps=steps, topk=topk, draft_tokens=steps + 1 if topk == 1 else drafts)
    alive = survival(shape)
    assert all(
        0 <= later <= sooner <= 1 for sooner, later in zip((1.0, *alive), alive, strict=False)
    )
    assert 1 <= accept_length(shape) <= shape.reach + 1
    assert step_s(shape, batch) > 0


@given(st.integers(0, 12), st.floats(0, 1, allow_nan=False))
def test_short_windows_have_the_right_mean(steps: int, start: float) -> None:
    shape = chain(steps)
    sequence = AcceptSequence(shape, start)
    rounds = [sequence.next() for _ in range(60)]
    assert all(1 <= tokens <= steps + 1 for tokens in rounds)
    assert sum(rounds) / 60 == pytest.approx(accept_length(shape), rel=0.05)
