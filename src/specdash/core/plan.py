"""What a cycle would run and change, before anything is touched."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from specdash.core.records import StageName
from specdash.core.settings import Resolution, Settings

_SCRIPT_FROM = 120


def command_text(argv: Sequence[str]) -> str:
    """An argument list for people. A script handed to ``sh -c`` is named, not printed: its
    name is the word behind it, its text stands in the plan's JSON."""
    words: list[str] = []
    for number, word in enumerate(argv):
        is_script = number >= 2 and argv[number - 1] == "-c" and len(word) > _SCRIPT_FROM
        words.append("SCRIPT" if is_script else shlex.quote(word))
    return " ".join(words)


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """One file that would change: where, and the unified diff."""

    path: str
    diff: str

    def to_json(self) -> dict[str, object]:
        return {"path": self.path, "diff": self.diff}


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """The exact commands of one stage on one host (argv lists, secrets masked)."""

    name: StageName
    host: str
    commands: tuple[tuple[str, ...], ...] = ()
    writes: tuple[PlannedWrite, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "host": self.host,
            "commands": [list(argv) for argv in self.commands],
            "writes": [write.to_json() for write in self.writes],
        }


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason why the cycle will not run, with what to do."""

    code: str
    message: str
    remedy: str = ""

    def to_json(self) -> dict[str, object]:
        return {"code": self.code, "message": self.message, "remedy": self.remedy}


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole plan of one candidate. With refusals it will not run."""

    rig: str
    before: Settings
    resolution: Resolution | None
    stages: tuple[PlannedStage, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The ``plan`` document of the contract."""
        return {
            "rig": self.rig,
            "before": self.before.to_json(),
            "after": None if self.resolution is None else self.resolution.settings.to_json(),
            "stages": [stage.to_json() for stage in self.stages],
            "refusals": [refusal.to_json() for refusal in self.refusals],
            "warnings": list(self.warnings),
        }
