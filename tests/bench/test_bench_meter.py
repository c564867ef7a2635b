"""One request: tokens by moment, from every way a server tells its count."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.bench.meter import Meter
from specdash.bench.reading import openai_reader, sglang_reader

LIMIT = 64
STEP_S = 0.01


def event(body: object) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def chat(text: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    return event({"choices": [{"delta": {"content": text}, "finish_reason": finish}], **more})


def usage(total: int) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": 5, "completion_tokens": total}}


def feed(meter: Meter, pieces: list[tuple[float, bytes]]) -> Meter:
    for moment, data in pieces:
        if meter.feed(data, moment):
            break
    meter.end(pieces[-1][0])
    return meter


def openai(*pieces: tuple[float, bytes]) -> Meter:
    return feed(Meter(openai_reader(), 0.0), list(pieces))


def streamed(dialect: str, per_chunk: int) -> Meter:
    """A request of LIMIT tokens at one token each STEP_S, ``per_chunk`` to an event."""
    meter = Meter(sglang_reader() if dialect == "sglang" else openai_reader(), 0.0)
    pieces: list[tuple[float, bytes]] = []
    for sent in range(per_chunk, LIMIT + 1, per_chunk):
        finish = "length" if sent == LIMIT else None
        text = "word " * per_chunk
        moment = sent * STEP_S
        if dialect == "sglang":
            meta = {
                "completion_tokens": sent,
                "finish_reason": {"type": finish} if finish else None,
            }
            pieces.append((moment, event({"text": "word " * sent, "meta_info": meta})))
        elif dialect == "continuous":
            pieces.append((moment, chat(text, finish, **usage(sent))))
        elif dialect == "llama.cpp":
            pieces.append((moment, chat(text, finish, timings={"predicted_n": sent})))
        elif dialect == "completions":
            choice = {"text": text, "finish_reason": finish}
            pieces.append((moment, event({"choices": [choice], "usage": None})))
        else:
            pieces.append((moment, chat(text, finish, usage=None)))
    if dialect in ("final", "completions"):
        pieces.append((LIMIT * STEP_S, event({"choices": [], **usage(LIMIT)})))
    pieces.append((LIMIT * STEP_S, DONE))
    return feed(meter, pieces)


@pytest.mark.parametrize("per_chunk", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("dialect", ["sglang", "continuous", "llama.cpp", "final", "completions"])
def test_tokens_per_chunk_do_not_change_the_count(dialect: str, per_chunk: int) -> None:
    meter = streamed(dialect, per_chunk)
    assert meter.state == "good"
    assert meter.tokens == LIMIT
    assert len(meter.times) == LIMIT // per_chunk
    # Half way through, half of the tokens were there, however they were packed.
    assert meter.tokens_by(LIMIT / 2 * STEP_S + 1e-9) == LIMIT // 2
    assert meter.tokens_by(0.0) == 0
    assert meter.tokens_by(99.0) == LIMIT


@pytest.mark.parametrize(
    "tail",
    [
        [chat("b", "length"), event({"choices": [], **usage(4)}), DONE],
        [chat("b", None), event({"choices": [], **usage(4)}), chat(None, "length"), DONE],
        [chat("b", "length", **usage(4)), DONE],
        [chat("b", "length"), event({"choices": [], **usage(4)})],
        [chat("b", "length"), event({"choices": [], **usage(4)}), DONE, DONE],
        [chat("b", "length"), event(usage(4)), DONE],
        [chat("b", "length"), event({"choices": None, **usage(4)}), DONE],
    ],
    ids=["after", "before", "in-finish", "no-done", "done-twice", "no-choices", "null-choices"],
)
def test_usage_may_come_anywhere(tail: list[bytes]) -> None:
    meter = openai((1.0, chat("a")), *((2.0, piece) for piece in tail))
    assert meter.state == "good"
    assert meter.tokens == 4
    assert meter.tokens_by(1.5) == 2  # the texts are of equal length


def test_without_any_usage_nothing_is_counted() -> None:
    meter = openai((1.0, chat("abcd")), (2.0, chat("efgh", "length")), (2.0, DONE))
    assert meter.state == "good"
    assert meter.tokens == 0
    assert not meter.counted
    meter.settle(10)
    assert meter.counted
    assert meter.tokens_by(1.0) == 5
    assert meter.tokens_by(2.0) == 10


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "content"])
def test_reasoning_counts(field: str) -> None:
    body = {"choices": [{"delta": {field: "hm"}, "finish_reason": None}], **usage(3)}
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}], **usage(3)}
    meter = openai((0.5, event(body)), (1.0, event(end)), (1.0, DONE))
    assert (meter.first, meter.tokens, meter.times) == (0.5, 3, [0.5])


def test_a_tool_call_is_output() -> None:
    call = {"tool_calls": [{"function": {"name": None, "arguments": '{"a"'}}]}
    body = {"choices": [{"delta": call, "finish_reason": None}], **usage(2)}
    meter = openai((0.5, event(body)), (1.0, chat(None, "tool_calls", **usage(2))))
    assert meter.first == 0.5


def test_the_role_event_is_no_token() -> None:
    role = {"choices": [{"delta": {"role": "assistant", "content": ""}}], **usage(0)}
    meter = openai((0.1, event(role)), (0.5, chat("a", None, **usage(1))), (0.6, chat("", "stop")))
    assert meter.first == 0.5
    assert meter.times == [0.5]


def test_events_without_count_share_the_next_figure() -> None:
    meter = openai(
        (1.0, chat("a", None, **usage(1))),
        (2.0, chat("bb")),
        (3.0, chat("cc", None, **usage(5))),
        (4.0, chat("", "length", **usage(5))),
    )
    assert meter.times == [1.0, 2.0, 3.0]
    assert meter.totals == [1, 3, 5]


def test_one_tokens_text_in_two_events_is_one_token() -> None:
    meter = openai(
        (1.0, chat("a", None, **usage(1))),
        (2.0, chat("b", None, **usage(1))),
        (3.0, chat("c", "length", **usage(2))),
        (3.0, DONE),
    )
    assert meter.tokens == 2
    assert meter.totals == [1, 2]
    assert meter.counted


def test_tokens_without_text_have_their_moment() -> None:
    meter = openai(
        (1.0, chat("a", None, **usage(1))),
        (2.0, chat("", None, **usage(3))),
        (3.0, chat("", "length", **usage(3))),
    )
    assert (meter.times, meter.totals) == ([1.0, 2.0], [1, 3])


def test_a_count_that_goes_back_does_not() -> None:
    meter = openai((1.0, chat("a", None, **usage(5))), (2.0, chat("b", "stop", **usage(3))))
    assert meter.tokens == 5


@pytest.mark.parametrize("bad", [-1, 1.5, "7", True, 10**12, None, [], {}])
def test_nonsense_counts_are_no_counts(bad: object) -> None:
    body = {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}
    meter = openai((1.0, event({**body, "usage": {"completion_tokens": bad}})))
    assert meter.tokens == 0
    assert not meter.counted


@pytest.mark.parametrize(
    ("pieces", "cause"),
    [
        ([chat("a"), b"data: {broken\n\n"], "bad-json"),
        ([chat("a"), b"data: 17\n\n"], "bad-json"),
        ([chat("a"), b"data: " + b"[" * 100_000 + b"\n\n"], "bad-json"),
        ([chat("a"), b'data: {"choi'], "broken-sse"),
        ([b"<html>hello</html>"], "broken-sse"),
        ([b'{"choices": []}'], "broken-sse"),
        ([chat("a")], "early-close"),
        ([], "early-close"),
        ([chat("", "stop"), DONE], "no-tokens"),
        ([DONE], "no-tokens"),
        ([chat("a"), event({"error": {"message": "out of memory"}})], "server-error"),
        ([chat("a"), b'event: error\ndata: {"detail": "gone"}\n\n'], "server-error"),
        ([chat("a"), b"event: error\ndata: out of memory\n\n"], "server-error"),
        ([chat("a"), b'event: error\ndata: "gone"\n\n'], "server-error"),
        ([event({"object": "error", "message": "no"})], "server-error"),
        ([chat("a", "abort")], "server-error"),
    ],
)
def test_failures_have_their_cause(pieces: list[bytes], cause: str) -> None:
    meter = Meter(openai_reader(), 0.0)
    for piece in pieces:
        if meter.feed(piece, 1.0):
            break
    meter.end(2.0)
    assert (meter.state, meter.cause) == ("failed", cause)


def test_sglang_abort_is_an_error_of_the_server() -> None:
    meta = {"completion_tokens": 1, "finish_reason": {"type": "abort", "message": "too long"}}
    meter = feed(Meter(sglang_reader(), 0.0), [(1.0, event({"text": "a", "meta_info": meta}))])
    assert (meter.cause, meter.detail) == ("server-error", "too long")


@pytest.mark.parametrize(
    "names",
    [
        {"spec_verify_ct": 20, "spec_correct_drafts_histogram": [2, 3, 15]},
        {"spec_verify_ct": 20, "spec_accept_histogram": [2, 3, 15]},
        {"spec_accept_length": 3.2},
    ],
)
def test_sglang_reports_acceptance_at_the_end(names: dict[str, Any]) -> None:
    meta = {"completion_tokens": 64, "finish_reason": {"type": "length"}, **names}
    meter = feed(Meter(sglang_reader(), 0.0), [(1.0, event({"text": "a", "meta_info": meta}))])
    assert meter.draft is not None
    assert (meter.draft.tokens, meter.draft.rounds) == (64, 20)


def test_llama_acceptance_from_timings() -> None:
    timings = {"predicted_n": 665, "draft_n": 604, "draft_n_accepted": 515}
    meter = openai((1.0, chat("a", "length", timings=timings)))
    assert meter.draft is not None
    assert meter.draft.tokens / meter.draft.rounds == pytest.approx(4.43, abs=0.01)


def test_vllm_acceptance_from_the_finish_choice() -> None:
    stats = {
        "num_spec_steps": 40,
        "num_accepted_draft_tokens": 60,
        "acceptance_histogram": {"0": 10, "2": 30},
    }
    choice = {"delta": {}, "finish_reason": "length", "speculative_decoding_stats": stats}
    meter = openai((1.0, chat("a")), (2.0, event({"choices": [choice], **usage(100)})))
    assert meter.draft is not None
    assert meter.draft.tokens / meter.draft.rounds == 2.5
    assert meter.draft.histogram == (10, 0, 30)


def test_what_comes_after_the_end_is_not_counted() -> None:
    meter = Meter(openai_reader(), 0.0)
    meter.feed(chat("a", None, **usage(1)), 1.0)
    meter.cut(2.0)
    meter.feed(chat("b", "stop", **usage(9)), 3.0)
    meter.end(4.0)
    assert (meter.state, meter.tokens, meter.ended) == ("cut", 1, 2.0)


@given(st.lists(st.integers(1, 2000), max_size=40), st.sampled_from([b"\n", b"\r\n"]))
def test_the_network_cannot_change_the_count(cuts: list[int], eol: bytes) -> None:
    raw = b"".join(
        [chat("größe 日本 ", None, **usage(3 * k)) for k in range(1, 9)]
        + [chat("", "length", **usage(24)), DONE]
    ).replace(b"\n", eol)
    meter = Meter(openai_reader(), 0.0)
    places = sorted({min(cut, len(raw)) for cut in cuts} | {0, len(raw)})
    for moment, (start, end) in enumerate(pairwise(places), start=1):
        meter.feed(raw[start:end], float(moment))
    meter.end(99.0)
    assert (meter.state, meter.tokens, len(meter.times)) == ("good", 24, 8)
    assert meter.times == sorted(meter.times)
