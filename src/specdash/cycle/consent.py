"""What needs a yes before anything is stopped."""

from __future__ import annotations

from specdash.core.errors import RefusedError
from specdash.core.plan import Plan, command_text
from specdash.core.ports import Question
from specdash.cycle.strip import containers_at_risk, needs_reload
from specdash.cycle.world import World


async def get_yes(world: World, plan: Plan, *, approved: bool) -> None:
    """The operator's yes to this plan, and to a protected rig. Raises RefusedError without it."""
    rig = world.rig
    if rig.safety.protected and not await world.decide.ask(
        Question(
            kind="protected",
            title=f"{rig.name} is protected.",
            details=("Its service will stop.",),
            type_to_confirm=rig.name,
            subject=rig.name,
        )
    ):
        raise RefusedError(
            f"The rig {rig.name} is protected.",
            remedy=f"Confirm it by name: --confirm {rig.name}.",
            code="protected",
        )
    if not approved and not await world.decide.ask(
        Question(kind="run-plan", title="Run this plan?", details=_plan_lines(plan))
    ):
        raise RefusedError(
            "Nothing was run: the plan has no yes.",
            remedy="Look at it with `specdash plan`, then pass --yes.",
            code="no-yes",
        )


async def allow_reload(world: World) -> None:
    """A yes where a reload would strip containers of their GPUs. Raises RefusedError without."""
    rig = world.rig
    if rig.service.kind != "systemd" or not needs_reload(rig.config.path):
        return
    names = await containers_at_risk(await world.hosts.get(rig.service.host))
    if names and not await world.decide.ask(
        Question(
            kind="allow-reload",
            title="The reload will take the GPUs from other running containers.",
            details=names,
        )
    ):
        raise RefusedError(
            f"A reload would take the GPUs from {', '.join(names)}.",
            remedy="They would have to be made anew. To go on all the same: --allow-reload.",
            code="reload-strips-gpus",
        )


def _plan_lines(plan: Plan) -> tuple[str, ...]:
    """What changes, then what runs."""
    writes = [write for stage in plan.stages for write in stage.writes]
    lines = [row for write in writes for row in write.diff.splitlines()]
    for stage in plan.stages:
        lines += [f"{stage.name} on {stage.host}: {command_text(argv)}" for argv in stage.commands]
    return tuple(lines)
