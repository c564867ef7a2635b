"""The one boundary where text from outside becomes safe to put on a screen."""

from __future__ import annotations

import re
import unicodedata
from typing import NewType

Safe = NewType("Safe", str)
"""Text without control sequences. Only :func:`make_safe` makes one (a test holds that)."""

# Complete sequences first, then unterminated ones, which swallow the rest of their line.
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC DCS SOS PM APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*"  # unterminated CSI
    r"|\x1b[ -/]*[0-~]?"  # two-byte escapes
)
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_TAB_WIDTH = 8


def make_safe(raw: bytes | str, *, keep_newlines: bool = False, limit: int = 20_000) -> Safe:
    """Return ``raw`` as text that can neither style nor control a terminal.

    Invalid UTF-8 becomes U+FFFD. A carriage return overwrites the line as a terminal
    would (progress bars keep their last state). Newlines become spaces unless
    ``keep_newlines``. At most ``limit`` characters are kept; a cut is marked with an ellipsis.
    """
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    text = _SEQUENCES.sub("", text.replace("\r\n", "\n"))
    lines = [_last_overwrite(line) for line in text.split("\n")]
    joined = ("\n" if keep_newlines else " ").join(_printable(line) for line in lines)
    if len(joined) > limit:
        joined = joined[: limit - 1] + "…"
    return Safe(joined)


def _last_overwrite(line: str) -> str:
    parts = [part for part in line.split("\r") if part]
    return parts[-1] if parts else ""


def _printable(line: str) -> str:
    kept: list[str] = []
    for char in line.expandtabs(_TAB_WIDTH):
        if char in _BIDI:
            continue
        category = unicodedata.category(char)
        if category in ("Cc", "Cs", "Zl", "Zp"):
            continue
        kept.append(char)
    return "".join(kept)
