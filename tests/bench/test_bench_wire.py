"""Request bodies, and what is left out when an endpoint refuses."""

from __future__ import annotations

import pytest

from specdash.bench.wire import Ask, Recipe
from specdash.bench.workloads import Prompt

ASK = Ask(Prompt((("system", "be brief"), ("user", "hello"))), 32)


def recipe(route: str = "chat", dialect: str = "openai", **more: object) -> Recipe:
    settings = {"model": "m", "temperature": 0.0, "ignore_eos": True, **more}
    return Recipe(route, dialect, **settings)  # type: ignore[arg-type]


def test_generate_as_sglang_has_it() -> None:
    assert recipe("generate", "sglang").body(ASK) == {
        "text": "be brief\n\nhello",
        "sampling_params": {"max_new_tokens": 32, "temperature": 0.0, "ignore_eos": True},
        "stream": True,
    }


def test_chat_asks_for_usage_on_every_event() -> None:
    body = recipe().body(ASK)
    assert body["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello"},
    ]
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert (body["max_tokens"], body["temperature"], body["ignore_eos"]) == (32, 0.0, True)


def test_llama_is_told_not_to_reuse_a_prefix() -> None:
    body = recipe(dialect="llama.cpp").body(ASK)
    assert body["cache_prompt"] is False
    assert body["timings_per_token"] is True


def test_a_whole_reply_has_no_stream_options() -> None:
    body = recipe().body(ASK, stream=False)
    assert body["stream"] is False
    assert "stream_options" not in body


def test_what_is_named_in_the_refusal_is_left_out() -> None:
    other = recipe().after_refusal(400, "Unrecognized request argument supplied: ignore_eos")
    assert other is not None
    assert other.left_out == {"ignore_eos"}
    assert not other.forces_length
    assert "ignore_eos" not in other.body(ASK)


def test_a_refusal_that_names_nothing_ends_somewhere() -> None:
    tried: Recipe | None = recipe(dialect="llama.cpp")
    bodies = []
    while tried is not None:
        bodies.append(tried.body(ASK))
        tried = tried.after_refusal(400, "bad request")
    assert len(bodies) == 7
    assert set(bodies[-1]) == {"model", "messages", "max_tokens", "stream"}


def test_newer_models_want_another_limit() -> None:
    text = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    other = recipe().after_refusal(400, text)
    assert other is not None
    assert other.body(ASK)["max_completion_tokens"] == 32
    assert "max_tokens" not in other.body(ASK)


@pytest.mark.parametrize(
    ("route", "status", "text", "after"),
    [
        ("generate", 404, "Not Found", "chat"),
        ("chat", 404, '{"detail":"Not Found"}', "completions"),
        ("chat", 405, "", "completions"),
        ("chat", 400, "no chat template is set for this tokenizer", "completions"),
        ("completions", 404, "Not Found", None),
        ("chat", 404, "The model `x` does not exist.", None),
        ("chat", 401, "no key", None),
        ("chat", 500, "oops", None),
    ],
)
def test_other_routes(route: str, status: int, text: str, after: str | None) -> None:
    other = recipe(route).after_refusal(status, text)
    assert (None if other is None else other.route) == after
