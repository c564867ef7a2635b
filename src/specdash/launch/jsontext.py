"""The settings inside a JSON value of a flag, each with the characters that write it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from specdash.launch.trace import Traced

_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class JsonMember:
    """One key of the object. ``written`` is the value as JSON writes it, quotes included."""

    key: str
    value: object
    written: Traced

    @property
    def bare(self) -> Traced:
        """The value without its quotes, where it is a string."""
        return self.written[1:-1] if isinstance(self.value, str) else self.written


def members(text: Traced) -> Mapping[str, JsonMember] | None:
    """The members of a JSON object (of two equal keys the last); None where it is none."""
    raw = text.text
    try:
        if not isinstance(json.loads(raw), dict):
            return None
    except (ValueError, RecursionError):
        return None
    found: dict[str, JsonMember] = {}
    at = _skip(raw, raw.index("{") + 1)
    while raw[at] != "}":
        key, end = _DECODER.raw_decode(raw, at)
        start = _skip(raw, _skip(raw, end) + 1)
        value, end = _DECODER.raw_decode(raw, start)
        found[key] = JsonMember(key, value, text[start:end])
        at = _skip(raw, end)
        if raw[at] == ",":
            at = _skip(raw, at + 1)
    return found


def _skip(raw: str, at: int) -> int:
    match = _BLANK.match(raw, at)
    return at if match is None else match.end()
