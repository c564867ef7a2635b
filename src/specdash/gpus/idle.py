"""When is a GPU free again: idle levels, and what is still held by whom. Pure.

The idle level of a GPU is the rig's ``idle_mib``, else the lowest stable reading seen while no
process of the rig ran, else 1024 MiB. Where used memory is unknown (unified memory) the GPU is
free when no process is listed on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from specdash.core.gpu import Gpu, GpuProcess, Snapshot
from specdash.rig.schema import GpusSpec

DEFAULT_IDLE_MIB = 1024
_STABLE_READINGS = 3
_STABLE_WITHIN_MIB = 16
_SLACK_MIB = 64

Why = Literal["memory", "process", "unknown", "lost", "missing"]
_BLIND = frozenset({"no-driver", "driver-mismatch", "no-command"})


def gpu_key(gpu: Gpu) -> str:
    """What names a GPU across readings: its uuid, else its index."""
    return gpu.uuid or f"index:{gpu.index}"


def selected(snapshot: Snapshot, spec: GpusSpec | None) -> tuple[Gpu, ...]:
    """The rig's GPUs in a snapshot: by uuid, else by index, else all."""
    if spec is None or not (spec.uuids or spec.indices):
        return snapshot.gpus
    return tuple(
        gpu
        for gpu in snapshot.gpus
        if (gpu.uuid in spec.uuids if spec.uuids else gpu.index in spec.indices)
    )


def missing(snapshot: Snapshot, spec: GpusSpec | None) -> tuple[str, ...]:
    """The GPUs that the rig names and the snapshot does not list (``GPU-...`` or ``index 3``)."""
    if spec is None:
        return ()
    if spec.uuids:
        there = {gpu.uuid for gpu in snapshot.gpus}
        return tuple(uuid for uuid in spec.uuids if uuid not in there)
    indices = {gpu.index for gpu in snapshot.gpus}
    return tuple(f"index {index}" for index in spec.indices if index not in indices)


def processes_on(snapshot: Snapshot, gpu: Gpu) -> tuple[GpuProcess, ...]:
    """The processes on one GPU; those whose GPU is unknown count for each."""
    return tuple(
        process
        for process in snapshot.processes
        if process.gpu_uuid is None or process.gpu_uuid == gpu.uuid
    )


@dataclass(slots=True)
class IdleObserver:
    """Learns the lowest stable reading of each GPU while no process of the rig runs."""

    lowest: dict[str, int] = field(default_factory=dict)
    _recent: dict[str, list[int]] = field(default_factory=dict)

    def observe(self, snapshot: Snapshot, *, rig_running: bool) -> None:
        """Take one reading; readings while the rig runs only end the run of stable ones."""
        for gpu in snapshot.gpus:
            key, used = gpu_key(gpu), gpu.memory_used_mib
            if rig_running or used is None or gpu.state != "ok":
                self._recent.pop(key, None)
                continue
            recent = [*self._recent.get(key, []), used][-_STABLE_READINGS:]
            self._recent[key] = recent
            if len(recent) == _STABLE_READINGS and max(recent) - min(recent) <= _STABLE_WITHIN_MIB:
                self.lowest[key] = min(max(recent), self.lowest.get(key, max(recent)))

    def levels(self, spec: GpusSpec | None) -> IdleLevels:
        """The levels for a rig."""
        return IdleLevels(
            given_mib=None if spec is None else spec.idle_mib, seen_mib=dict(self.lowest)
        )


@dataclass(frozen=True, slots=True)
class IdleLevels:
    """MiB at or below which a GPU counts as idle.

    ``seen_mib``: the lowest stable reading by :func:`gpu_key`; some slack is added to it, since
    a driver's own use varies by a few MiB.
    """

    given_mib: int | None = None
    seen_mib: Mapping[str, int] = field(default_factory=dict)

    def of(self, gpu: Gpu) -> int:
        if self.given_mib is not None:
            return self.given_mib
        seen = self.seen_mib.get(gpu_key(gpu))
        return DEFAULT_IDLE_MIB if seen is None else seen + _SLACK_MIB


@dataclass(frozen=True, slots=True)
class Held:
    """A GPU that is not free: why, above which level, and by whom as far as is known."""

    gpu: Gpu | None
    why: Why
    level_mib: int | None = None
    processes: tuple[GpuProcess, ...] = ()
    named: str = ""

    def sentence(self) -> str:
        """``GPU 2 still holds 61200 MiB (idle is 1024): sglang::scheduler_TP2 (pid 812, root)``."""
        who = self.named or _name_of(self.gpu)
        if self.why == "missing":
            return f"{who} is listed" if who == "No GPU" else f"{who} is not listed"
        if self.why == "unknown":
            return f"{who} cannot be read"
        if self.why == "lost":
            return f"{who} is lost"
        by = ", ".join(_process_words(process) for process in self.processes)
        if self.why == "process":
            return f"{who} still has processes (its used memory is unknown): {by}"
        used = None if self.gpu is None else self.gpu.memory_used_mib
        return f"{who} still holds {used} MiB (idle is {self.level_mib}): {by or 'no process is visible from here'}"


def freed(
    snapshot: Snapshot,
    levels: IdleLevels,
    spec: GpusSpec | None,
    *,
    kept_pids: Collection[int] = (),
    is_rig_process: Callable[[GpuProcess], bool] = lambda process: True,
) -> tuple[Held, ...]:
    """What the rig's GPUs still hold; empty when all are back at idle.

    The memory of ``kept_pids`` (holders the operator chose to keep) is added to the level.
    ``is_rig_process`` decides only where used memory is unknown. A GPU that is lost, missing or
    cannot be read is never free.
    """
    held = [Held(None, "missing", named=f"GPU {name}") for name in missing(snapshot, spec)]
    ours_there = selected(snapshot, spec)
    if not ours_there and not held:
        held.append(Held(None, "missing", named="No GPU"))
    blind = any(problem.code in _BLIND for problem in snapshot.problems)
    for gpu in ours_there:
        on = processes_on(snapshot, gpu)
        others = tuple(process for process in on if process.pid not in kept_pids)
        if gpu.state == "lost":
            held.append(Held(gpu, "lost"))
        elif gpu.memory_used_mib is None and (blind or gpu.state == "unknown"):
            held.append(Held(gpu, "unknown"))
        elif gpu.memory_used_mib is None:
            ours = tuple(process for process in others if is_rig_process(process))
            if ours:
                held.append(Held(gpu, "process", processes=ours))
        else:
            kept = sum(
                process.used_mib or 0
                for process in on
                if process.pid in kept_pids and process.gpu_uuid == gpu.uuid
            )
            level = levels.of(gpu) + kept
            if gpu.memory_used_mib > level:
                held.append(Held(gpu, "memory", level, others))
    return tuple(held)


def _name_of(gpu: Gpu | None) -> str:
    if gpu is None:
        return "GPU ?"
    # A GPU that fell off the bus has lost its index, at times its UUID too.
    return f"GPU {gpu.uuid or '?' if gpu.index is None else gpu.index}"


def _process_words(process: GpuProcess) -> str:
    details = [f"pid {process.pid}"] if process.pid is not None else []
    details += [process.user] if process.user else []
    details += [f"{process.used_mib} MiB"] if process.used_mib is not None else []
    return f"{process.name or 'a process'} ({', '.join(details)})" if details else str(process.name)
