"""Reading request bodies; what an API refuses is a BadRequestError."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from specdash.demo.engine.http import Ask


class BadRequestError(ValueError):
    """A body the API refuses (400)."""


def json_object(ask: Ask) -> dict[str, Any]:
    """The body as a JSON object."""
    try:
        body = ask.json()
    except ValueError:
        raise BadRequestError("the body is not JSON") from None
    if not isinstance(body, dict):
        raise BadRequestError("the body must be a JSON object")
    return body


def whole(body: Mapping[str, Any], name: str, default: int) -> int:
    """A whole number of the body, 0 or more."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadRequestError(f"{name} must be a whole number and at least 0, got {value!r}")
    return value


def prompts_of(body: Mapping[str, Any], text: str, ids: str) -> list[str]:
    """Prompts as text; token ids become something of the same length."""
    value = body.get(text)
    if value is None:
        value = body.get(ids)
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value:
        if all(isinstance(item, str) for item in value):
            return list(value)
        if all(isinstance(item, int) for item in value):
            return [_as_text(value)]
        if all(isinstance(item, list) for item in value):
            return [_as_text(item) for item in value]
    raise BadRequestError(f"{text}: a prompt is required")


def _as_text(ids: list[int]) -> str:
    return json.dumps(ids).ljust(4 * len(ids))[: max(4, 4 * len(ids))]


def content_of(message: object) -> str:
    """The text of one chat message."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if not isinstance(content, str):
        raise BadRequestError("messages: each needs a content")
    return content
