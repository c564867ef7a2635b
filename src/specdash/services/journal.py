"""What ``journalctl -o json`` says, as log lines. Pure.

JSON rather than ``cat``: a message of several lines stays one record until we split it, and
bytes that are not UTF-8 arrive as they were, where ``cat`` prints "[45B blob data]".
"""

from __future__ import annotations

import json
from typing import Any


def lines_of(record: bytes) -> list[bytes]:
    """The log lines in one line of output.

    What is no JSON object (a hint about rights, ``-- No entries --``) is passed on as it is, so
    that it can be read; a record without a message gives nothing.
    """
    try:
        entry: Any = json.loads(record)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict):
        return [record] if record.strip() else []
    return [line for message in _messages(entry.get("MESSAGE")) for line in message.split(b"\n")]


def _messages(value: Any) -> list[bytes]:
    """A text; an array of byte values (not UTF-8); an array of either (a repeated field)."""
    if isinstance(value, str):
        return [value.encode("utf-8", "surrogatepass")]
    if not isinstance(value, list):
        return []
    if all(isinstance(item, int) and 0 <= item <= 255 for item in value):
        return [bytes(value)] if value else []
    return [message for item in value if item is not value for message in _messages(item)]
