"""The candidate editor as a value."""

from __future__ import annotations

import fake_session as fake
from hypothesis import given
from hypothesis import strategies as st

from specdash.core.settings import OFF, Candidate, Settings
from specdash.tui.editor import LIMIT, Editor


def test_it_starts_from_what_runs_until_something_is_typed() -> None:
    editor = Editor().follow(fake.eagle(3))
    assert editor.candidate() == Candidate(3)
    typed = editor.nudge_steps(1)
    assert typed.follow(fake.eagle(1)).candidate() == Candidate(4)


def test_it_starts_from_off() -> None:
    assert Editor().follow(OFF).candidate() == Candidate(0)
    assert Editor(steps=2).follow(Settings()).candidate() == Candidate(2)


def test_digits_replace_then_extend_and_never_run_away() -> None:
    editor = Editor(steps=3).digit(1).digit(0)
    assert editor.steps == 10
    assert editor.digit(9).digit(9).steps == 9, "more than three digits start anew"
    assert editor.move(0).digit(7).steps == 7


def test_backspace_empties_a_derived_field() -> None:
    editor = Editor(steps=3).move(2).digit(8)
    assert editor.candidate() == Candidate(3, None, 8)
    assert editor.backspace().candidate() == Candidate(3)


def test_topk_starts_from_the_value_on_screen() -> None:
    editor = Editor(steps=3).move(1)
    assert editor.nudge(1, fake.eagle(3)).topk == 2
    assert editor.nudge(-1, fake.eagle(3)).topk == 1, "never below 1"
    assert editor.digit(0).topk is None, "0 is no topk"


def test_an_engine_without_topk_has_one_field() -> None:
    editor = Editor(has_topk=False, topk=4, draft=9)
    assert editor.fields == ("steps",)
    assert editor.move(1).field == "steps"
    assert editor.candidate() == Candidate(1)


def test_the_note_goes_with_the_candidate() -> None:
    assert Editor(steps=0).with_note("  baseline  ").candidate() == Candidate(0, note="baseline")


Key = st.one_of(
    st.tuples(st.just("digit"), st.integers(0, 9)),
    st.tuples(st.just("nudge"), st.sampled_from([-1, 1])),
    st.tuples(st.just("steps"), st.sampled_from([-1, 1])),
    st.tuples(st.just("move"), st.sampled_from([-1, 1])),
    st.tuples(st.just("erase"), st.just(0)),
)


@given(st.lists(Key, max_size=60), st.booleans())
def test_no_keys_lead_outside_the_domain(keys: list[tuple[str, int]], has_topk: bool) -> None:
    editor = Editor(has_topk=has_topk)
    for name, value in keys:
        if name == "digit":
            editor = editor.digit(value)
        elif name == "nudge":
            editor = editor.nudge(value, fake.eagle(3))
        elif name == "steps":
            editor = editor.nudge_steps(value)
        elif name == "move":
            editor = editor.move(value)
        else:
            editor = editor.backspace()
        candidate = editor.candidate()
        assert 0 <= candidate.num_steps <= LIMIT
        assert candidate.eagle_topk is None or 1 <= candidate.eagle_topk <= LIMIT
        assert candidate.num_draft_tokens is None or 1 <= candidate.num_draft_tokens <= LIMIT
        assert editor.field in editor.fields
