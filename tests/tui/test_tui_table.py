"""The results table: reference, change, marginal gain, best."""

from __future__ import annotations

from dataclasses import replace

import fake_session as fake
from hypothesis import given
from hypothesis import strategies as st

from specdash.core.records import Cell, CycleRecord, RequestCounts
from specdash.core.settings import Settings
from specdash.tui.table import build, compare, key_of

T0 = fake.T0


def one(steps: int, value: float | None, *, concurrency: int = 1, half: float = 1.0) -> CycleRecord:
    cell = Cell(
        concurrency,
        value,
        None if value is None else value - half,
        None if value is None else value + half,
        requests=RequestCounts(1),
    )
    return replace(fake.record(steps, t=T0 + steps, number=steps + 1), cells=(cell,))


def test_rows_are_ordered_by_depth_and_the_baseline_is_the_reference() -> None:
    results = build([one(3, 234.0), one(0, 74.0), one(1, 123.0)])
    assert [row.steps for row in results.rows] == [0, 1, 3]
    assert [row.reference for row in results.rows] == [True, False, False]
    change = results.rows[2].entries[1].against_reference
    assert change is not None
    assert round(change.fraction, 3) == round(234 / 74 - 1, 3)
    gain = results.rows[2].entries[1].marginal
    assert gain is not None
    assert round(gain.fraction, 3) == round(234 / 123 - 1, 3)
    assert results.rows[0].entries[1].marginal is None


def test_without_a_baseline_the_shallowest_measured_row_is_the_reference() -> None:
    results = build([one(1, None), one(2, 186.0), one(3, 234.0)])
    assert [row.reference for row in results.rows] == [False, True, False]


def test_a_chosen_reference_wins_until_it_is_gone() -> None:
    records = [one(0, 74.0), one(2, 186.0)]
    key = key_of(fake.eagle(2))
    assert [row.reference for row in build(records, reference=key).rows] == [False, True]
    assert [row.reference for row in build(records[:1], reference=key).rows] == [True]


def test_a_difference_inside_the_intervals_is_not_clear() -> None:
    near, far = one(4, 277.0, half=6.0).cells[0], one(5, 282.0, half=6.0).cells[0]
    change = compare(far, near)
    assert change is not None
    assert not change.clear
    clear = compare(one(5, 400.0).cells[0], near)
    assert clear is not None
    assert clear.clear


def test_unknown_is_not_compared() -> None:
    assert compare(one(4, None).cells[0], one(3, 234.0).cells[0]) is None
    assert compare(one(4, 277.0).cells[0], None) is None
    assert compare(one(4, 277.0).cells[0], one(3, 0.0).cells[0]) is None


def test_the_newest_cell_counts_but_an_empty_one_hides_nothing() -> None:
    results = build([one(3, 230.0), one(3, 234.0), one(3, None)])
    assert len(results.rows) == 1
    assert results.rows[0].entries[1].cell.output_tok_s == 234.0
    assert results.rows[0].runs == 3


def test_a_failed_candidate_is_a_row_with_its_cause() -> None:
    results = build([one(0, 74.0), fake.failed_record(6)])
    assert results.rows[1].failed.startswith("load failed:")
    assert results.rows[1].entries == {}


def test_a_later_success_clears_the_failure() -> None:
    results = build([fake.failed_record(6), one(6, 271.0)])
    assert results.rows[0].failed == ""


def test_cancelled_without_a_cell_is_no_row() -> None:
    record = replace(fake.record(3, t=T0), outcome="cancelled", cells=())
    assert build([record]).rows == ()


def test_the_running_cycle_is_a_row_that_grows() -> None:
    results = build([one(0, 74.0)], running=fake.eagle(4), running_cells=[fake.cell(4, 1)])
    assert results.rows[1].running
    assert results.rows[1].entries[1].cell == fake.cell(4, 1)


def test_best_is_marked_a_concurrency_and_only_among_several() -> None:
    results = build([one(3, 234.0), one(4, 277.0), one(4, 900.0, concurrency=4)])
    assert [row.entries[1].best for row in results.rows] == [False, True]
    assert not results.rows[1].entries[4].best


def test_topk_tells_rows_of_one_depth_apart_and_they_are_no_marginal_gain() -> None:
    wide = replace(one(3, 250.0), resolved=Settings("EAGLE3", 3, 4, 16, enabled=True))
    results = build([one(3, 234.0), wide, one(4, 277.0)])
    assert [row.settings.short() for row in results.rows] == ["3/1/4", "3/4/16", "4/1/5"]
    assert results.rows[1].entries[1].marginal is None
    gain = results.rows[2].entries[1].marginal
    assert gain is not None
    assert round(gain.fraction, 3) == round(277 / 250 - 1, 3), "against the best shallower row"
    assert results.curve(1) == [(3, 250.0), (4, 277.0)]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 8), st.one_of(st.none(), st.floats(0, 1e6)), st.sampled_from([1, 4, 16])
        )
    )
)
def test_any_history_gives_a_table(rows: list[tuple[int, float | None, int]]) -> None:
    results = build([one(steps, value, concurrency=c) for steps, value, c in rows])
    assert sum(row.reference for row in results.rows) <= 1
    for concurrency in results.concurrencies:
        assert (
            sum(r.entries[concurrency].best for r in results.rows if concurrency in r.entries) <= 1
        )
