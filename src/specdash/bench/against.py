"""Two bench documents side by side: what changed, and whether that is more than noise. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdash.bench.codec import GarbledError, cell_from_json
from specdash.bench.statistics import difference
from specdash.core.errors import WorkFailedError
from specdash.core.records import Cell

# What must be equal for two figures to speak of the same work.
COMPARED = ("prompts", "output_tokens", "temperature", "ignore_eos")
_MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Earlier:
    """A bench document as it was printed by ``--json``."""

    path: str
    model: str | None
    workload: Mapping[str, Any]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Output tok/s at one concurrency, before and after. ``low`` and ``high`` bound the
    difference with 95 % (within one run of the engine each: two starts of the same server may
    differ by more). ``verdict``: better, worse, same or unknown."""

    concurrency: int
    before: float | None
    after: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str = "unknown"

    @property
    def percent(self) -> float | None:
        if self.difference is None or not self.before:
            return None
        return 100 * self.difference / self.before

    def to_json(self) -> dict[str, object]:
        return {
            "concurrency": self.concurrency,
            "before": self.before,
            "after": self.after,
            "difference": self.difference,
            "difference_percent": self.percent,
            "low": self.low,
            "high": self.high,
            "verdict": self.verdict,
        }


def read_earlier(path: str) -> Earlier:
    """Raises WorkFailedError where the file cannot be read or is no bench document."""
    file = Path(path).expanduser()
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise WorkFailedError(f"{path}: too large for a bench document", code="against")
        body = json.loads(file.read_bytes())
    except OSError as error:
        raise WorkFailedError(
            f"{path}: cannot be read: {error.strerror or error}", code="against"
        ) from error
    except (ValueError, RecursionError) as error:
        raise WorkFailedError(f"{path}: is not JSON: {error}", code="against") from error
    cells = body.get("cells") if isinstance(body, dict) else None
    if not isinstance(cells, list):
        raise WorkFailedError(
            f"{path}: is no bench document",
            remedy="Give what an earlier `specdash bench --json` printed.",
            code="against",
        )
    try:
        values = tuple(cell_from_json(cell) for cell in cells)
    except GarbledError as error:
        raise WorkFailedError(f"{path}: {error}", code="against") from error
    workload = body.get("workload")
    model = body.get("model")
    return Earlier(
        path=path,
        model=model if isinstance(model, str) else None,
        workload=workload if isinstance(workload, dict) else {},
        cells=values,
    )


def compare(earlier: Earlier, cells: Sequence[Cell]) -> list[Change]:
    """A change for each concurrency measured now; what was not measured before is unknown."""
    before = {cell.concurrency: cell for cell in earlier.cells}
    return [_change(before.get(cell.concurrency), cell) for cell in cells]


def differs(earlier: Earlier, model: str | None, workload: Mapping[str, object]) -> tuple[str, ...]:
    """What is not the same work as before, by key."""
    names = [
        key
        for key in COMPARED
        if key in earlier.workload and earlier.workload[key] != workload.get(key)
    ]
    if earlier.model is not None and earlier.model != model:
        names.insert(0, "model")
    return tuple(names)


def _change(before: Cell | None, after: Cell) -> Change:
    if before is None or before.output_tok_s is None or after.output_tok_s is None:
        return Change(
            after.concurrency,
            before=None if before is None else before.output_tok_s,
            after=after.output_tok_s,
        )
    found = difference(
        (before.output_tok_s, before.output_tok_s_low, before.output_tok_s_high),
        (after.output_tok_s, after.output_tok_s_low, after.output_tok_s_high),
    )
    return Change(
        after.concurrency,
        before=before.output_tok_s,
        after=after.output_tok_s,
        difference=found.value,
        low=found.low,
        high=found.high,
        verdict=found.verdict,
    )
