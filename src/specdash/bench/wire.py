"""What is sent: request bodies per route and engine, and what to leave out when it is refused.

Facts: SGLang's ``/generate`` takes ``sampling_params``; ``continuous_usage_stats`` gives SGLang
and vLLM a count on every event; llama.cpp gives ``timings`` on every event with
``timings_per_token`` and reuses a prefix unless ``cache_prompt`` is false; vLLM, SGLang and
llama.cpp take ``ignore_eos`` on the OpenAI routes, OpenAI itself refuses it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from specdash.bench.address import Route
from specdash.bench.protocol import Dialect
from specdash.bench.reading import Reader, openai_reader, sglang_reader
from specdash.bench.workloads import Prompt

# What may be left out, in the order in which it is tried when a refusal names nothing.
OPTIONAL = (
    "continuous_usage_stats",
    "ignore_eos",
    "timings_per_token",
    "cache_prompt",
    "stream_options",
    "temperature",
)

REFUSED = frozenset({400, 404, 405, 415, 422, 501})
"""Statuses that speak of the request rather than of the server's health."""

_NO_MODEL = re.compile(r"not[ _]found|not exist|unknown")


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: the prompt, salted, and how many tokens at most."""

    prompt: Prompt
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to ask this endpoint. ``left_out`` are parameters it refused."""

    route: Route
    dialect: Dialect
    model: str | None
    temperature: float
    ignore_eos: bool
    left_out: frozenset[str] = frozenset()
    limit_key: str = "max_tokens"

    def body(self, ask: Ask, *, stream: bool = True) -> dict[str, object]:
        """The JSON of one request."""
        if self.route == "generate":
            params: dict[str, object] = {"max_new_tokens": ask.max_tokens}
            self._optional(params, "temperature", self.temperature)
            if self.ignore_eos:
                self._optional(params, "ignore_eos", True)
            return {"text": ask.prompt.text, "sampling_params": params, "stream": stream}
        body: dict[str, object] = {"model": self.model or "default"}
        if self.route == "chat":
            body["messages"] = [
                {"role": role, "content": content} for role, content in ask.prompt.messages
            ]
        else:
            body["prompt"] = ask.prompt.text
        body[self.limit_key] = ask.max_tokens
        body["stream"] = stream
        self._optional(body, "temperature", self.temperature)
        if self.ignore_eos:
            self._optional(body, "ignore_eos", True)
        if self.dialect == "llama.cpp":
            self._optional(body, "cache_prompt", False)
        if stream:
            if self.dialect == "llama.cpp":
                self._optional(body, "timings_per_token", True)
            options: dict[str, object] = {"include_usage": True}
            self._optional(options, "continuous_usage_stats", True)
            self._optional(body, "stream_options", options)
        return body

    def reader(self) -> Reader:
        """A reader for one request's events."""
        return sglang_reader() if self.route == "generate" else openai_reader()

    @property
    def forces_length(self) -> bool:
        """Whether the endpoint is told to go on past its end of text."""
        return self.ignore_eos and "ignore_eos" not in self.left_out

    def after_refusal(self, status: int, reply: str) -> Recipe | None:
        """What to try when ``status`` with ``reply`` came back; None when nothing is left."""
        if status not in REFUSED:
            return None
        words = reply.lower()
        if self.route != "completions" and (
            status in (404, 405, 501) or "chat template" in words or "chat_template" in words
        ):
            if status == 404 and "model" in words and _NO_MODEL.search(words):
                return None
            return self.on_route("chat" if self.route == "generate" else "completions")
        if status not in (400, 422):
            return None
        present = [name for name in OPTIONAL if self._sends(name)]
        named = [name for name in present if name in words]
        names_limit = "max_completion_tokens" in words or (not named and "max_tokens" in words)
        if self.limit_key == "max_tokens" and names_limit and self.route == "chat":
            return replace(self, limit_key="max_completion_tokens")
        drop = named or present[:1]
        if not drop:
            return None
        return replace(self, left_out=self.left_out | frozenset(drop))

    def on_route(self, route: Route) -> Recipe:
        """The same on another route, with nothing left out yet."""
        return replace(self, route=route, left_out=frozenset())

    def _sends(self, name: str) -> bool:
        if name in self.left_out:
            return False
        if name == "ignore_eos":
            return self.ignore_eos
        if name in ("timings_per_token", "cache_prompt"):
            return self.dialect == "llama.cpp" and self.route != "generate"
        if name == "continuous_usage_stats":
            return self.route != "generate" and "stream_options" not in self.left_out
        if name == "stream_options":
            return self.route != "generate"
        return True

    def _optional(self, body: dict[str, object], name: str, value: object) -> None:
        if name not in self.left_out:
            body[name] = value
