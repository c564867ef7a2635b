"""What can be proved while the old service still serves, so that it is not stopped for nothing."""

from __future__ import annotations

from specdash.core.errors import UnreachableError, WorkFailedError
from specdash.cycle.down import endpoint_port, held_text, port_open
from specdash.cycle.prepare import Decision, Present
from specdash.cycle.world import World
from specdash.gpus.idle import freed


async def check_gpus(world: World) -> None:
    """Raises WorkFailedError where the rig's GPUs cannot be read: that they came free could never
    be seen, and the service would be stopped for nothing."""
    spec = world.rig.gpus
    if spec is None:
        return
    snapshot = await world.gpus.query()
    blind = [
        hold
        for hold in freed(snapshot, world.gpus.idle_levels(), spec)
        if hold.why in ("missing", "lost", "unknown")
    ]
    if not blind:
        return
    problem = snapshot.problems[0] if snapshot.problems else None
    raise WorkFailedError(
        f"The rig's GPUs cannot be watched on {spec.host}: {held_text(blind)}.",
        remedy=problem.remedy if problem else "Check [gpus] in the rig file.",
        code=problem.code if problem else "gpus",
        evidence=[item.message for item in snapshot.problems],
    )


async def check_endpoint(world: World, present: Present) -> str:
    """Whether the endpoint leads to the service: "" or a warning.

    Raises UnreachableError where the service's port is open and the url does not reach it: the
    load could then never be seen to end. A closed port may mean that the engine still loads, or
    that it crashes, which a cycle is a way out of.
    """
    said = present.info
    # The settings alone prove nothing: they may come from the process's command line.
    if present.status.state != "active" or said.version is not None or said.model is not None:
        return ""
    reply = await world.http.get("/v1/models")
    if reply.status is not None:
        return ""
    url, port = world.rig.engine.url, endpoint_port(world)
    if await port_open(world):
        raise UnreachableError(
            f"Port {port} is open on {present.service.host_name}, but {url} does not answer:"
            f" {reply.error}.",
            remedy="Check engine.url and engine.tunnel in the rig file. Nothing was stopped.",
            code="endpoint-unreachable",
        )
    return f"Nothing answers at {url} now. If the engine is not loading, check engine.url."


async def prove_config(present: Present, decision: Decision) -> None:
    """Raises WorkFailedError where the supervisor would not take the new config."""
    if decision.edit is None:
        return
    fault = await present.service.check_config(present.targets[-1].image.path, decision.edit.data)
    if fault:
        raise WorkFailedError(
            f"The supervisor would not take the new config: {fault}",
            remedy="Nothing was stopped. Mend the launch config first.",
            code="config-rejected",
        )
