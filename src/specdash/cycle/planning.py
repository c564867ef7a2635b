"""The plan as a value: every stage with its exact commands and the diff."""

from __future__ import annotations

import posixpath

from specdash.core.diff import unified
from specdash.core.plan import Plan, PlannedStage, PlannedWrite
from specdash.core.settings import Candidate
from specdash.cycle.prepare import Decision, Present, decide, read_present
from specdash.cycle.world import World
from specdash.gpus.query import gpus_argv, holders_argv
from specdash.hosts.files import FileImage, Staged, backup_path, commit_argv, stage_argv
from specdash.services.processes import PS_ARGV, signal_argv


async def make_plan(world: World, candidate: Candidate) -> Plan:
    """Read the rig and say what a cycle of ``candidate`` would run and change."""
    present = await read_present(world)
    return plan_of(world, present, decide(world, present, candidate))


def plan_of(world: World, present: Present, decision: Decision) -> Plan:
    """The plan of what was read and decided. Commands that depend on what is found during the
    cycle (signals to residual processes) are shown as the query that finds them."""
    rig, service = world.rig, present.service
    residual_hosts = dict.fromkeys([rig.service.host, *rig.clean.hosts])
    stages = [
        PlannedStage("stop", service.host_name, (service.stop_argv(),)),
        *(PlannedStage("reap", name, _reap_commands()) for name in residual_hosts),
    ]
    if rig.gpus is not None:
        stages.append(
            PlannedStage("free", rig.gpus.host, (tuple(gpus_argv()), tuple(holders_argv())))
        )
    if decision.changes and decision.edit is not None:
        for target in present.targets:
            image = target.image
            stages.append(
                PlannedStage(
                    "write",
                    target.host.name,
                    _write_commands(image, decision.edit.data),
                    (
                        PlannedWrite(
                            image.path,
                            world.redact.text(unified(image.data, decision.edit.data, image.path)),
                        ),
                    ),
                )
            )
        stages.append(PlannedStage("reload", service.host_name, (service.reload_argv(),)))
    stages.append(PlannedStage("start", service.host_name, (service.start_argv(),)))
    return Plan(
        rig=rig.name,
        before=present.reading.settings,
        resolution=decision.resolution,
        stages=tuple(stages),
        refusals=decision.refusals,
        warnings=decision.warnings,
    )


def _reap_commands() -> tuple[tuple[str, ...], ...]:
    """The query, and what each process of the service that it finds is sent."""
    return (
        tuple(PS_ARGV),
        signal_argv("PID", "TERM", "STARTED"),
        signal_argv("PID", "KILL", "STARTED"),
    )


def _write_commands(image: FileImage, data: bytes) -> tuple[tuple[str, ...], ...]:
    """The two commands of a write. The real names end in random digits and the time instead."""
    folder, name = posixpath.split(image.real_path)
    temporary = posixpath.join(folder, f".{name}.specdash-NEW")
    staged = Staged(image.real_path, temporary, data)
    backup = backup_path(image.real_path, "TIME")
    return (
        stage_argv(image, temporary),
        commit_argv(staged, backup),
        ("rm", "-f", "--", backup),
    )
