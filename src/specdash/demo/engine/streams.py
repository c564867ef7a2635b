"""How generated tokens look on the wire: SSE chunks of several tokens, usage, meta data.

The parts of a chunk that do not change are encoded once, so that a round for many requests costs
little more than the writes.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Protocol

from specdash.demo.engine.batch import Request
from specdash.demo.engine.http import Connection
from specdash.demo.faults import Fault

_SENTENCES: str = (
    "the rig runs its draft ahead of the target and the target looks at every guess in one pass so "
    "a longer guess pays only while it is often right when it is wrong the work is thrown away and "
    "the next round starts from the last good token this text is simulated it says nothing new but "
    "it has a length a rhythm and an end which is all that a measurement needs to see "
)
_WORDS = _SENTENCES.split()

CUT_AFTER_TOKENS = 12


class Text:
    """Endless text of one-word tokens, the same for the same prompt."""

    def __init__(self, mark: int) -> None:
        self._start = mark % len(_WORDS)
        self._stride = 1 + mark % 7

    def word(self, position: int) -> str:
        text = _WORDS[(self._start + position * self._stride) % len(_WORDS)]
        return text if position == 0 else " " + text

    def between(self, first: int, last: int) -> str:
        """Tokens ``first`` up to but without ``last``."""
        return "".join(self.word(position) for position in range(first, last))

    def upto(self, count: int) -> str:
        return self.between(0, count)


@dataclass(slots=True)
class Counts:
    """What an answer needs beside the tokens."""

    rid: str
    text: Text
    started: float
    faults: frozenset[Fault]
    model: str = ""
    include_usage: bool = False
    continuous_usage: bool = False
    cache_report: bool = False
    created: int = field(default_factory=lambda: int(time.time()))


def usage(counts: Counts, request: Request) -> dict[str, object]:
    """The ``usage`` object."""
    details = {"cached_tokens": request.cached_tokens} if counts.cache_report else None
    return {
        "prompt_tokens": request.prompt_tokens,
        "total_tokens": request.prompt_tokens + request.emitted,
        "completion_tokens": request.emitted,
        "prompt_tokens_details": details,
        "reasoning_tokens": 0,
    }


def generate_meta(counts: Counts, request: Request, *, final: bool = True) -> dict[str, object]:
    """``meta_info`` of ``/generate``; the speculation fields come with the last chunk."""
    meta: dict[str, object] = {
        "id": counts.rid,
        "finish_reason": None,
        "prompt_tokens": request.prompt_tokens,
        "weight_version": "default",
        "total_retractions": 0,
        "completion_tokens": request.emitted,
        "cached_tokens": request.cached_tokens,
    }
    if not final:
        return meta
    meta["finish_reason"] = (
        {"type": "length", "length": request.wanted}
        if request.finish == "length"
        else {"type": "stop", "matched": 151645}
    )
    meta["e2e_latency"] = time.monotonic() - counts.started
    if request.rounds and len(request.histogram) > 1:
        proposed = request.rounds * (len(request.histogram) - 1)
        correct = sum(n * count for n, count in enumerate(request.histogram))
        meta.update(
            {
                "spec_accept_rate": correct / proposed,
                "spec_accept_length": request.emitted / request.rounds,
                "spec_verify_ct": request.rounds,
                "spec_num_correct_drafts": correct,
                "spec_num_proposed_drafts": proposed,
                "spec_correct_drafts_histogram": list(request.histogram),
            }
        )
    return meta


class Collect:
    """A sink for answers in one piece: waits for the end."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tokens(self, count: int, finish: str | None) -> None:
        del count
        if finish is not None and not self.done.done():
            self.done.set_result(None)


class Reply(Protocol):
    """A sink that writes to a client."""

    done: asyncio.Future[None]

    def tokens(self, count: int, finish: str | None) -> None: ...


class _Stream:
    """What the three stream forms share: faults, the end, SSE framing."""

    def __init__(self, connection: Connection, counts: Counts, request: Request) -> None:
        self._connection = connection
        self._counts = counts
        self._request = request
        self._before = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tokens(self, count: int, finish: str | None) -> None:
        """Write the chunk of one round."""
        if self._connection.lost:
            self._end()
            return
        faults = self._counts.faults
        late = self._request.emitted >= CUT_AFTER_TOKENS
        if late and Fault.STREAM_CUT in faults:
            self._connection.drop()
            self._end()
            return
        if late and Fault.STREAM_STALLS in faults:
            return
        if late and Fault.BROKEN_SSE in faults:
            self._connection.send(b'data: {"text": "unfinished\n\ndata: nothing of value\n\n')
            return
        if count or finish is not None:
            self._connection.send(self._chunk(self._before, self._request.emitted, finish))
        self._before = self._request.emitted
        if finish is not None:
            self._connection.send(self._tail() + b"data: [DONE]\n\n")
            self._connection.end_stream()
            self._end()

    def _end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def _counted(self) -> bool:
        return Fault.NO_USAGE not in self._counts.faults

    def _chunk(self, first: int, last: int, finish: str | None) -> bytes:
        raise NotImplementedError

    def _tail(self) -> bytes:
        return b""


def _event(body: object) -> bytes:
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


class GenerateStream(_Stream):
    """``/generate``: cumulative text, cumulative token count."""

    def __init__(self, connection: Connection, counts: Counts, request: Request) -> None:
        super().__init__(connection, counts, request)
        self._so_far = ""
        meta = generate_meta(counts, request, final=False)
        del meta["completion_tokens"]
        self._meta = json.dumps(meta, separators=(",", ":"))[:-1].encode()

    def _chunk(self, first: int, last: int, finish: str | None) -> bytes:
        self._so_far += self._counts.text.between(first, last)
        if finish is None and self._counted():
            # The words are plain ASCII without anything JSON would escape.
            return b'data: {"text":"%b","meta_info":%b,"completion_tokens":%d}}\n\n' % (
                self._so_far.encode(),
                self._meta,
                last,
            )
        meta = generate_meta(self._counts, self._request, final=finish is not None)
        if not self._counted():
            for name in ("completion_tokens", "spec_verify_ct", "spec_accept_length"):
                meta.pop(name, None)
        return _event({"text": self._so_far, "meta_info": meta})


class _OpenAiStream(_Stream):
    """The OpenAI forms: deltas, usage at the end or on every chunk."""

    kind = ""

    def __init__(self, connection: Connection, counts: Counts, request: Request) -> None:
        super().__init__(connection, counts, request)
        head = {
            "id": counts.rid,
            "object": self.kind,
            "created": counts.created,
            "model": counts.model,
        }
        self._head = json.dumps(head, separators=(",", ":"))[:-1].encode()
        self._usage_end = (
            b',"usage":{"prompt_tokens":%d,"total_tokens":%%d,"completion_tokens":%%d,'
            b'"prompt_tokens_details":null}}\n\n' % request.prompt_tokens
        )

    def _event(self, choices: bytes, last: int) -> bytes:
        if self._counts.continuous_usage and self._counted():
            end = self._usage_end % (self._request.prompt_tokens + last, last)
        else:
            end = b',"usage":null}\n\n'
        return b"data: " + self._head + b',"choices":[' + choices + b"]" + end

    def _tail(self) -> bytes:
        if not self._counts.include_usage or not self._counted():
            return b""
        final = json.dumps(usage(self._counts, self._request), separators=(",", ":")).encode()
        return b"data: " + self._head + b',"choices":[],"usage":' + final + b"}\n\n"


class CompletionStream(_OpenAiStream):
    """``/v1/completions``."""

    kind = "text_completion"

    def _chunk(self, first: int, last: int, finish: str | None) -> bytes:
        reason = b"null" if finish is None else b'"%b"' % finish.encode()
        choice = b'{"index":0,"text":"%b","logprobs":null,"finish_reason":%b}' % (
            self._counts.text.between(first, last).encode(),
            reason,
        )
        return self._event(choice, last)


class ChatStream(_OpenAiStream):
    """``/v1/chat/completions``: the role first, the finish reason in a chunk of its own."""

    kind = "chat.completion.chunk"

    def _chunk(self, first: int, last: int, finish: str | None) -> bytes:
        out = b""
        if first == 0:
            out += self._event(_delta(b'"role":"assistant","content":""', b"null"), 0)
        words = self._counts.text.between(first, last).encode()
        if words:
            out += self._event(_delta(b'"content":"%b"' % words, b"null"), last)
        if finish is not None:
            out += self._event(_delta(b"", b'"%b"' % finish.encode()), last)
        return out


def _delta(body: bytes, finish: bytes) -> bytes:
    return b'{"index":0,"delta":{%b},"logprobs":null,"finish_reason":%b}' % (body, finish)
