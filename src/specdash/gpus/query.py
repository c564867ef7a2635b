"""The commands that ask nvidia-smi, as argv lists, and what to ask when a field is refused."""

from __future__ import annotations

from collections.abc import Sequence

Argv = tuple[str, ...]

PROGRAMS: tuple[str, ...] = (
    "nvidia-smi",
    "/usr/lib/wsl/lib/nvidia-smi",
    "/usr/local/nvidia/bin/nvidia-smi",
)
"""Where nvidia-smi is: on PATH; in WSL, whose non-login shells lack it; in GKE's containers."""

UNBUFFERED: Argv = ("stdbuf", "-oL")
"""Line buffering for a pipe: some drivers fill a 4 KiB block first in loop mode."""

FIELDS: tuple[str, ...] = (
    "timestamp",
    "count",
    "index",
    "uuid",
    "pci.bus_id",
    "name",
    "memory.total",
    "memory.reserved",
    "memory.used",
    "utilization.gpu",
    "temperature.gpu",
    "power.draw",
    "power.limit",
    "clocks.current.sm",
    "clocks_event_reasons.active",
    "mig.mode.current",
    "pstate",
)
"""What drivers from 535 on are asked, a row a GPU."""

FALLBACKS: tuple[tuple[str, ...], ...] = (
    FIELDS,
    tuple(
        "clocks_throttle_reasons.active" if name == "clocks_event_reasons.active" else name
        for name in FIELDS
    ),
    (
        "timestamp", "index", "uuid", "pci.bus_id", "name", "memory.total", "memory.used",
        "utilization.gpu", "temperature.gpu", "power.draw", "power.limit", "pstate",
    ),
    ("index", "uuid", "name", "memory.total", "memory.used", "utilization.gpu"),
    ("name", "memory.total", "memory.used"),
)  # fmt: skip
"""Field lists from new to old drivers, for a refusal that names no field."""

_OLD_NAMES = {
    "clocks_event_reasons.active": "clocks_throttle_reasons.active",
    "clocks.current.sm": "clocks.sm",
    "pci.bus_id": "gpu_bus_id",
}

_APPS_FIELDS = "gpu_uuid,pid,used_gpu_memory,process_name"
COMPUTE_APPS: Argv = (f"--query-compute-apps={_APPS_FIELDS}", "--format=csv")
"""Memory holders. The name comes last, since it may contain commas."""

DRIVER_DEVICES: Argv = ("ls", "/proc/driver/nvidia/gpus")
"""The PCI addresses of all GPUs of the host, also of one that does not answer."""


def gpus_argv(
    fields: Sequence[str] = FIELDS,
    *,
    program: str = PROGRAMS[0],
    loop_ms: int | None = None,
    only: Sequence[str] = (),
    unbuffered: bool = False,
) -> Argv:
    """One query of all GPUs (or of ``only``: bus ids, uuids, indices), or an endless loop."""
    return (
        *(UNBUFFERED if unbuffered else ()),
        program,
        *(("-i", ",".join(only)) if only else ()),
        f"--query-gpu={','.join(fields)}",
        "--format=csv",
        *(("-lms", str(loop_ms)) if loop_ms is not None else ()),
    )


def holders_argv(*, program: str = PROGRAMS[0]) -> Argv:
    """One query of the processes that hold memory."""
    return (program, *COMPUTE_APPS)


def users_argv(pids: Sequence[int]) -> Argv:
    """User and command name of the holders, with the options POSIX gives ps."""
    return ("ps", "-o", "pid=", "-o", "user=", "-o", "comm=", "-p", ",".join(map(str, pids)))


def fewer_fields(fields: Sequence[str], refused: Sequence[str]) -> tuple[str, ...] | None:
    """The next list to try after a refusal; None when nothing is left to ask.

    A refused field that is named is replaced by its old name or left out; without a name the
    next list of :data:`FALLBACKS` that is shorter or other is taken.
    """
    named = [name for name in refused if name in fields]
    if named:
        kept = [_OLD_NAMES.get(name, "") if name in named else name for name in fields]
        left = tuple(dict.fromkeys(name for name in kept if name))
        return left if any(name.startswith("memory.") for name in left) else None
    current = tuple(fields)
    at = FALLBACKS.index(current) if current in FALLBACKS else -1
    for candidate in FALLBACKS[at + 1 :]:
        if len(candidate) < len(current) or (at >= 0 and candidate != current):
            return candidate
    return None
