"""GPU readings as values. Unknown is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GpuState = Literal["ok", "unknown", "lost"]
ProblemCode = Literal[
    "driver-mismatch",
    "no-driver",
    "no-devices",
    "gpu-lost",
    "no-command",
    "field-refused",
    "garbled",
]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU at one moment. Memory in MiB, power in W, clocks in MHz, temperature in °C."""

    index: int | None = None
    uuid: str | None = None
    name: str | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    memory_reserved_mib: int | None = None
    utilization_percent: int | None = None
    temperature_c: int | None = None
    power_draw_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None
    pstate: str | None = None
    throttle_reasons: tuple[str, ...] = ()
    mig: bool | None = None
    state: GpuState = "ok"

    def to_json(self) -> dict[str, object]:
        return {
            "index": self.index,
            "uuid": self.uuid,
            "name": self.name,
            "memory_total_mib": self.memory_total_mib,
            "memory_used_mib": self.memory_used_mib,
            "memory_reserved_mib": self.memory_reserved_mib,
            "utilization_percent": self.utilization_percent,
            "temperature_c": self.temperature_c,
            "power_draw_w": self.power_draw_w,
            "power_limit_w": self.power_limit_w,
            "sm_clock_mhz": self.sm_clock_mhz,
            "pstate": self.pstate,
            "throttle_reasons": list(self.throttle_reasons),
            "mig": self.mig,
            "state": self.state,
        }


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds memory on a GPU. ``used_mib`` is None where the driver hides it."""

    gpu_uuid: str | None
    pid: int | None
    name: str | None
    user: str | None = None
    used_mib: int | None = None

    def to_json(self) -> dict[str, object]:
        return {
            "gpu_uuid": self.gpu_uuid,
            "pid": self.pid,
            "name": self.name,
            "user": self.user,
            "used_mib": self.used_mib,
        }


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a reading, with what to do about it."""

    code: ProblemCode
    message: str
    remedy: str

    def to_json(self) -> dict[str, object]:
        return {"code": self.code, "message": self.message, "remedy": self.remedy}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All GPUs of one source at one moment."""

    source: str
    gpus: tuple[Gpu, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    problems: tuple[Problem, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {
            "source": self.source,
            "gpus": [gpu.to_json() for gpu in self.gpus],
            "processes": [process.to_json() for process in self.processes],
            "problems": [problem.to_json() for problem in self.problems],
        }
