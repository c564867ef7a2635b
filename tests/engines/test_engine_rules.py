"""The rules that are applied before anything is stopped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.core.errors import UsageError
from specdash.core.settings import OFF, Candidate, Settings
from specdash.engines.protocol import IllegalCandidateError
from specdash.engines.registry import ENGINES, engine_for
from specdash.engines.sglang_rules import BLOCK_ALGORITHMS, tree_capacity

CHAIN = Settings("EAGLE3", 3, 1, 4, "/m/draft", True)
TREE = Settings("EAGLE", 5, 4, 8, "/m/draft", True)
SGLANG = engine_for("sglang")


def test_chain_sets_draft_tokens_to_steps_plus_one_and_says_so() -> None:
    resolution = SGLANG.resolve(CHAIN, Candidate(5))
    assert resolution.settings == Settings("EAGLE3", 5, 1, 6, "/m/draft", True)
    assert any("steps + 1 = 6" in note for note in resolution.notes)


def test_chain_that_is_already_right_needs_no_note() -> None:
    assert SGLANG.resolve(CHAIN, Candidate(3)).notes == ()


def test_steps_alone_in_the_file_get_topk_and_draft_tokens() -> None:
    resolution = SGLANG.resolve(Settings("EAGLE3", enabled=True), Candidate(4))
    assert (resolution.settings.eagle_topk, resolution.settings.num_draft_tokens) == (1, 5)
    assert any("topk is set to 1" in note for note in resolution.notes)


def test_draft_tokens_against_the_chain_are_refused_with_the_right_number() -> None:
    with pytest.raises(IllegalCandidateError, match=r"steps \+ 1 = 5") as caught:
        SGLANG.resolve(CHAIN, Candidate(4, 1, 9))
    assert caught.value.exit_code == 4
    assert "8 steps" in caught.value.remedy


def test_agreeing_draft_tokens_are_taken() -> None:
    assert SGLANG.resolve(CHAIN, Candidate(4, 1, 5)).settings.num_draft_tokens == 5


@pytest.mark.parametrize(("steps", "topk", "most"), [(1, 4, 5), (2, 4, 21), (5, 4, 69), (3, 2, 11)])
def test_tree_takes_what_it_holds_and_no_more(steps: int, topk: int, most: int) -> None:
    assert tree_capacity(steps, topk) == most
    assert SGLANG.resolve(TREE, Candidate(steps, topk, most)).settings.num_draft_tokens == most
    with pytest.raises(IllegalCandidateError, match=f"= {most}"):
        SGLANG.resolve(TREE, Candidate(steps, topk, most + 1))


def test_tree_keeps_the_files_draft_tokens_where_they_fit() -> None:
    assert SGLANG.resolve(TREE, Candidate(3)).settings == Settings(
        "EAGLE", 3, 4, 8, "/m/draft", True
    )


def test_tree_refuses_the_files_draft_tokens_where_they_do_not_fit() -> None:
    with pytest.raises(IllegalCandidateError, match="in the launch config"):
        SGLANG.resolve(TREE, Candidate(1))


def test_tree_without_draft_tokens_is_refused() -> None:
    with pytest.raises(IllegalCandidateError, match="has to be given"):
        SGLANG.resolve(Settings("EAGLE", 3, enabled=True), Candidate(3, 2))


def test_tree_of_the_root_alone_is_refused() -> None:
    with pytest.raises(IllegalCandidateError, match="only the root"):
        SGLANG.resolve(TREE, Candidate(3, 2, 1))


@pytest.mark.parametrize("algorithm", [*BLOCK_ALGORITHMS, "dflash", "Ngram"])
def test_steps_are_refused_where_they_are_not_the_depth(algorithm: str) -> None:
    current = Settings(algorithm, 1, 1, 8, "/m/draft", True)
    with pytest.raises(IllegalCandidateError, match="not the depth") as caught:
        SGLANG.resolve(current, Candidate(4))
    assert "--draft-tokens" in caught.value.remedy
    assert SGLANG.resolve(current, Candidate(0)).settings == OFF


def test_draft_tokens_are_the_depth_of_a_block() -> None:
    current = Settings("DFLASH", None, None, 8, "/m/draft", True)
    resolution = SGLANG.resolve(current, Candidate(1, None, 12))
    assert resolution.settings == Settings("DFLASH", None, None, 12, "/m/draft", True)
    with pytest.raises(IllegalCandidateError, match="topk 4"):
        SGLANG.resolve(current, Candidate(1, 4, 12))
    with pytest.raises(IllegalCandidateError, match="at least 2"):
        SGLANG.resolve(current, Candidate(1, None, 1))


def test_unknown_algorithm_is_said() -> None:
    resolution = SGLANG.resolve(Settings("MYPLUGIN", 3, 1, 4, None, True), Candidate(2))
    assert resolution.settings.num_draft_tokens == 3
    assert any("MYPLUGIN" in note for note in resolution.notes)


@pytest.mark.parametrize("kind", list(ENGINES))
@pytest.mark.parametrize("steps", [-1, 1001, 10**9])
def test_depth_outside_its_domain_is_a_usage_error(kind: str, steps: int) -> None:
    engine = ENGINES[kind]  # type: ignore[index]
    with pytest.raises(UsageError, match=str(steps)) as caught:
        engine.resolve(CHAIN, Candidate(steps))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("candidate", [Candidate(3, 0), Candidate(3, 1, 0), Candidate(3, 10**9)])
def test_other_numbers_outside_their_domain(candidate: Candidate) -> None:
    with pytest.raises(UsageError):
        SGLANG.resolve(CHAIN, candidate)


@pytest.mark.parametrize("kind", list(ENGINES))
def test_zero_is_off_everywhere(kind: str) -> None:
    assert ENGINES[kind].resolve(CHAIN, Candidate(0)).settings == OFF  # type: ignore[index]


def test_off_with_topk_is_refused() -> None:
    with pytest.raises(IllegalCandidateError, match="no meaning"):
        SGLANG.resolve(CHAIN, Candidate(0, 1))


@pytest.mark.parametrize("kind", ["vllm", "llama.cpp"])
@pytest.mark.parametrize("candidate", [Candidate(3, 1), Candidate(3, None, 4), Candidate(0, 1)])
def test_engines_with_one_number_refuse_a_tree(kind: str, candidate: Candidate) -> None:
    with pytest.raises(IllegalCandidateError, match=r"it knows no (topk|draft tokens)"):
        ENGINES[kind].resolve(Settings(), candidate)  # type: ignore[index]


def test_llama_keeps_the_files_type_and_draft() -> None:
    current = Settings("draft-simple", 4, None, None, "/m/d.gguf", True)
    resolution = engine_for("llama.cpp").resolve(current, Candidate(8))
    assert resolution.settings == Settings("draft-simple", 8, None, None, "/m/d.gguf", True)
    assert resolution.notes == ()


@pytest.mark.parametrize(
    ("current", "algorithm", "words"),
    [
        (Settings("none", 4, None, None, "d.gguf"), "draft-simple", "becomes draft-simple"),
        (Settings(None, 4, None, None, "d.gguf"), None, "names no --spec-type"),
        (Settings(), None, "neither a draft model"),
        (Settings("ngram-simple", 4), "ngram-simple", "--spec-ngram"),
    ],
)
def test_llama_says_what_the_type_does_to_the_depth(
    current: Settings, algorithm: str | None, words: str
) -> None:
    resolution = engine_for("llama.cpp").resolve(current, Candidate(6))
    assert resolution.settings.algorithm == algorithm
    assert resolution.settings.num_steps == 6
    assert any(words in note for note in resolution.notes)


def test_same_depth_names_what_differs() -> None:
    asked = Settings("EAGLE3", 5, 1, 6, None, True)
    assert SGLANG.same_depth(asked, Settings("EAGLE", 5, 1, 6, "x", True)) == ""
    assert "steps 5 was asked for and 3 runs" in SGLANG.same_depth(
        asked, Settings("EAGLE3", 3, 1, 4, None, True)
    )
    assert "draft tokens 6" in SGLANG.same_depth(asked, Settings("EAGLE3", 5, 1, 8, None, True))


def test_same_depth_of_a_block_is_its_draft_tokens() -> None:
    asked = Settings("dflash", 3, 4, 12, None, True)
    assert SGLANG.same_depth(asked, Settings("DFLASH", 1, 1, 12, None, True)) == ""
    assert "draft tokens 12" in SGLANG.same_depth(asked, Settings("DFLASH", 1, 1, 16, None, True))


def test_same_depth_sees_speculation_dropped_or_left_on() -> None:
    asked = Settings("draft-simple", 4, enabled=True)
    llama = engine_for("llama.cpp")
    assert "runs without it" in llama.same_depth(asked, OFF)
    assert "to be off" in llama.same_depth(OFF, Settings(enabled=True))
    assert llama.same_depth(OFF, OFF) == ""


def test_same_depth_does_not_compare_what_is_unknown() -> None:
    asked = Settings("draft-simple", 4, enabled=True)
    llama = engine_for("llama.cpp")
    assert llama.same_depth(asked, Settings(enabled=True)) == ""
    assert llama.same_depth(asked, Settings()) == ""
    assert llama.same_depth(OFF, Settings()) == ""


_NUMBERS = st.none() | st.integers(-3, 40)


@given(
    current=st.builds(
        Settings,
        st.sampled_from([None, "EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "eagle3"]),
        _NUMBERS,
        _NUMBERS,
        _NUMBERS,
        st.none(),
        st.none() | st.booleans(),
    ),
    candidate=st.builds(Candidate, st.integers(-2, 1200), _NUMBERS, _NUMBERS),
)
def test_what_resolves_is_legal_and_stays(current: Settings, candidate: Candidate) -> None:
    try:
        settings = SGLANG.resolve(current, candidate).settings
    except (UsageError, IllegalCandidateError):
        return
    if candidate.num_steps == 0:
        assert settings == OFF
        return
    steps, topk, tokens = settings.num_steps, settings.eagle_topk, settings.num_draft_tokens
    assert steps == candidate.num_steps
    assert topk is not None
    assert tokens is not None
    assert 2 <= tokens <= tree_capacity(steps, topk)
    assert topk > 1 or tokens == steps + 1
    for asked, got in ((candidate.eagle_topk, topk), (candidate.num_draft_tokens, tokens)):
        assert asked is None or asked == got
    again = SGLANG.resolve(settings, Candidate(steps, topk, tokens))
    assert again.settings == settings
    assert again.notes == ()
    assert SGLANG.same_depth(settings, again.settings) == ""
