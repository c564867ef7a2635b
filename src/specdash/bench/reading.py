"""What one event of a stream says, per way of asking. Pure: bytes in, a note out.

Tokens are counted by the server, never from events: under speculation an event carries 1 to
k + 1 tokens, and a stream interval makes it more. Sources of the count, in this order of
trust: ``meta_info.completion_tokens`` (SGLang's own endpoint, cumulative on every event),
``usage.completion_tokens`` (OpenAI, on the last event or, with ``continuous_usage_stats``, on
every event, also with ``choices: []``, before or after the finish), ``timings.predicted_n``
(llama.cpp).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_TOKENS = 10**9


@dataclass(frozen=True, slots=True)
class Draft:
    """What a request reported of its speculation. ``rounds`` verify rounds emitted ``tokens``
    tokens; ``histogram[j]`` rounds accepted j drafts."""

    tokens: int
    rounds: int
    histogram: tuple[int, ...] | None = None


class Note(NamedTuple):
    """What one event says. ``total``: tokens so far, by the server's count. ``size``: bytes of
    generated text it carries, in any field. ``timed``: it belongs to a moment of generation
    (a trailing usage does not)."""

    total: int | None = None
    size: int = 0
    timed: bool = True
    finish: str | None = None
    error: str | None = None
    draft: Draft | None = None
    cached: int | None = None
    done: bool = False


class BadEventError(ValueError):
    """An event whose data is not what the protocol says."""


Reader = Callable[[bytes, bytes], Note]
"""Name and data of an event -> what it says. Raises BadEventError. One reader a request."""

DONE = Note(done=True, timed=False)

_ABORTS = frozenset({"abort", "error", "cancelled"})


def openai_reader() -> Reader:
    """For ``/v1/chat/completions`` and ``/v1/completions``, llama.cpp's timings included."""
    return _read_openai


def sglang_reader() -> Reader:
    """For ``/generate``: text and count are cumulative."""
    return _SglangReader()


def _read_openai(name: bytes, data: bytes) -> Note:
    if data == b"[DONE]":
        return DONE
    body = _object(name, data)
    error = _error(name, body)
    if error is not None:
        return Note(error=error)
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    size = 0
    finish: str | None = None
    draft: Draft | None = None
    if isinstance(choice, dict):
        delta = choice.get("delta")
        if delta is None:
            delta = choice.get("message")
        size = _text_size(delta) if isinstance(delta, dict) else 0
        size += _length(choice.get("text"))
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            if reason in _ABORTS:
                return Note(error=f"the server ended the request: {reason}")
            finish = reason
        stats = choice.get("speculative_decoding_stats")
        if isinstance(stats, dict):
            draft = _vllm_draft(stats)
    usage = body.get("usage")
    total: int | None = None
    cached: int | None = None
    if isinstance(usage, dict):
        total = _count(usage.get("completion_tokens"))
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            cached = _count(details.get("cached_tokens"))
    timings = body.get("timings")
    if isinstance(timings, dict):
        predicted = _count(timings.get("predicted_n"))
        if total is None:
            total = predicted
        draft = _llama_draft(timings, predicted) or draft
        if cached is None:
            cached = _count(timings.get("cache_n"))
    return Note(total, size, isinstance(choice, dict), finish, None, draft, cached)


class _SglangReader:
    __slots__ = ("_length",)

    def __init__(self) -> None:
        self._length = 0

    def __call__(self, name: bytes, data: bytes) -> Note:
        if data == b"[DONE]":
            return DONE
        body = _object(name, data)
        error = _error(name, body)
        if error is not None:
            return Note(error=error)
        length = _length(body.get("text"))
        # Servers in incremental mode send the new text alone.
        size = length - self._length if length >= self._length else length
        self._length = length
        meta = body.get("meta_info")
        if not isinstance(meta, dict):
            return Note(size=size)
        finish: str | None = None
        reason = meta.get("finish_reason")
        if isinstance(reason, dict):
            finish = str(reason.get("type"))
            if finish in _ABORTS:
                return Note(error=str(reason.get("message") or "the server aborted the request"))
        elif isinstance(reason, str):
            finish = reason
        total = _count(meta.get("completion_tokens"))
        return Note(
            total,
            size,
            True,
            finish,
            None,
            _sglang_draft(meta, total),
            _count(meta.get("cached_tokens")),
        )


def count_of_whole(body: object) -> tuple[int | None, str | None]:
    """Tokens and text of a reply that was not streamed, of either kind."""
    if not isinstance(body, dict):
        return None, None
    usage = body.get("usage")
    meta = body.get("meta_info")
    total: int | None = None
    for source in (usage, meta):
        if isinstance(source, dict) and total is None:
            total = _count(source.get("completion_tokens"))
    choices = body.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        choice = choices[0]
        finish = choice.get("finish_reason")
        return total, finish if isinstance(finish, str) else None
    return total, None


def _object(name: bytes, data: bytes) -> dict[str, Any]:
    text = data.decode("utf-8", "replace")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        if name == b"error":
            return {"message": text}
        raise BadEventError(f"not JSON: {data[:80]!r}") from error
    if not isinstance(body, dict):
        if name == b"error":
            return {"message": str(body)}
        raise BadEventError(f"not an object: {data[:80]!r}")
    return body


def _error(name: bytes, body: Mapping[str, Any]) -> str | None:
    error = body.get("error")
    if error is None:
        if name != b"error" and body.get("object") != "error":
            return None
        error = body
    if isinstance(error, dict):
        return str(error.get("message") or error.get("detail") or error)
    return str(error)


_TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "refusal")


def _text_size(delta: Mapping[str, Any]) -> int:
    size = 0
    for field in _TEXT_FIELDS:
        text = delta.get(field)
        if text:
            size += _length(text)
    calls = delta.get("tool_calls")
    if isinstance(calls, list):
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                size += _length(function.get("arguments")) + _length(function.get("name"))
    return size


def _length(text: object) -> int:
    return len(text) if isinstance(text, str) else 0


def _count(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS:
        return value
    return None


def _histogram(value: object) -> tuple[int, ...] | None:
    if isinstance(value, dict):
        try:
            by_length = {int(key): item for key, item in value.items()}
        except ValueError:
            return None
        if not by_length or not 0 <= min(by_length) <= max(by_length) < 1024:
            return None
        value = [by_length.get(place, 0) for place in range(max(by_length) + 1)]
    if not isinstance(value, list) or len(value) > 1024:
        return None
    counts = [_count(item) for item in value]
    known = tuple(item for item in counts if item is not None)
    return known if len(known) == len(counts) and any(known) else None


def _sglang_draft(meta: Mapping[str, Any], total: int | None) -> Draft | None:
    # Names before and after the renaming of "accept" to "correct drafts".
    histogram = _histogram(meta.get("spec_correct_drafts_histogram")) or _histogram(
        meta.get("spec_accept_histogram")
    )
    rounds = _count(meta.get("spec_verify_ct"))
    length = meta.get("spec_accept_length")
    if not rounds and total and isinstance(length, (int, float)) and 1 <= length <= 1024:
        rounds = max(1, round(total / length))
    if not rounds or not total:
        return None
    return Draft(total, rounds, histogram)


def _vllm_draft(stats: Mapping[str, Any]) -> Draft | None:
    rounds = _count(stats.get("num_spec_steps"))
    accepted = _count(stats.get("num_accepted_draft_tokens"))
    if not rounds or accepted is None:
        return None
    return Draft(rounds + accepted, rounds, _histogram(stats.get("acceptance_histogram")))


def _llama_draft(timings: Mapping[str, Any], predicted: int | None) -> Draft | None:
    drafted = _count(timings.get("draft_n"))
    accepted = _count(timings.get("draft_n_accepted"))
    if not drafted or accepted is None or not predicted or accepted >= predicted:
        return None
    return Draft(predicted, predicted - accepted)
