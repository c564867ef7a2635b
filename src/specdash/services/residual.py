"""Which processes of an old run are left, and whose they are. Pure.

*Ours* may be reaped without asking; *probable* needs one yes; *foreign* is only shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from specdash.core.gpu import GpuProcess
from specdash.core.service import Process
from specdash.services.ps import acceptable_starts, start_time

# Start times have whole seconds, and the snapshot is a moment older than the stop.
_SLACK = timedelta(seconds=5)

Pin = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class OldRun:
    """What was known of the service's processes while it still ran.

    ``family`` pins the main process and all its descendants (host, pid, start), so that they
    are known again after they lost their parent. ``began`` and ``seen_until`` are the host's
    own time.
    """

    host: str
    main_pid: int
    session: int
    uid: int
    family: frozenset[Pin]
    began: datetime | None
    seen_until: datetime | None


@dataclass(frozen=True, slots=True)
class Residuals:
    """What is left. Each process says in ``why`` how it was judged.

    ``unseen`` hold GPU memory but are not among the processes of any host that was listed.
    """

    ours: tuple[Process, ...] = ()
    probable: tuple[Process, ...] = ()
    foreign: tuple[Process, ...] = ()
    unseen: tuple[GpuProcess, ...] = ()


def remember(host: str, main_pid: int | None, processes: Iterable[Process]) -> OldRun | None:
    """The old run from a listing taken while the service still runs; None without a main
    process."""
    here = {process.pid: process for process in processes if process.host == host}
    main = here.get(main_pid) if main_pid is not None else None
    if main is None or main.pid <= 1:
        return None
    family = {_pin(main)}
    family.update(_pin(child) for child in _descendants(main.pid, here))
    began = start_time(main.started)
    until = None if began is None or main.age_s is None else began + timedelta(seconds=main.age_s)
    return OldRun(host, main.pid, main.session, main.uid, frozenset(family), began, until)


def classify(
    processes: Sequence[Process],
    *,
    service_host: str,
    is_engine: Callable[[str], bool],
    old: OldRun | None = None,
    control_group: Collection[int] = (),
    clean_hosts: Collection[str] = (),
    gpu_host: str | None = None,
    gpu_processes: Sequence[GpuProcess] = (),
    port_holders: Mapping[str, Collection[int]] | None = None,
    ignore: Collection[Pin] = (),
) -> Residuals:
    """Judge the processes of the rig's hosts.

    ``control_group``: pids in the unit's cgroup, on ``service_host``. ``clean_hosts``: the hosts
    of ``clean.hosts`` that are containers. ``gpu_processes``: what holds the rig's GPUs, with
    pids as ``gpu_host`` sees them. ``port_holders``: host -> pids that hold the endpoint's port.
    ``ignore``: processes never to be judged (specdash's own). Processes that neither look like
    the engine nor hold a GPU or the port of the rig are left out.
    """
    memory = _memory_by_pid(gpu_processes)
    ports = port_holders or {}
    descendants = _living_family(processes, old)
    ours: list[Process] = []
    probable: list[Process] = []
    foreign: list[Process] = []
    for process in processes:
        if process.pid <= 1 or _is_pinned(process, ignore):
            continue
        on_gpu = process.host == gpu_host and process.pid in memory
        if on_gpu:
            process = replace(process, gpu_mib=memory[process.pid])
        on_port = process.pid in ports.get(process.host, ())
        engine = is_engine(process.command)
        why = _ours(process, service_host, old, control_group, clean_hosts, descendants, engine)
        if why:
            ours.append(replace(process, why=why))
        elif engine and old is not None and _in_its_life(process, old) and (on_gpu or on_port):
            place = "the rig's GPUs" if on_gpu else "the endpoint's port"
            reason = f"{_name(process)} of the same user, from that run's time, on {place}"
            probable.append(replace(process, why=reason))
        elif engine or on_gpu or on_port:
            foreign.append(replace(process, why=_foreign(on_gpu, on_port)))
    listed = {process.pid for process in processes if process.host == gpu_host}
    unseen = tuple(row for row in gpu_processes if row.pid is None or row.pid not in listed)
    return Residuals(tuple(ours), tuple(probable), tuple(foreign), unseen)


def state_note(process: Process) -> str:
    """What is special about ending this process, or ""."""
    if process.state.startswith("Z"):
        return "a zombie: it holds no memory and goes when its parent collects it"
    if process.state.startswith("D"):
        return (
            "waits in the kernel (state D): no signal reaches it; if it stays so, the driver "
            "is stuck and the host has to be rebooted"
        )
    return ""


def _ours(
    process: Process,
    service_host: str,
    old: OldRun | None,
    control_group: Collection[int],
    clean_hosts: Collection[str],
    descendants: frozenset[Pin],
    engine: bool,
) -> str:
    if process.host == service_host and process.pid in control_group:
        return "in the unit's control group"
    if _pin(process) in descendants:
        return "descends from the service's main process"
    if (
        old is not None
        and process.host == old.host
        # Session 0 is the kernel's; a main process in somebody's login session shares that
        # session with the login.
        and old.session > 1
        and old.session == old.main_pid
        and process.session == old.session
        and _not_older(process, old)
    ):
        return "in the session of the service's main process"
    if process.host in clean_hosts and engine:
        return f"{_name(process)} in the rig's container {process.host}"
    return ""


def _in_its_life(process: Process, old: OldRun) -> bool:
    """Same user, and started while the old run was alive. Unknown times are a no."""
    if process.host != old.host or process.uid != old.uid:
        return False
    started = start_time(process.started)
    if started is None or old.began is None or old.seen_until is None:
        return False
    return old.began - _SLACK <= started <= old.seen_until + _SLACK


def _not_older(process: Process, old: OldRun) -> bool:
    # Session ids are pids and come round again: a process from before the run is another's.
    started = start_time(process.started)
    return started is not None and old.began is not None and started >= old.began - _SLACK


def _living_family(processes: Sequence[Process], old: OldRun | None) -> frozenset[Pin]:
    """The old run's family that is still there, with what it has started since."""
    if old is None:
        return frozenset()
    here = {process.pid: process for process in processes if process.host == old.host}
    alive = [process for process in here.values() if _is_pinned(process, old.family)]
    pins = {_pin(process) for process in alive}
    for process in alive:
        pins.update(_pin(child) for child in _descendants(process.pid, here))
    return frozenset(pins)


def _descendants(pid: int, here: Mapping[int, Process]) -> list[Process]:
    children: dict[int, list[Process]] = {}
    for process in here.values():
        children.setdefault(process.ppid, []).append(process)
    found: list[Process] = []
    seen = {pid}
    queue = [pid]
    while queue:
        for child in children.get(queue.pop(), ()):
            if child.pid not in seen:
                seen.add(child.pid)
                found.append(child)
                queue.append(child.pid)
    return found


def _memory_by_pid(rows: Iterable[GpuProcess]) -> dict[int, int | None]:
    """MiB a pid holds over all GPUs; None where any part of it is unknown."""
    memory: dict[int, int | None] = {}
    for row in rows:
        if row.pid is None:
            continue
        before = memory.get(row.pid, 0)
        unknown = before is None or row.used_mib is None
        memory[row.pid] = None if unknown else (before or 0) + (row.used_mib or 0)
    return memory


def _foreign(on_gpu: bool, on_port: bool) -> str:
    if on_gpu:
        return "holds a GPU of the rig, and nothing ties it to the service"
    if on_port:
        return "holds the endpoint's port, and nothing ties it to the service"
    return "looks like the engine, and nothing ties it to the service"


def _name(process: Process) -> str:
    return (process.command.split() or ["a process"])[0].rsplit("/", 1)[-1]


def _pin(process: Process) -> Pin:
    return (process.host, process.pid, process.started)


def _is_pinned(process: Process, pins: Collection[Pin]) -> bool:
    starts = acceptable_starts(process.started)
    return any((process.host, process.pid, started) in pins for started in starts)
