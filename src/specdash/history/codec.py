"""From the JSON of the contract back to values, for what an older session wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from specdash.bench.codec import cell_from_json
from specdash.core.records import (
    CycleRecord,
    Failure,
    Outcome,
    StageName,
    StageRecord,
    StageState,
)
from specdash.core.settings import Candidate, Capacity, Settings


def settings_from(body: Mapping[str, Any] | None) -> Settings | None:
    """A SETTINGS object; None stays None."""
    if body is None:
        return None
    return Settings(
        algorithm=body.get("algorithm"),
        num_steps=body.get("num_steps"),
        eagle_topk=body.get("eagle_topk"),
        num_draft_tokens=body.get("num_draft_tokens"),
        draft_model=body.get("draft_model"),
        enabled=body.get("enabled"),
    )


def cycle_from(body: Mapping[str, Any]) -> CycleRecord:
    """A ``cycle`` document."""
    candidate = settings_from(body.get("candidate")) or Settings()
    failure = body.get("failure")
    gpu = body.get("gpu") or {}
    capacity = body.get("capacity") or {}
    return CycleRecord(
        rig=str(body["rig"]),
        simulated=bool(body["simulated"]),
        candidate=candidate,
        asked=None
        if candidate.num_steps is None
        else Candidate(
            num_steps=candidate.num_steps,
            eagle_topk=candidate.eagle_topk,
            num_draft_tokens=candidate.num_draft_tokens,
            note=str(body.get("note", "")),
        ),
        resolved=settings_from(body.get("resolved")),
        stages=tuple(_stage(stage) for stage in body.get("stages") or ()),
        capacity=Capacity(
            max_running_requests=capacity.get("max_running_requests"),
            kv_tokens=capacity.get("kv_tokens"),
        ),
        gpu_idle_mib=tuple(gpu.get("idle_mib") or ()),
        gpu_peak_mib=tuple(gpu.get("peak_mib") or ()),
        cells=tuple(cell_from_json(cell) for cell in body.get("cells") or ()),
        outcome=cast("Outcome", body["outcome"]),
        failure=None
        if failure is None
        else Failure(
            stage=failure["stage"],
            cause=failure["cause"],
            remedy=failure["remedy"],
            evidence=tuple(failure.get("evidence") or ()),
        ),
        end_state=str(body.get("end_state", "")),
        started_at=float(body.get("started_at", 0.0)),
        measure_only=bool(body.get("measure_only", False)),
        note=str(body.get("note", "")),
    )


def _stage(body: Mapping[str, Any]) -> StageRecord:
    return StageRecord(
        name=cast("StageName", body["name"]),
        state=cast("StageState", body["state"]),
        seconds=body.get("seconds"),
        detail=str(body.get("detail", "")),
    )
