"""Results as text tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from specdash.core.records import Cell, CycleRecord

_HEAD = (
    "at once",
    "tok/s",
    "95 % interval",
    "per request",
    "TTFT ms",
    "TPOT ms",
    "accept",
    "ok/bad",
    "",
)


def figure(value: float | None, digits: int = 1) -> str:
    """A number, or n/a where it is unknown."""
    return "n/a" if value is None else f"{value:.{digits}f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns; the first is right-aligned like the figures after it."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]
    return "\n".join(lines)


def cells_table(cells: Sequence[Cell]) -> str:
    """One cell a row."""
    return table(
        _HEAD,
        [
            (
                str(cell.concurrency),
                figure(cell.output_tok_s),
                f"{figure(cell.output_tok_s_low)}..{figure(cell.output_tok_s_high)}",
                figure(cell.per_request_tok_s),
                figure(cell.ttft_ms.mean),
                figure(cell.tpot_ms.mean, 2),
                figure(cell.accept_length, 2),
                f"{cell.requests.ok}/{cell.requests.failed}",
                " ".join(cell.flags),
            )
            for cell in cells
        ],
    )


def cycle_text(record: CycleRecord) -> str:
    """A finished cycle for people."""
    settings = record.resolved or record.candidate
    simulated = "SIMULATED " if record.simulated else ""
    short = settings.short()
    asked = "" if short == "?" else f"{short}, "
    lines = [f"{simulated}{record.rig}: {asked}{record.outcome}"]
    if record.capacity.max_running_requests is not None:
        lines.append(f"at most {record.capacity.max_running_requests} requests at once")
    if record.cells:
        lines.append(cells_table(record.cells))
    if record.failure is not None:
        lines.append(f"{record.failure.stage}: {record.failure.cause}")
    lines.append(f"now: {record.end_state}")
    return "\n".join(lines)
