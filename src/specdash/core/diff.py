"""A unified diff of two texts, for plans and dialogs."""

from __future__ import annotations

import difflib


def unified(before: bytes, after: bytes, path: str) -> str:
    """The unified diff with three lines of context; "" where nothing differs."""
    old = before.decode("utf-8", "replace").splitlines()
    new = after.decode("utf-8", "replace").splitlines()
    return "\n".join(difflib.unified_diff(old, new, path, path, lineterm=""))
