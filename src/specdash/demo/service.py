"""One service of the box: its state, and the small facts about files and processes behind it."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from specdash.demo.units import Unit


class NoSuchUnitError(LookupError):
    """There is no file for this unit."""


class StartRefusedError(RuntimeError):
    """The unit cannot be started; the text is systemd's."""


@dataclass(slots=True)
class Service:
    """One loaded unit and its run."""

    name: str
    unit: Unit
    fingerprint: tuple[object, ...]
    active: str = "inactive"
    sub: str = "dead"
    main_pid: int = 0
    invocation: str = ""
    result: str = "success"
    exec_code: int = 0
    exec_status: int = 0
    restarts: int = 0
    changed_at: float = 0.0
    active_at: float = 0.0
    started_at: float = 0.0
    argv: list[str] = field(default_factory=list)
    extra_env: dict[str, str] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None
    runner: asyncio.Task[None] | None = None
    stop_asked: asyncio.Event = field(default_factory=asyncio.Event)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    starts: deque[float] = field(default_factory=deque)

    def state(self, active: str, sub: str) -> None:
        if active == "active" and self.active != "active":
            self.active_at = time.time()
        if (active, sub) != (self.active, self.sub):
            self.changed_at = time.time()
        self.active, self.sub = active, sub


def fingerprint(fragment: Path, dropins: list[Path]) -> tuple[object, ...]:
    out: list[object] = []
    for path in (fragment, *dropins):
        with suppress(FileNotFoundError):
            stat = path.stat()
            out.append((str(path), stat.st_mtime_ns, stat.st_ino, stat.st_size))
    return tuple(out)


def existing(directory: str) -> str:
    return directory if Path(directory).is_dir() else "/"


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def exit_name(code: int) -> str:
    return {1: "FAILURE", 2: "INVALIDARGUMENT", 203: "EXEC"}.get(code, "n/a")
