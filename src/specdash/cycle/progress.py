"""What one cycle has done so far: the mutable heart, turned into a record at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from specdash.core.clock import Clock
from specdash.core.errors import SpecdashError
from specdash.core.events import StageEnded, StageNote, StageStarted
from specdash.core.records import STAGES, Cell, StageName, StageRecord, StageState
from specdash.core.text import make_safe
from specdash.cycle.world import World


@dataclass
class Progress:
    """Stages, cells and the marks that decide the way back."""

    stages: dict[StageName, StageRecord] = field(
        default_factory=lambda: {name: StageRecord(name) for name in STAGES}
    )
    cells: list[Cell] = field(default_factory=list)
    current: StageName = "preflight"
    stopping: bool = False
    """The service was asked to stop: from here on it may be down."""
    written: bool = False
    """The launch config may hold the candidate."""
    starting: bool = False
    verified: bool = False
    """The engine answered and runs what was asked."""
    idle_mib: tuple[int, ...] = ()
    peak_mib: dict[str, int] = field(default_factory=dict)

    def record(
        self, name: StageName, state: StageState, seconds: float | None, detail: str
    ) -> None:
        self.stages[name] = StageRecord(name, state, seconds, detail)


class StageRunner:
    """Runs stages: emits their events, keeps their times, names the one that failed."""

    def __init__(self, world: World, progress: Progress) -> None:
        self._world = world
        self._progress = progress
        self._detail = ""
        self._noted = ""

    def note(self, detail: str) -> None:
        """Say what the running stage waits for, once for each new text."""
        if detail != self._noted:
            self._noted = detail
            self._world.emit(
                StageNote(
                    t=self._world.clock.wall(),
                    stage=self._progress.current,
                    detail=make_safe(self._world.redact.text(detail)),
                )
            )

    def result(self, detail: str) -> None:
        """What the running stage found, for its record."""
        self._detail = detail

    def skip(self, name: StageName, why: str) -> None:
        """A stage that has nothing to do."""
        self._progress.record(name, "skipped", 0.0, why)
        self._end(name, "skipped", 0.0, why)

    @asynccontextmanager
    async def stage(self, name: StageName, deadline_s: float | None = None) -> AsyncIterator[None]:
        """One stage. Whatever leaves it by an exception is marked failed or cancelled."""
        clock: Clock = self._world.clock
        self._progress.current = name
        self._detail = self._noted = ""
        self._progress.record(name, "running", None, "")
        self._world.emit(StageStarted(t=clock.wall(), stage=name, deadline_s=deadline_s))
        started = clock.now()
        state: StageState = "failed"
        try:
            await self._world.journal.write("stage", name=name)
            yield
            state = "done"
        except asyncio.CancelledError:
            state = "cancelled"
            raise
        except SpecdashError as error:
            self._detail = error.message
            raise
        finally:
            seconds = clock.now() - started
            detail = self._world.redact.text(self._detail)
            self._progress.record(name, state, seconds, detail)
            self._end(name, state, seconds, detail)

    def _end(self, name: StageName, state: StageState, seconds: float, detail: str) -> None:
        self._world.emit(
            StageEnded(
                t=self._world.clock.wall(),
                stage=name,
                state=state,
                seconds=seconds,
                detail=make_safe(detail),
            )
        )


def keep_peaks(progress: Progress, readings: dict[str, int]) -> None:
    """Raise the recorded peak of each GPU (uuid -> MiB)."""
    for key, used in readings.items():
        progress.peak_mib[key] = max(used, progress.peak_mib.get(key, 0))
