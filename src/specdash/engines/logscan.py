"""From log lines to load phases, by tables of patterns. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specdash.core.text import make_safe
from specdash.engines.protocol import LogFact, Phase

# Longer lines are progress bars that overwrite themselves (their end counts) or dumps of
# arguments (their start counts).
_LONGEST = 4000


@dataclass(frozen=True, slots=True)
class Mark:
    """A pattern that shows a phase.

    Named groups: ``done`` and ``total``, or ``percent``, give the fraction within the phase.
    ``detail`` is a format string over the other named groups.
    """

    pattern: re.Pattern[str]
    phase: Phase
    detail: str = ""
    fraction: float | None = None


def mark(pattern: str, phase: Phase, detail: str = "", *, fraction: float | None = None) -> Mark:
    """A table row."""
    return Mark(re.compile(pattern), phase, detail, fraction)


def readable(line: str) -> str:
    """The part of a line that is worth matching, without control sequences."""
    if len(line) > _LONGEST:
        line = line[-_LONGEST:] if "\r" in line else line[:_LONGEST]
    return make_safe(line)


def scan(line: str, marks: Sequence[Mark]) -> LogFact | None:
    """What the first matching row says of ``line``, or None."""
    text = readable(line)
    for row in marks:
        found = row.pattern.search(text)
        if found is not None:
            groups = found.groupdict(default="")
            return LogFact(
                row.phase,
                row.fraction if row.fraction is not None else _fraction(groups),
                row.detail.format(**groups),
            )
    return None


def _fraction(groups: dict[str, str]) -> float | None:
    done, total, percent = (groups.get(key, "") for key in ("done", "total", "percent"))
    if done and total and float(total) > 0:
        return min(1.0, float(done) / float(total))
    if percent:
        return min(1.0, float(percent) / 100.0)
    return None


class LoadReader:
    """Facts of one load in order: tells the draft's weights from the target's.

    Engines print the same lines for both; the second time weights load, after the first
    ended, they are the draft's.
    """

    def __init__(self) -> None:
        self._target_loaded = False
        self._draft_begun = False

    def place(self, fact: LogFact) -> LogFact:
        """The fact with its phase corrected by what came before."""
        if fact.phase == "process":
            self._target_loaded = self._draft_begun = False
        elif fact.phase != "weights":
            self._target_loaded = True
        elif self._target_loaded:
            # The ranks of a tensor-parallel target end one after another: only a new
            # beginning is the draft's.
            self._draft_begun = self._draft_begun or fact.fraction != 1.0
            if self._draft_begun:
                return replace(fact, phase="draft-weights")
        elif fact.fraction == 1.0 and fact.detail.startswith("loaded"):
            self._target_loaded = True
        return fact
