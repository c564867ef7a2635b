"""What the cockpit sees of an open rig. The cockpit knows nothing below this."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from specdash.core.events import Event
from specdash.core.plan import Plan
from specdash.core.records import CycleRecord
from specdash.core.settings import Candidate, Resolution, Settings
from specdash.core.text import Safe
from specdash.rig.schema import Rig


@dataclass(frozen=True, slots=True)
class EngineWords:
    """How the engine calls its knobs, for the screen."""

    engine: str
    knob: str
    has_topk: bool


@dataclass(frozen=True, slots=True)
class CandidateCheck:
    """A candidate under the engine's rules, as typed: resolved, or refused with the reason."""

    resolution: Resolution | None
    refusal: Safe = Safe("")


class CockpitSession(Protocol):
    """One open rig. Nothing here blocks on the network longer than the call says."""

    @property
    def rig(self) -> Rig: ...

    @property
    def simulated(self) -> bool: ...

    @property
    def words(self) -> EngineWords: ...

    @property
    def busy(self) -> bool:
        """A cycle or a measurement runs."""
        ...

    @property
    def queue(self) -> tuple[Candidate, ...]: ...

    @property
    def results(self) -> tuple[CycleRecord, ...]:
        """Finished cycles of this rig, oldest first, earlier sessions included."""
        ...

    def events(self) -> AsyncIterator[Event]:
        """All events from now on, the latest of each lasting kind first (links, status, GPUs,
        queue, and the stages of a running cycle)."""
        ...

    async def open(self) -> None:
        """Connect and start the live streams. Failures arrive as events, never as exceptions."""
        ...

    async def close(self) -> None:
        """Stop streams and hang up; a running cycle is cancelled to a named state first."""
        ...

    def check(self, candidate: Candidate, base: Settings | None = None) -> CandidateCheck:
        """Apply the engine's rules; no I/O."""
        ...

    async def plan(self, candidate: Candidate) -> Plan:
        """Read the rig and say exactly what a cycle would run and change. Touches nothing."""
        ...

    def submit(self, candidate: Candidate, *, concurrency: tuple[int, ...] | None = None) -> None:
        """Run a cycle now, or queue it behind the one that runs."""
        ...

    def submit_first(self, candidate: Candidate) -> None:
        """Cut the running cell, skip what is left of its measurement, run this candidate next."""
        ...

    def unqueue(self, index: int) -> None: ...

    def measure(self, *, concurrency: tuple[int, ...] | None = None) -> None:
        """Measure what runs now, with no restart."""
        ...

    def skip_cell(self) -> None:
        """Cut the running cell; the cycle goes on with the next concurrency."""
        ...

    async def cancel(self) -> None:
        """Cancel the running cycle at whatever stage, and empty the queue; returns when the rig
        is in a named state. Again while it is on its way back: without the old service."""
        ...

    async def export(self, format_name: str) -> Safe:
        """Write the results to a file; returns where. ``md``, ``csv`` or ``json``."""
        ...
