"""The box's processes and GPUs: who runs, who holds memory, how it drains after an exit.

Everything the box's programs show comes from here, and only processes that were started inside the
box are ever in here: that is what confines them.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from specdash.demo.faults import Fault, FaultSwitch

GPU_COUNT = 4
GPU_NAME = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
TOTAL_MIB = 97887
RESERVED_MIB = 636
IDLE_MIB = 2
RELEASE_S = 2.0
POWER_IDLE_W, POWER_BUSY_W, POWER_LIMIT_W = 39.0, 415.0, 600.0
TEMP_IDLE_C, TEMP_BUSY_C = 27.0, 66.0
TEMP_TIME_S = 9.0
LOAD_FADES_S = 1.5
BUS_IDS = ("00000000:01:00.0", "00000000:41:00.0", "00000000:81:00.0", "00000000:C1:00.0")


@dataclass(slots=True)
class Proc:
    """A real process of the box. ``gpu_mib``: GPU index -> MiB it holds."""

    pid: int
    title: str
    ppid: int = 1
    session: int = 0
    uid: int = 0
    user: str = "root"
    started: float = 0.0
    unit: str | None = None
    gpu_mib: dict[int, int] = field(default_factory=dict)
    ports: set[int] = field(default_factory=set)
    ready: bool = False

    @property
    def comm(self) -> str:
        """The kernel's short name: 15 characters of the program's name."""
        return self.title.split(" ", 1)[0].rsplit("/", 1)[-1][:15]


@dataclass(slots=True)
class _Draining:
    gpu: int
    mib: int
    since: float | None  # None while it is stuck


@dataclass(slots=True)
class Gpu:
    """One simulated GPU; the figures beside memory follow the load the engine reports."""

    index: int
    uuid: str
    bus_id: str
    load: float = 0.0
    load_at: float = -math.inf
    temperature: float = TEMP_IDLE_C
    seen_at: float | None = None


class Machine:
    """The state of the simulated machine. ``speed`` divides the time memory takes to drain."""

    def __init__(
        self,
        faults: FaultSwitch,
        *,
        speed: float = 1.0,
        seed: int = 0,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        chance = random.Random(f"box {seed}")  # noqa: S311 - names, no secrets
        self.gpus = [
            Gpu(index, f"GPU-{UUID(int=chance.getrandbits(128), version=4)}", BUS_IDS[index])
            for index in range(GPU_COUNT)
        ]
        self.booted = wall()
        self._faults = faults
        self._speed = speed
        self._now = now
        self._wall = wall
        self._procs: dict[int, Proc] = {}
        self._draining: list[_Draining] = []
        self._listeners: list[Callable[[Proc], None]] = []

    # Processes

    def add(self, proc: Proc) -> None:
        """A process came up."""
        if not proc.started:
            proc.started = self._wall()
        self._procs[proc.pid] = proc

    def gone(self, pid: int) -> None:
        """A process ended; what it held on GPUs drains from now on."""
        proc = self._procs.pop(pid, None)
        if proc is None:
            return
        stuck = self._faults.on(Fault.MEMORY_STUCK)
        for gpu, mib in proc.gpu_mib.items():
            self._draining.append(_Draining(gpu, mib, None if stuck else self._now()))
        for tell in list(self._listeners):
            tell(proc)

    def get(self, pid: int) -> Proc | None:
        return self._procs.get(pid)

    def procs(self) -> list[Proc]:
        """All processes, oldest first."""
        return sorted(self._procs.values(), key=lambda proc: (proc.started, proc.pid))

    def of_unit(self, unit: str) -> list[Proc]:
        """The processes of a unit's control group."""
        return [proc for proc in self.procs() if proc.unit == unit]

    def on_gone(self, tell: Callable[[Proc], None]) -> None:
        """Call ``tell`` for each process that ends."""
        self._listeners.append(tell)

    def listening(self) -> Iterator[tuple[int, Proc]]:
        """Ports that box processes listen on."""
        for proc in self.procs():
            for port in sorted(proc.ports):
                yield port, proc

    # GPUs

    def alloc(self, pid: int, gpu: int, mib: int) -> bool:
        """Set what ``pid`` holds on a GPU; False (and no change) where it does not fit."""
        proc = self._procs.get(pid)
        if proc is None or not 0 <= gpu < len(self.gpus):
            return False
        before = proc.gpu_mib.get(gpu, 0)
        if mib - before > self.free_mib(gpu):
            return False
        proc.gpu_mib[gpu] = mib
        return True

    def used_mib(self, gpu: int) -> int:
        """Memory in use: held by live processes or still draining."""
        held = sum(proc.gpu_mib.get(gpu, 0) for proc in self._procs.values())
        return min(TOTAL_MIB - RESERVED_MIB, IDLE_MIB + held + self._drain(gpu))

    def free_mib(self, gpu: int) -> int:
        return TOTAL_MIB - RESERVED_MIB - self.used_mib(gpu)

    def _drain(self, gpu: int) -> int:
        now = self._now()
        whole = RELEASE_S / self._speed
        left = 0.0
        keep: list[_Draining] = []
        stuck = self._faults.on(Fault.MEMORY_STUCK) if self._draining else False
        for item in self._draining:
            if item.since is None and not stuck:
                item.since = now
            part = 1.0 if item.since is None else 1 - (now - item.since) / whole
            if part > 0:
                keep.append(item)
                left += item.mib * part if item.gpu == gpu else 0
        self._draining = keep
        return int(left)

    def holders(self, gpu: int) -> list[tuple[Proc, int]]:
        """Live processes that hold memory on a GPU."""
        return [(proc, proc.gpu_mib[gpu]) for proc in self.procs() if proc.gpu_mib.get(gpu, 0) > 0]

    def report_load(self, gpus: list[int], load: float) -> None:
        """What share of the time the engine kept these GPUs busy just now."""
        for index in gpus:
            if 0 <= index < len(self.gpus):
                self.gpus[index].load = min(1.0, max(0.0, load))
                self.gpus[index].load_at = self._now()

    def load(self, gpu: Gpu) -> float:
        """The load of a GPU now; it fades when nobody reports."""
        return gpu.load if self._now() - gpu.load_at < LOAD_FADES_S else 0.0

    def temperature(self, gpu: Gpu) -> float:
        """Degrees C, following the load with some lag."""
        now = self._now()
        target = TEMP_IDLE_C + gpu.index + (TEMP_BUSY_C - TEMP_IDLE_C) * self.load(gpu)
        if gpu.seen_at is not None:
            gpu.temperature += (target - gpu.temperature) * (
                1 - math.exp((gpu.seen_at - now) / TEMP_TIME_S)
            )
        gpu.seen_at = now
        return gpu.temperature

    def power_w(self, gpu: Gpu) -> float:
        wobble = 1.6 * math.sin(self._now() * 2.1 + gpu.index)
        return POWER_IDLE_W + (POWER_BUSY_W - POWER_IDLE_W) * self.load(gpu) + wobble

    # Signals

    def signal(self, pid: int, number: int) -> None:
        """Signal a process of the box; ProcessLookupError for any other."""
        if pid not in self._procs:
            raise ProcessLookupError(pid)
        os.kill(pid, number)
