"""Measurements and cycles as values: the JSON of the headless verbs is made here and only here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from specdash.core.settings import Candidate, Capacity, Settings

CellFlag = Literal[
    "queued",
    "client-bound",
    "throttled",
    "estimated-tokens",
    "not-fresh",
    "short",
    "cut",
    "failed",
    "no-ignore-eos",
]
Outcome = Literal["measured", "failed", "cancelled", "refused"]
StageName = Literal[
    "preflight",
    "stop",
    "reap",
    "free",
    "write",
    "reload",
    "start",
    "load",
    "verify",
    "measure",
]
StageState = Literal["pending", "running", "done", "failed", "skipped", "cancelled"]

STAGES: tuple[StageName, ...] = (
    "preflight",
    "stop",
    "reap",
    "free",
    "write",
    "reload",
    "start",
    "load",
    "verify",
    "measure",
)


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles of one figure in ms; all None where nothing was measured."""

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None

    def to_json(self) -> dict[str, object]:
        return {"mean": self.mean, "p50": self.p50, "p95": self.p95, "p99": self.p99}


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """How many requests ended well, how many did not, and why (cause -> count)."""

    ok: int = 0
    failed: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        return {"ok": self.ok, "failed": self.failed, "errors": dict(self.errors)}


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: candidate x concurrency x workload.

    ``output_tok_s`` = output tokens in the window / ``window_s``, over all requests, with its
    95 % interval. ``per_request_tok_s`` = mean of 1000 / TPOT. TPOT = (latency - TTFT) /
    (tokens - 1), in ms, as ``sglang.bench_serving`` defines it. ITL is per token (a chunk of n
    tokens gives n gaps of gap / n), ``chunk_gap`` per streamed chunk. ``accept_length`` counts the
    bonus token, range [1, k + 1].
    """

    concurrency: int
    output_tok_s: float | None = None
    output_tok_s_low: float | None = None
    output_tok_s_high: float | None = None
    per_request_tok_s: float | None = None
    ttft_ms: Spread = Spread()
    tpot_ms: Spread = Spread()
    itl_ms: Spread = Spread()
    chunk_gap_ms: Spread = Spread()
    accept_length: float | None = None
    accept_histogram: tuple[int, ...] | None = None
    output_tokens: int | None = None
    chunks: int | None = None
    requests: RequestCounts = RequestCounts()
    window_s: float | None = None
    joules_per_token: float | None = None
    flags: tuple[CellFlag, ...] = ()

    @property
    def good(self) -> bool:
        """At least one request of the cell ended well."""
        return self.requests.ok > 0

    def to_json(self) -> dict[str, object]:
        """The CELL object of the contract."""
        return {
            "concurrency": self.concurrency,
            "output_tok_s": self.output_tok_s,
            "output_tok_s_low": self.output_tok_s_low,
            "output_tok_s_high": self.output_tok_s_high,
            "per_request_tok_s": self.per_request_tok_s,
            "ttft_ms": self.ttft_ms.to_json(),
            "tpot_ms": self.tpot_ms.to_json(),
            "itl_ms": self.itl_ms.to_json(),
            "chunk_gap_ms": self.chunk_gap_ms.to_json(),
            "accept_length": self.accept_length,
            "accept_histogram": None
            if self.accept_histogram is None
            else list(self.accept_histogram),
            "output_tokens": self.output_tokens,
            "chunks": self.chunks,
            "requests": self.requests.to_json(),
            "window_s": self.window_s,
            "joules_per_token": self.joules_per_token,
            "flags": list(self.flags),
        }


@dataclass(frozen=True, slots=True)
class StageRecord:
    """One stage of one cycle. ``seconds`` is None while it has not ended."""

    name: StageName
    state: StageState = "pending"
    seconds: float | None = None
    detail: str = ""

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "state": self.state,
            "seconds": self.seconds,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a cycle failed: a sentence, a remedy and the lines that prove it."""

    stage: StageName
    cause: str
    remedy: str
    evidence: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {
            "stage": self.stage,
            "cause": self.cause,
            "remedy": self.remedy,
            "evidence": list(self.evidence),
        }


@dataclass(frozen=True, slots=True)
class CycleRecord:
    """One restart-and-measure (or measure-only) from its start to its end."""

    rig: str
    simulated: bool
    candidate: Settings
    asked: Candidate | None = None
    resolved: Settings | None = None
    stages: tuple[StageRecord, ...] = ()
    capacity: Capacity = Capacity()
    gpu_idle_mib: tuple[int, ...] = ()
    gpu_peak_mib: tuple[int, ...] = ()
    cells: tuple[Cell, ...] = ()
    outcome: Outcome = "failed"
    failure: Failure | None = None
    end_state: str = ""
    started_at: float = 0.0
    measure_only: bool = False
    note: str = ""
    id: int | None = None

    def to_json(self) -> dict[str, object]:
        """The ``cycle`` document of the contract."""
        return {
            "rig": self.rig,
            "simulated": self.simulated,
            "candidate": self.candidate.to_json(),
            "resolved": None if self.resolved is None else self.resolved.to_json(),
            "stages": [stage.to_json() for stage in self.stages],
            "capacity": self.capacity.to_json(),
            "gpu": {"idle_mib": list(self.gpu_idle_mib), "peak_mib": list(self.gpu_peak_mib)},
            "cells": [cell.to_json() for cell in self.cells],
            "outcome": self.outcome,
            "failure": None if self.failure is None else self.failure.to_json(),
            "end_state": self.end_state,
            "started_at": self.started_at,
            "measure_only": self.measure_only,
            "note": self.note,
        }
