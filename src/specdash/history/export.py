"""Results as files for people and machines: Markdown, CSV, JSON. SIMULATED is in every one."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from specdash.core.clock import Clock
from specdash.core.errors import UsageError, WorkFailedError
from specdash.core.records import STAGES, Cell, CycleRecord

FORMATS = ("md", "csv", "json")
MARKDOWN_HEAD = (
    "started",
    "settings",
    "at once",
    "output tok/s",
    "95 % interval",
    "per request",
    "TTFT ms",
    "accept",
    "flags",
    "note",
)
COLUMNS = (
    "started",
    "simulated",
    "steps",
    "topk",
    "draft_tokens",
    "concurrency",
    "output_tok_s",
    "output_tok_s_low",
    "output_tok_s_high",
    "per_request_tok_s",
    "ttft_ms_mean",
    "tpot_ms_mean",
    "accept_length",
    "joules_per_token",
    "requests_ok",
    "requests_failed",
    "flags",
    "outcome",
    "note",
    *(f"{name}_s" for name in STAGES),
)


async def export_results(
    results: Sequence[CycleRecord], format_name: str, directory: Path, rig: str, clock: Clock
) -> Path:
    """Write ``results`` to a new file of ``directory``; returns its path.

    Raises UsageError for an unknown format, WorkFailedError where it cannot be written.
    """
    text = render(results, format_name)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(clock.wall()))
    path = directory / f"{rig}-{stamp}.{format_name}"

    def write() -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    try:
        await asyncio.to_thread(write)
    except OSError as error:
        raise WorkFailedError(
            f"{path} cannot be written: {error.strerror or error}.",
            remedy="Free space or mend the rights of its directory.",
            code="export",
        ) from error
    return path


def render(results: Sequence[CycleRecord], format_name: str) -> str:
    """The results as text in one of :data:`FORMATS`."""
    if format_name == "json":
        return json.dumps([r.to_json() for r in results], ensure_ascii=False, indent=2) + "\n"
    if format_name == "csv":
        return _csv(results)
    if format_name == "md":
        return _markdown(results)
    raise UsageError(f"Unknown format {format_name!r}.", remedy=f"Allowed: {', '.join(FORMATS)}.")


def _rows(results: Sequence[CycleRecord]) -> list[dict[str, object]]:
    return [_row(record, cell) for record, cell in _cells(results)]


def _cells(results: Sequence[CycleRecord]) -> Iterator[tuple[CycleRecord, Cell]]:
    return ((record, cell) for record in results for cell in record.cells)


def _started(record: CycleRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.started_at))


def _row(record: CycleRecord, cell: Cell) -> dict[str, object]:
    settings = record.resolved or record.candidate
    return {
        "started": _started(record),
        "simulated": "SIMULATED" if record.simulated else "no",
        "steps": settings.num_steps,
        "topk": settings.eagle_topk,
        "draft_tokens": settings.num_draft_tokens,
        "concurrency": cell.concurrency,
        "output_tok_s": cell.output_tok_s,
        "output_tok_s_low": cell.output_tok_s_low,
        "output_tok_s_high": cell.output_tok_s_high,
        "per_request_tok_s": cell.per_request_tok_s,
        "ttft_ms_mean": cell.ttft_ms.mean,
        "tpot_ms_mean": cell.tpot_ms.mean,
        "accept_length": cell.accept_length,
        "joules_per_token": cell.joules_per_token,
        "requests_ok": cell.requests.ok,
        "requests_failed": cell.requests.failed,
        "flags": " ".join(cell.flags),
        "outcome": record.outcome,
        "note": record.note,
        **{f"{stage.name}_s": stage.seconds for stage in record.stages},
    }


def _csv(results: Sequence[CycleRecord]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in _rows(results):
        writer.writerow({key: _inert(value) for key, value in row.items()})
    return out.getvalue()


def _inert(value: object) -> object:
    # A note that begins like a formula would be run by a spreadsheet.
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@"):
        return "'" + value
    return value


def _markdown(results: Sequence[CycleRecord]) -> str:
    lines: list[str] = []
    if any(record.simulated for record in results):
        lines += ["**SIMULATED**: measured on the rig in a box, not on hardware.", ""]
    lines += [
        _table_row(MARKDOWN_HEAD),
        "|---" * len(MARKDOWN_HEAD) + "|",
    ]
    for record, cell in _cells(results):
        row = _row(record, cell)
        interval = f"{_figure(row['output_tok_s_low'])}..{_figure(row['output_tok_s_high'])}"
        cells = [
            row["started"],
            (record.resolved or record.candidate).short(),
            row["concurrency"],
            _figure(row["output_tok_s"]),
            interval,
            _figure(row["per_request_tok_s"]),
            _figure(row["ttft_ms_mean"]),
            _figure(row["accept_length"], 2),
            row["flags"],
            record.note,
        ]
        lines.append(_table_row(cells))
    lines += ["", "| started | settings | outcome | " + " | ".join(STAGES) + " |"]
    lines.append("|---" * (3 + len(STAGES)) + "|")
    for record in results:
        seconds = {stage.name: stage.seconds for stage in record.stages}
        lines.append(
            _table_row(
                [
                    _started(record),
                    (record.resolved or record.candidate).short(),
                    record.outcome,
                    *(_figure(seconds.get(name)) for name in STAGES),
                ]
            )
        )
    return "\n".join(lines) + "\n"


def _table_row(cells: Sequence[object]) -> str:
    texts = ("" if cell is None else str(cell).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(texts)} |"


def _figure(value: object, digits: int = 1) -> str:
    return f"{value:.{digits}f}" if isinstance(value, (int, float)) else "n/a"
