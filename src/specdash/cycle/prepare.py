"""Read the rig and decide the edit, touching nothing: the ground of every plan and cycle."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from specdash.core.diff import unified
from specdash.core.errors import RefusedError, SpecdashError, UnreachableError, WorkFailedError
from specdash.core.plan import Refusal
from specdash.core.service import ServiceStatus
from specdash.core.settings import Candidate, Resolution
from specdash.cycle.running import running_info
from specdash.cycle.world import World
from specdash.engines.protocol import EngineInfo
from specdash.hosts.files import FileImage, read_file
from specdash.hosts.protocol import Host
from specdash.launch.editing import Edit, edit_config
from specdash.launch.reading import Reading, read_config
from specdash.launch.removal import Removed
from specdash.services.protocol import Service
from specdash.services.registry import service_for


@dataclass(frozen=True, slots=True)
class Target:
    """One file a cycle would replace, with the bytes it holds now."""

    host: Host
    image: FileImage


@dataclass(frozen=True, slots=True)
class Present:
    """The rig as it is now. ``info`` is empty where the engine does not answer."""

    service: Service
    status: ServiceStatus
    targets: tuple[Target, ...]
    reading: Reading
    info: EngineInfo

    @property
    def bytes_now(self) -> bytes:
        """The launch config's bytes; of the local source, where the rig has one."""
        return self.targets[0].image.data


@dataclass(frozen=True, slots=True)
class Decision:
    """What a candidate would change; with refusals it will not run."""

    resolution: Resolution | None
    edit: Edit | None
    refusals: tuple[Refusal, ...]
    warnings: tuple[str, ...]
    error: SpecdashError | None = None

    @property
    def changes(self) -> bool:
        return self.edit is not None and self.edit.changed


async def read_present(world: World) -> Present:
    """Connect to the rig's hosts and read service, launch config and engine.

    Raises UnreachableError where a host does not answer, WorkFailedError where the service or the
    config is not there, or the config does not say what it must.
    """
    rig = world.rig
    await connect_all(world)
    service = service_for(rig.service, await world.hosts.get(rig.service.host))
    status = await service.status()
    if status.state == "not-found":
        raise WorkFailedError(
            f"{service.host_name} knows no service {service.unit}.",
            remedy="Check service.unit in the rig file against `systemctl list-units`.",
            code="service-not-found",
        )
    targets = [
        Target(
            config_host := await world.hosts.get(rig.config.host),
            await read_file(config_host, rig.config.path),
        )
    ]
    if rig.config.source is not None:
        source = Target(world.local, await read_file(world.local, rig.config.source))
        targets.insert(0, source)
    kept = world.memory.load()
    reading = read_config(
        rig.config.path,
        targets[0].image.data,
        world.engine.knobs,
        service=rig.config.service,
        known_off=kept is not None,
    )
    info = await running_info(world, status.main_pid) if status.running else EngineInfo()
    return Present(service, status, tuple(targets), reading, info)


async def connect_all(world: World) -> None:
    """Reach every host the rig names, so that none fails in the middle of a cycle."""
    rig = world.rig
    names = [rig.service.host, rig.config.host, *rig.clean.hosts]
    if rig.gpus is not None:
        names.append(rig.gpus.host)
    await asyncio.gather(*(_connect(world, name) for name in dict.fromkeys(names)))


async def _connect(world: World, name: str) -> None:
    host = await world.hosts.get(name)
    spec = world.rig.hosts[name]
    if spec.via is None and not spec.sudo:
        return
    done = await host.run(["true"], timeout_s=20.0)
    if not done.ok:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
        raise UnreachableError(
            f"Commands do not run on {name}: {said or f'exit {done.exit_status}'}.",
            remedy="Check via, enter and sudo of this host in the rig file.",
            code="host-refuses",
        )


def decide(world: World, present: Present, candidate: Candidate) -> Decision:
    """Apply the engine's rules and edit the launch config in memory."""
    refusals: list[Refusal] = []
    warnings: list[str] = [*present.info.warnings, *present.reading.warnings]
    if world.rig.safety.read_only:
        refusals.append(
            Refusal(
                "read-only",
                f"The rig {world.rig.name} is read-only.",
                "Set safety.read_only = false in its rig file to allow a cycle.",
            )
        )
    if len(present.targets) == 2 and present.targets[0].image.data != present.targets[1].image.data:
        source, copy = present.targets
        difference = unified(copy.image.data, source.image.data, copy.image.path)
        refusals.append(
            Refusal(
                "source-differs",
                f"The local source {source.image.path} and {copy.image.path} on {copy.host.name}"
                " differ before any change.",
                f"Make them equal first; source against copy:\n{difference}",
            )
        )
    try:
        kept = world.memory.load()
        removed = None if kept is None else Removed.from_json(kept)
        base = present.reading.settings
        if present.reading.off and removed is not None:
            base = removed.settings
        resolution = world.engine.resolve(base, candidate)
        edit = edit_config(present.reading, resolution.settings, removed=removed)
    except RefusedError as error:
        refusals.append(Refusal(error.code, error.message, error.remedy))
        return Decision(None, None, tuple(refusals), tuple(warnings), error)
    warnings += edit.warnings
    return Decision(resolution, edit, tuple(refusals), tuple(dict.fromkeys(warnings)))
