"""Write and reload: put the new launch config in place, or the old one back."""

from __future__ import annotations

from dataclasses import dataclass

from specdash.core.errors import WorkFailedError
from specdash.cycle.prepare import Target
from specdash.cycle.world import World
from specdash.hosts.files import FileImage, Staged, commit_file, discard_file, read_file, stage_file
from specdash.hosts.protocol import CommandFailedError, Host
from specdash.services.protocol import Service


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """One new file, already on the disk beside its target."""

    target: Target
    staged: Staged


async def stage_all(
    world: World, targets: tuple[Target, ...], data: bytes
) -> tuple[StagedWrite, ...]:
    """Write the new bytes beside every target. Raises WorkFailedError; then nothing is left."""
    done: tuple[StagedWrite, ...] = ()
    try:
        for target in targets:
            done = (*done, StagedWrite(target, await stage_file(target.host, target.image, data)))
    except BaseException:
        await discard_all(world, done)
        raise
    return done


async def discard_all(world: World, writes: tuple[StagedWrite, ...]) -> None:
    """Remove what was staged and not put in place, through connections that live."""
    for write in writes:
        await discard_file(await living(world, write.target.host), write.staged)


async def living(world: World, host: Host) -> Host:
    """The same host, connected: anew where its link was lost."""
    return host if host is world.local else await world.hosts.get(host.name)


async def commit_all(writes: tuple[StagedWrite, ...]) -> None:
    """Rename every staged file onto its target.

    Raises WorkFailedError where a target changed since it was read or the bytes read back differ.
    """
    for write in writes:
        await _commit(write.target.host, write.staged, write.target.image)


async def put_back(targets: tuple[Target, ...], written: bytes) -> None:
    """Give every target that holds ``written`` the bytes it had when the cycle began.

    Raises WorkFailedError where one holds something else by now: that is somebody's work.
    """
    for target in targets:
        now = await read_file(target.host, target.image.path)
        if now.data == target.image.data:
            continue
        if now.data != written:
            raise WorkFailedError(
                f"{target.image.path} on {target.host.name} was changed by somebody else during"
                " the cycle; it is left as it is.",
                remedy="Compare it with the backup in the state directory.",
                code="changed-underfoot",
            )
        staged = await stage_file(target.host, now, target.image.data)
        await _commit(target.host, staged, now)


async def _commit(host: Host, staged: Staged, expect: FileImage) -> None:
    done = await commit_file(host, staged, expect)
    # The bytes are read back and equal, and the old ones are kept on the operator's machine: a
    # copy beside the unit for each probe would only be litter there.
    await host.run(["rm", "-f", "--", done.backup])


async def reload_if_due(service: Service) -> bool:
    """Reload where the supervisor says its copy is stale; True where it was done."""
    status = await service.status()
    if status.needs_reload is not True:
        return False
    done = await service.reload()
    if not done.ok:
        raise CommandFailedError(
            done,
            f"The supervisor on {service.host_name} did not reload its configuration.",
            remedy="See what it said below.",
        )
    if (await service.status()).needs_reload is True:
        raise WorkFailedError(
            f"{service.unit} still needs a reload after one.",
            remedy="Look at `systemctl status` on the host for a unit file that cannot be read.",
            code="reload",
        )
    return True
