"""Reading what an endpoint says, where anything may be missing, renamed or of another type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdash.engines.protocol import Generation, Http, HttpReply, Readiness

PROMPT = "Count from one to ten: one, two, three,"
PROMPT_TOKENS = 8


def as_dict(value: Any) -> Mapping[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value if it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def int_at(values: Mapping[str, Any], *keys: str) -> int | None:
    """The first of ``keys`` that holds a whole number (true and false are none)."""
    for key in keys:
        value = values.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def text_at(values: Mapping[str, Any], *keys: str) -> str | None:
    """The first of ``keys`` that holds a text which is not empty."""
    for key in keys:
        value = values.get(key)
        if isinstance(value, str) and value:
            return value
    return None


def first_model(reply: HttpReply) -> str | None:
    """The first model id of an OpenAI ``/v1/models`` answer."""
    for item in as_list(as_dict(reply.json()).get("data")):
        name = text_at(as_dict(item), "id")
        if name is not None:
            return name
    return None


def readiness_of(reply: HttpReply, *, loading: str) -> Readiness:
    """Ready only for 200. ``loading`` says what 503 means for this engine."""
    status = reply.status
    if status == 200:
        return Readiness(True, "healthy")
    if status is None:
        return Readiness(False, f"no answer yet: {reply.error or 'nothing listens'}")
    if status in (401, 403):
        return Readiness(
            False,
            f"alive, but it wants an API key (HTTP {status}): name the variable that holds it "
            "in the rig file, engine.api_key_env",
            needs_key=True,
        )
    if status == 503:
        return Readiness(False, loading)
    return Readiness(False, f"/health answers HTTP {status}")


async def complete(http: Http, model: str | None) -> Generation:
    """One short completion through the OpenAI route, at temperature 0."""
    if model is None:
        model = first_model(await http.get("/v1/models"))
    body: dict[str, object] = {
        "prompt": PROMPT,
        "max_tokens": PROMPT_TOKENS,
        "temperature": 0,
        "stream": False,
    }
    if model is not None:
        body["model"] = model
    reply = await http.post("/v1/completions", body)
    if reply.status != 200:
        return Generation(False, error=refusal_of(reply))
    answer = as_dict(reply.json())
    choices = as_list(answer.get("choices"))
    text = (text_at(as_dict(choices[0]), "text") if choices else None) or ""
    tokens = int_at(as_dict(answer.get("usage")), "completion_tokens")
    return judged(tokens, text, reply)


def judged(tokens: int | None, text: str, reply: HttpReply) -> Generation:
    """Good where tokens came; where they were not counted, where text came."""
    if tokens is not None and tokens > 0:
        return Generation(True, tokens, text)
    if tokens is None and text:
        return Generation(True, None, text)
    if reply.json() is None:
        return Generation(False, error=f"the answer is not JSON: {excerpt(reply.body)}")
    return Generation(False, tokens, text, "the engine answered without one token")


def refusal_of(reply: HttpReply) -> str:
    """One line on an answer that is not a success."""
    if reply.status is None:
        return reply.error or "no answer"
    answer = as_dict(reply.json())
    error = answer.get("error")
    message = text_at(as_dict(error), "message") or text_at(answer, "message", "detail", "error")
    return f"HTTP {reply.status}: {message or excerpt(reply.body)}"


def excerpt(body: bytes, limit: int = 200) -> str:
    """The start of a body on one line."""
    text = " ".join(body[: 4 * limit].decode("utf-8", "replace").split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
