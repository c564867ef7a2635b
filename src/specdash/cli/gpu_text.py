"""GPU readings as text for people."""

from __future__ import annotations

from specdash.cli.tables import figure, table
from specdash.core.gpu import Gpu, Snapshot

_HEAD = ("GPU", "memory MiB", "util", "power W", "temp", "SM MHz", "P", "state", "name")


def snapshot_text(snapshot: Snapshot) -> str:
    """One GPU a row, then the processes that hold memory. Unknown is n/a."""
    lines = [table(_HEAD, [_row(gpu) for gpu in snapshot.gpus])] if snapshot.gpus else ["no GPUs"]
    indices: dict[str | None, int | None] = {
        gpu.uuid: gpu.index for gpu in snapshot.gpus if gpu.uuid is not None
    }
    if snapshot.processes:
        lines.append("")
        lines.append(
            table(
                ("GPU", "pid", "MiB", "user", "process"),
                [
                    (
                        _or_na(indices.get(process.gpu_uuid)),
                        _or_na(process.pid),
                        _or_na(process.used_mib),
                        process.user or "n/a",
                        process.name or "n/a",
                    )
                    for process in snapshot.processes
                ],
            )
        )
    return "\n".join(lines)


def _row(gpu: Gpu) -> tuple[str, ...]:
    reasons = ", ".join(gpu.throttle_reasons)
    return (
        _or_na(gpu.index),
        f"{_or_na(gpu.memory_used_mib)}/{_or_na(gpu.memory_total_mib)}",
        "n/a" if gpu.utilization_percent is None else f"{gpu.utilization_percent} %",
        f"{figure(gpu.power_draw_w)}/{figure(gpu.power_limit_w, 0)}",
        "n/a" if gpu.temperature_c is None else f"{gpu.temperature_c} C",
        _or_na(gpu.sm_clock_mhz),
        gpu.pstate or "n/a",
        f"{gpu.state}{f' ({reasons})' if reasons else ''}",
        (gpu.name or gpu.uuid or "n/a") + (" MIG" if gpu.mig else ""),
    )


def _or_na(value: int | None) -> str:
    return "n/a" if value is None else str(value)
