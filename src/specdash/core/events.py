"""The one event stream. The cockpit, the headless verbs and history read the same facts."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

from specdash.core.gpu import Gpu, GpuProcess, Problem, Snapshot
from specdash.core.records import Cell, CycleRecord, StageName, StageState
from specdash.core.service import ServiceStatus
from specdash.core.settings import Candidate, Resolution, Settings
from specdash.core.text import Safe


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened at ``t`` (seconds since the epoch)."""

    t: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkChanged(Event):
    """The connection to one host changed."""

    host: str
    state: Literal["connecting", "up", "lost", "refused"]
    message: Safe = Safe("")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChanged(Event):
    """The service, and what its config and its engine say about speculation.

    ``now`` is what the running engine reports (None while it does not answer), ``config`` what
    the launch config says.
    """

    service: ServiceStatus
    now: Settings | None = None
    config: Settings | None = None
    model: Safe = Safe("")
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusSampled(Event):
    """One reading of the rig's GPUs."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine(Event):
    """One line from the service's log, or from specdash itself."""

    source: Literal["service", "specdash"]
    text: Safe


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRan(Event):
    """A command ended on a host. ``exit_status`` None: the link was lost, outcome unknown."""

    host: str
    argv: tuple[str, ...]
    exit_status: int | None
    seconds: float
    output: Safe = Safe("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(Event):
    """One plain sentence for the operator, with evidence a key away."""

    level: Literal["info", "warning", "error"]
    message: Safe
    remedy: Safe = Safe("")
    evidence: tuple[Safe, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleStarted(Event):
    """A cycle began; for ``measure_only`` there is no restart."""

    candidate: Candidate
    resolution: Resolution
    concurrency: tuple[int, ...]
    measure_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStarted(Event):
    stage: StageName
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNote(Event):
    """What the running stage waits for now ("port 30000 still open")."""

    stage: StageName
    detail: Safe


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEnded(Event):
    stage: StageName
    state: StageState
    seconds: float
    detail: Safe = Safe("")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress(Event):
    """Where the engine is in its load. ``fraction`` in [0, 1] within the phase, if known."""

    phase: Literal["process", "weights", "draft-weights", "kv-cache", "graphs", "warm-up", "ready"]
    fraction: float | None = None
    detail: Safe = Safe("")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStarted(Event):
    concurrency: int
    requests: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellProgress(Event):
    """At most 10 a second. ``tok_s`` is the rate of the last second, ``mean_tok_s`` of the window.

    ``warming`` is True until the window opens.
    """

    concurrency: int
    warming: bool
    tok_s: float | None
    mean_tok_s: float | None
    per_request_tok_s: float | None
    ttft_ms: float | None
    accept_length: float | None
    in_flight: int
    done: int
    failed: int
    elapsed_s: float
    budget_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CellMeasured(Event):
    cell: Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleEnded(Event):
    """The cycle is over. ``record.end_state`` names what runs now and with which depth."""

    record: CycleRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChanged(Event):
    """The candidates that wait, first to run first."""

    queue: tuple[Candidate, ...]


_CAMEL = re.compile(r"(?<!^)(?=[A-Z])")


def event_json(event: Event) -> dict[str, object]:
    """``{"event": "stage_started", "t": ..., ...}``: one line of ``--jsonl``."""
    body: dict[str, object] = {
        "event": _CAMEL.sub("_", type(event).__name__).lower(),
        "t": event.t,
    }
    for item in fields(event):
        if item.name != "t":
            body[item.name] = _plain(getattr(event, item.name))
    return body


def _plain(value: Any) -> object:
    if isinstance(value, (Cell, CycleRecord, Settings, Snapshot, Gpu, GpuProcess, Problem)):
        return value.to_json()
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
