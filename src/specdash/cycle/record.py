"""The record of a cycle from what is known at its end. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specdash.core.errors import SpecdashError
from specdash.core.records import CycleRecord, Failure, Outcome
from specdash.core.redact import Redactor
from specdash.core.settings import Candidate, Capacity, Settings
from specdash.cycle.progress import Progress


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known when a cycle ends. ``candidate`` None: it only measured."""

    rig: str
    simulated: bool
    candidate: Candidate | None
    wanted: Settings
    resolved: Settings | None
    capacity: Capacity
    outcome: Outcome
    error: SpecdashError | None
    end_state: str
    started_at: float


def record_of(ending: Ending, progress: Progress, redact: Redactor) -> CycleRecord:
    """The record, with secrets masked in everything that came from outside."""
    settled = (
        replace(stage, state="skipped", seconds=0.0) if stage.state == "pending" else stage
        for stage in progress.stages.values()
    )
    return CycleRecord(
        rig=ending.rig,
        simulated=ending.simulated,
        candidate=ending.wanted,
        asked=ending.candidate,
        resolved=ending.resolved,
        stages=tuple(settled),
        capacity=ending.capacity,
        gpu_idle_mib=progress.idle_mib,
        gpu_peak_mib=tuple(progress.peak_mib.values()),
        cells=tuple(progress.cells),
        outcome=ending.outcome,
        failure=None if ending.error is None else _failure(ending.error, progress, redact),
        end_state=ending.end_state,
        started_at=ending.started_at,
        measure_only=ending.candidate is None,
        note="" if ending.candidate is None else ending.candidate.note,
    )


def asked_settings(candidate: Candidate) -> Settings:
    """A candidate before any rule was applied."""
    return Settings(
        num_steps=candidate.num_steps,
        eagle_topk=candidate.eagle_topk,
        num_draft_tokens=candidate.num_draft_tokens,
    )


def _failure(error: SpecdashError, progress: Progress, redact: Redactor) -> Failure:
    return Failure(
        stage=progress.current,
        cause=redact.text(error.message),
        remedy=redact.text(error.remedy),
        evidence=tuple(redact.text(line) for line in error.evidence),
    )
