"""A fault of specdash itself, in words: what, and where in its own code, without a traceback."""

from __future__ import annotations

import traceback
from pathlib import PurePath

from specdash.core.errors import InternalError


def mistake_of(bug: BaseException) -> InternalError:
    """The message for an exception nobody expected. Evidence: its text, then where it arose.

    Values of variables are left out: they may hold a secret.
    """
    frames = traceback.extract_tb(bug.__traceback__)
    own = [frame for frame in frames if "specdash" in PurePath(frame.filename).parts]
    places = [f"{_short(frame.filename)}:{frame.lineno} in {frame.name}" for frame in own[-3:]]
    return InternalError(
        "specdash itself made a mistake.",
        remedy="The rig is not touched by it. Please report it with the lines under v.",
        evidence=[f"{type(bug).__name__}: {bug}", " < ".join(reversed(places)) or "outside"],
    )


def _short(path: str) -> str:
    parts = PurePath(path).parts
    start = len(parts) - 1 - parts[::-1].index("specdash")
    return "/".join(parts[start:])
