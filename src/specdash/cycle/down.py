"""Stop, reap, free: from a running service to *nothing of the rig runs, its GPUs are idle*."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from specdash.core.clock import DeadlinePassedError, wait_until
from specdash.core.errors import SpecdashError, WorkFailedError
from specdash.core.gpu import Snapshot
from specdash.core.ports import Question
from specdash.core.service import Process, ServiceStatus
from specdash.cycle.prepare import Present
from specdash.cycle.progress import StageRunner
from specdash.cycle.world import World
from specdash.gpus.idle import Held, IdleLevels, freed, selected
from specdash.hosts.protocol import CommandFailedError
from specdash.services.processes import list_processes, listening, port_holders, signal_process
from specdash.services.protocol import Service
from specdash.services.ps import same_process
from specdash.services.residual import OldRun, Residuals, classify, remember, state_note

_STABLE_READINGS = 2
_PORT_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Before:
    """What was known while the old service still ran: how its leftovers are recognised."""

    service: Service
    old: OldRun | None
    control_group: tuple[int, ...]
    levels: IdleLevels


async def look_before(world: World, present: Present) -> Before:
    """Remember the service's processes and the idle level of each GPU, before the stop."""
    host = await world.hosts.get(world.rig.service.host)
    processes, group = await asyncio.gather(
        list_processes(host), present.service.control_group_pids(present.status)
    )
    return Before(
        service=present.service,
        old=remember(host.name, present.status.main_pid, processes),
        control_group=group,
        levels=world.gpus.idle_levels(),
    )


# -- stop ---------------------------------------------------------------------------------------


async def stop(world: World, service: Service, status: ServiceStatus, stages: StageRunner) -> None:
    """Stop the service; done when it is inactive, its main process is gone and its port closed.

    A port that stays open although the service is down is held by something that outlived it:
    that is left to :func:`reap`. Raises WorkFailedError at the deadline, naming what still runs.
    """
    if not status.running and not await port_open(world):
        stages.result(f"was {status.state} already")
        return
    await world.journal.write("stop", unit=service.unit)
    done = await service.stop()
    if not done.ok:
        raise CommandFailedError(
            done,
            f"{service.unit} did not take the stop.",
            remedy="The login may lack the right to stop it: root, or sudo = true for the host.",
        )
    waits_for = "it has not answered yet"
    down_since: float | None = None

    async def down() -> tuple[ServiceStatus, bool] | None:
        nonlocal waits_for, down_since
        now = await service.status()
        if now.running:
            waits_for = f"{now.unit} is {now.state} {now.sub_state}".strip()
        elif now.main_pid:
            waits_for = f"its main process {now.main_pid} is still there"
        elif await port_open(world):
            waits_for = f"port {endpoint_port(world)} is still open"
            down_since = world.clock.now() if down_since is None else down_since
            if world.clock.now() - down_since >= _PORT_PATIENCE_S:
                return now, False
        else:
            return now, True
        stages.note(waits_for)
        return None

    deadline = world.rig.limits.stop_s
    try:
        now, closed = await wait_until(down, clock=world.clock, deadline_s=deadline, every_s=0.15)
    except DeadlinePassedError:
        raise WorkFailedError(
            f"{service.unit} did not stop within {deadline:.0f} s: {waits_for}.",
            remedy="Raise limits.stop_s, or look at what it waits for on the host.",
            code="stop-timeout",
            evidence=await _port_evidence(world),
        ) from None
    stages.result(f"{now.state}, port {'closed' if closed else 'still open'}")


def endpoint_port(world: World) -> int:
    """The TCP port of the rig's endpoint."""
    parts = urlsplit(world.rig.engine.url)
    return parts.port or (443 if parts.scheme == "https" else 80)


async def port_open(world: World) -> bool:
    """Whether the endpoint's port is open on the service's host."""
    host = await world.hosts.get(world.rig.service.host)
    return await listening(host, endpoint_port(world))


async def _port_evidence(world: World) -> tuple[str, ...]:
    host = await world.hosts.get(world.rig.service.host)
    port = endpoint_port(world)
    pids = await port_holders(host, port)
    named = {process.pid: process for process in await list_processes(host)}
    return tuple(
        f"port {port} is held by pid {pid}: {named[pid].command if pid in named else '?'}"
        for pid in pids
    )


# -- reap ---------------------------------------------------------------------------------------


async def reap(world: World, before: Before, stages: StageRunner) -> None:
    """End what is left of the service on every host of the rig; nothing foreign is touched.

    Raises WorkFailedError where a process outlives SIGKILL.
    """
    found = await find_residuals(world, before)
    wanted = list(found.ours)
    if found.probable and await world.decide.ask(
        Question(
            kind="reap-orphans",
            title="End these processes? They are probably of this service.",
            details=tuple(describe(process) for process in found.probable),
        )
    ):
        wanted += found.probable
    spared = len(found.ours) + len(found.probable) - len(wanted)
    left = f"{spared} probable left alone" if spared else ""
    survivors = await end_processes(world, wanted, stages) if wanted else ()
    if survivors:
        raise WorkFailedError(
            f"{len(survivors)} processes of the service outlived SIGKILL.",
            remedy=state_note(survivors[0]) or "Look at them on the host; a reboot may be needed.",
            code="unkillable",
            evidence=tuple(describe(process) for process in survivors),
        )
    await _wait_for_port(world, found)
    ended = f"{len(wanted)} ended" if wanted else ""
    stages.result(", ".join(filter(None, [ended, left])) or "none left")


async def _wait_for_port(world: World, found: Residuals) -> None:
    async def closed() -> bool | None:
        return None if await port_open(world) else True

    try:
        await wait_until(closed, clock=world.clock, deadline_s=_PORT_PATIENCE_S, every_s=0.15)
    except DeadlinePassedError:
        port = endpoint_port(world)
        known = {(process.host, process.pid): process for process in found.foreign}
        host = await world.hosts.get(world.rig.service.host)
        holders = await port_holders(host, port)
        described = [known[key] for pid in holders if (key := (host.name, pid)) in known]
        raise WorkFailedError(
            f"Port {port} is still open on {host.name}, and nothing of the rig holds it.",
            remedy="The engine could not start beside it. End its holder by hand, or change the"
            " port.",
            code="port-in-use",
            evidence=tuple(describe(process) for process in described)
            or await _port_evidence(world),
        ) from None


async def end_processes(
    world: World, wanted: Sequence[Process], stages: StageRunner
) -> tuple[Process, ...]:
    """SIGTERM, the grace period, SIGKILL; returns who is still there. Zombies count as gone."""
    remaining = tuple(wanted)
    for signal_name, patience in (("TERM", world.rig.limits.grace_s), ("KILL", 10.0)):
        await world.journal.write(
            "signal", signal=signal_name, targets=[describe(process) for process in remaining]
        )
        for process in remaining:
            await signal_process(
                await world.hosts.get(process.host),
                process,
                "TERM" if signal_name == "TERM" else "KILL",
            )
        stages.note(f"SIG{signal_name} sent to {len(remaining)} processes")

        async def gone() -> bool | None:
            nonlocal remaining
            remaining = await _still_there(world, remaining)
            return True if not remaining else None

        try:
            await wait_until(gone, clock=world.clock, deadline_s=patience, every_s=0.25)
        except DeadlinePassedError:
            continue
        break
    return remaining


async def _still_there(world: World, wanted: Sequence[Process]) -> tuple[Process, ...]:
    alive: dict[tuple[str, int], Process] = {}
    for name in dict.fromkeys(process.host for process in wanted):
        for process in await list_processes(await world.hosts.get(name)):
            alive[name, process.pid] = process
    return tuple(
        now
        for process in wanted
        if (now := alive.get((process.host, process.pid))) is not None
        and same_process(now, process)
        and not now.state.startswith("Z")
    )


async def find_residuals(world: World, before: Before) -> Residuals:
    """Everything of the rig that still runs, judged by whose it is."""
    rig = world.rig
    gpu_host = None if rig.gpus is None else rig.gpus.host
    names = [rig.service.host, *rig.clean.hosts, *([gpu_host] if gpu_host else [])]
    hosts = [await world.hosts.get(name) for name in dict.fromkeys(names)]
    service_host = await world.hosts.get(rig.service.host)
    (snapshot, status, holders), listed = await asyncio.gather(
        asyncio.gather(
            _holders(world),
            before.service.status(),
            port_holders(service_host, endpoint_port(world)),
        ),
        asyncio.gather(*(list_processes(host) for host in hosts)),
    )
    uuids = {gpu.uuid for gpu in selected(snapshot, rig.gpus)}
    return classify(
        [process for listing in listed for process in listing],
        service_host=rig.service.host,
        is_engine=world.engine.is_own_process,
        old=before.old,
        control_group=await before.service.control_group_pids(status),
        clean_hosts=[name for name in rig.clean.hosts if rig.hosts[name].via is not None],
        gpu_host=gpu_host,
        gpu_processes=[row for row in snapshot.processes if row.gpu_uuid in uuids],
        port_holders={rig.service.host: holders},
    )


def describe(process: Process) -> str:
    """One process as the operator reads it."""
    parts = [f"{process.host} pid {process.pid}", process.user, process.command]
    if process.gpu_mib is not None:
        parts.append(f"{process.gpu_mib} MiB")
    if process.age_s is not None:
        parts.append(f"{process.age_s} s old")
    note = process.why or state_note(process)
    return ", ".join(parts) + (f" ({note})" if note else "")


# -- free ---------------------------------------------------------------------------------------


async def free(world: World, before: Before, stages: StageRunner) -> tuple[int, ...]:
    """Wait until the rig's GPUs are at their idle level; returns the reading of each, in MiB.

    Raises WorkFailedError at the deadline, naming who still holds what.
    """
    if world.rig.gpus is None:
        stages.result("the rig names no GPUs")
        return ()
    stable = 0
    last: Snapshot = Snapshot(source="")

    async def empty() -> Snapshot | None:
        nonlocal stable, last
        # The first look is a query of its own, so that free GPUs need not wait for the stream.
        last = await (world.gpus.fresh() if last.gpus else world.gpus.query())
        holds = freed(last, before.levels, world.rig.gpus)
        stable = 0 if holds else stable + 1
        if holds:
            stages.note(held_text(holds))
        return last if stable >= _STABLE_READINGS else None

    deadline = world.rig.limits.free_s
    try:
        await wait_until(empty, clock=world.clock, deadline_s=deadline, every_s=0.0)
    except DeadlinePassedError:
        await _force_free(world, before, stages)
        try:
            await wait_until(empty, clock=world.clock, deadline_s=deadline, every_s=0.0)
        except DeadlinePassedError:
            raise await _not_free(world, before, last) from None
    readings = tuple(
        gpu.memory_used_mib
        for gpu in selected(last, world.rig.gpus)
        if gpu.memory_used_mib is not None
    )
    stages.result(f"at most {max(readings)} MiB used" if readings else "no rig process is left")
    return readings


async def is_free(world: World, before: Before) -> bool:
    """Whether the GPUs are at their idle level within a short while."""
    if world.rig.gpus is None:
        return True

    async def empty() -> bool | None:
        snapshot = await world.gpus.fresh()
        return True if not freed(snapshot, before.levels, world.rig.gpus) else None

    try:
        return await wait_until(
            empty, clock=world.clock, deadline_s=world.rig.limits.free_s, every_s=0.0
        )
    except DeadlinePassedError:
        return False


async def _force_free(world: World, before: Before, stages: StageRunner) -> None:
    """Foreign holders, each with a yes of its own; raises WorkFailedError without one."""
    found = await find_residuals(world, before)
    holders = [process for process in found.foreign if process.gpu_mib is not None]
    allowed = set(world.rig.clean.force_free)
    agreed: list[Process] = []
    for process in holders:
        name = program_name(process)
        if name in allowed or await world.decide.ask(
            Question(
                kind="force-free",
                title=f"End {name}? It is not of this rig.",
                details=(describe(process),),
                type_to_confirm=name,
                subject=name,
            )
        ):
            agreed.append(process)
    if not agreed:
        raise await _not_free(world, before, await world.gpus.fresh())
    await end_processes(world, agreed, stages)


async def _not_free(world: World, before: Before, snapshot: Snapshot) -> SpecdashError:
    holds = freed(snapshot, before.levels, world.rig.gpus)
    found = await find_residuals(world, before)
    holders = [process for process in found.foreign if process.gpu_mib is not None]
    remedy = "Nothing visible holds it: a driver leak or another PID namespace; see the node."
    if holders:
        names = ", ".join(dict.fromkeys(program_name(process) for process in holders))
        remedy = f"Held by {names}, not of this rig. To end it: --force-free NAME."
    return WorkFailedError(
        f"The GPUs did not come back to idle: {held_text(holds)}.",
        remedy=remedy,
        code="not-free",
        evidence=tuple(describe(process) for process in holders),
    )


def program_name(process: Process) -> str:
    """The name by which a foreign holder is granted: the first word without its folders."""
    return (process.command.split() or ["?"])[0].rsplit("/", 1)[-1]


def held_text(holds: Sequence[Held]) -> str:
    """What is still held, as one line."""
    return ", ".join(hold.sentence() for hold in holds)


async def _holders(world: World) -> Snapshot:
    return Snapshot(source="") if world.rig.gpus is None else await world.gpus.query()
