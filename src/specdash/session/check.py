"""Try everything a cycle will need of a rig, one check at a time, touching nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from specdash.core.errors import SpecdashError, UsageError, WorkFailedError
from specdash.cycle.prepare import Present, read_present
from specdash.cycle.world import World
from specdash.gpus.idle import selected
from specdash.gpus.once import snapshot
from specdash.services.processes import list_processes
from specdash.services.registry import SERVICES


@dataclass(frozen=True, slots=True)
class Check:
    """One thing tried: ``message`` says what was found, or what is wrong."""

    name: str
    ok: bool
    message: str
    remedy: str = ""

    def to_json(self) -> dict[str, object]:
        return {"name": self.name, "ok": self.ok, "message": self.message, "remedy": self.remedy}


@dataclass
class CheckReport:
    """All checks in order, and the first error for the exit code."""

    checks: list[Check] = field(default_factory=list)
    error: SpecdashError | None = None


async def check_rig(world: World) -> CheckReport:
    """Run every check; later ones that need an earlier one that failed are left out."""
    report = CheckReport()
    await _try(report, "service kind", lambda: _kind(world))
    reached = [await _host(world, report, name) for name in world.rig.hosts]
    present: Present | None = None
    if all(reached):
        present = await _present(world, report)
    if present is not None:
        await _try(report, "endpoint", lambda: _endpoint(world, present))
    if world.rig.gpus is not None and all(reached):
        await _try(report, "gpus", lambda: _gpus(world))
    if all(reached):
        await _try(report, "processes", lambda: _processes(world))
    return report


async def _try(report: CheckReport, name: str, body: Callable[[], Awaitable[str]]) -> bool:
    try:
        report.checks.append(Check(name, True, await body()))
    except SpecdashError as error:
        report.error = report.error or error
        report.checks.append(Check(name, False, error.message, error.remedy))
        return False
    return True


async def _host(world: World, report: CheckReport, name: str) -> bool:
    async def body() -> str:
        host = await world.hosts.get(name)
        done = await host.run(["id", "-un"], timeout_s=20.0)
        if not done.ok:
            said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
            raise WorkFailedError(
                f"Commands do not run on {name}: {said or f'exit {done.exit_status}'}.",
                remedy="Check via, enter and sudo of this host in the rig file.",
            )
        return f"commands run as {done.stdout.decode('utf-8', 'replace').strip()}"

    return await _try(report, f"host {name}", body)


async def _present(world: World, report: CheckReport) -> Present | None:
    found: list[Present] = []

    async def body() -> str:
        present = await read_present(world)
        found.append(present)
        status = present.status
        return f"{present.service.unit} is {status.state}, config says {_says(present)}"

    await _try(report, "service and config", body)
    return found[0] if found else None


def _says(present: Present) -> str:
    return present.reading.settings.short()


async def _kind(world: World) -> str:
    kind = world.rig.service.kind
    if kind not in SERVICES:
        raise UsageError(
            f"Services of the kind {kind!r} are not supported yet.",
            remedy=f"Supported: {', '.join(SERVICES)}.",
            code="unsupported-service",
        )
    return kind


async def _endpoint(world: World, present: Present) -> str:
    if not present.status.running:
        return "not asked: the service does not run"
    readiness = await world.engine.readiness(world.http)
    if not readiness.ready:
        raise WorkFailedError(
            f"{world.rig.engine.url} is not ready: {readiness.detail}.",
            remedy="Check engine.url and engine.tunnel, or wait until the load ends.",
            code="not-ready",
        )
    settings = present.info.settings
    return "ready" if settings is None else f"ready, runs {settings.short()}"


async def _gpus(world: World) -> str:
    spec = world.rig.gpus
    if spec is None:
        return "none named"
    seen = await snapshot(await world.hosts.get(spec.host))
    gpus = selected(seen, spec)
    if not gpus:
        problem = seen.problems[0] if seen.problems else None
        raise WorkFailedError(
            problem.message if problem else "None of the rig's GPUs is seen.",
            remedy=problem.remedy if problem else "Check [gpus] in the rig file.",
            code="gpus",
        )
    return f"{len(gpus)} x {gpus[0].name or 'GPU'}"


async def _processes(world: World) -> str:
    host = await world.hosts.get(world.rig.service.host)
    return f"{len(await list_processes(host))} processes seen on {host.name}"
