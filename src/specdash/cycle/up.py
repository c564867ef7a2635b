"""Start, load, verify: from the supervisor's start to an engine that runs what was asked."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from specdash.core.clock import DeadlinePassedError, wait_until
from specdash.core.errors import WorkFailedError
from specdash.core.events import LoadProgress
from specdash.core.service import ServiceStatus
from specdash.core.settings import Settings
from specdash.core.text import make_safe
from specdash.cycle.progress import StageRunner
from specdash.cycle.running import running_info
from specdash.cycle.world import World
from specdash.engines.logscan import LoadReader
from specdash.engines.protocol import EngineInfo, LogFact
from specdash.hosts.protocol import CommandFailedError
from specdash.services.protocol import Service

_START_DEADLINE_S = 60.0
_KEPT_LINES = 400
_EVIDENCE_LINES = 12


@dataclass
class LogTail:
    """The last lines of the log since the start, and what they say of the load."""

    world: World
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    on: bool = False
    _last: LogFact | None = None
    _reader: LoadReader = field(default_factory=LoadReader)

    def begin(self) -> None:
        """The start is asked for: lines count from here."""
        self.lines.clear()
        self._reader = LoadReader()
        self.on = True

    def feed(self, line: str) -> None:
        """One new line. Every rank says the same; each fact is told once."""
        if not self.on:
            return
        self.lines.append(line)
        fact = self.world.engine.read_log(line)
        if fact is None:
            return
        fact = self._reader.place(fact)
        if fact != self._last:
            self._last = fact
            self.world.emit(
                LoadProgress(
                    t=self.world.clock.wall(),
                    phase=fact.phase,
                    fraction=fact.fraction,
                    detail=make_safe(fact.detail),
                )
            )


async def start(
    world: World, service: Service, before: ServiceStatus, stages: StageRunner
) -> ServiceStatus:
    """Start the service; done when it is active in a new invocation with a new main process.

    ``before`` is the status before the stop. Raises WorkFailedError with the log's own reason.
    """
    stopped = await service.status()
    done = await service.start()
    if not done.ok:
        raise CommandFailedError(
            done,
            f"{service.unit} did not start.",
            remedy="The supervisor's own words are below.",
        )

    async def up() -> ServiceStatus | None:
        status = await service.status()
        stages.note(f"{status.state} {status.sub_state}".strip())
        if status.state == "failed":
            return status
        fresh = status.invocation not in ("", before.invocation, stopped.invocation)
        if status.state == "active" and status.main_pid and fresh:
            return status
        return None

    try:
        status = await wait_until(up, clock=world.clock, deadline_s=_START_DEADLINE_S, every_s=0.15)
    except DeadlinePassedError:
        raise WorkFailedError(
            f"{service.unit} was not active {_START_DEADLINE_S:.0f} s after its start.",
            remedy="Look at its log; a unit of Type=notify is active only when it says so.",
            code="start-timeout",
            evidence=await _log_evidence(world, service, await service.status()),
        ) from None
    if status.state == "failed":
        raise await load_failure(world, service, status, status.invocation, ())
    return status


async def load(
    world: World, service: Service, started: ServiceStatus, stages: StageRunner, tail: LogTail
) -> None:
    """Wait until the engine is ready by its own rule.

    Raises WorkFailedError with the classified cause where the process ends, restarts, or the
    deadline passes.
    """

    async def ready() -> bool | None:
        readiness = await world.engine.readiness(world.http)
        if readiness.ready:
            return True
        stages.note(readiness.detail)
        if readiness.needs_key:
            raise WorkFailedError(
                f"The engine answers but wants an API key: {readiness.detail}.",
                remedy="Put the key in an environment variable and name it in engine.api_key_env.",
                code="needs-key",
            )
        status = await service.status()
        if _died(status, started):
            raise await load_failure(world, service, status, started.invocation, tuple(tail.lines))
        return None

    try:
        await wait_until(ready, clock=world.clock, deadline_s=world.rig.limits.load_s, every_s=0.25)
    except DeadlinePassedError:
        raise WorkFailedError(
            f"The engine was not ready {world.rig.limits.load_s:.0f} s after its start.",
            remedy="Raise limits.load_s in the rig file if its loads take longer, else see its log.",
            code="load-timeout",
            evidence=tuple(tail.lines)[-_EVIDENCE_LINES:],
        ) from None
    status = await service.status()
    if _died(status, started):
        raise await load_failure(world, service, status, started.invocation, tuple(tail.lines))
    world.emit(LoadProgress(t=world.clock.wall(), phase="ready", fraction=1.0))


def _died(status: ServiceStatus, started: ServiceStatus) -> bool:
    if status.state in ("failed", "inactive", "deactivating"):
        return True
    if status.sub_state == "auto-restart":
        return True
    return bool(started.main_pid) and status.main_pid not in (None, started.main_pid)


async def load_failure(
    world: World,
    service: Service,
    status: ServiceStatus,
    invocation: str,
    lines: tuple[str, ...],
) -> WorkFailedError:
    """The cause of a failed start or load, classified from the log of that invocation.

    ``status`` may be of a later one: the supervisor may have started it again by itself.
    """
    recorded = await service.recent_log(invocation=invocation)
    texts = [raw.decode("utf-8", "replace") for raw in recorded]
    cause = world.engine.diagnose(texts) or world.engine.diagnose(lines)
    texts = texts or list(lines)
    if cause is not None:
        return WorkFailedError(
            cause.message, remedy=cause.remedy, code=cause.code, evidence=cause.evidence
        )
    said = status.result or status.state
    exit_text = "" if status.exit_status is None else f", exit status {status.exit_status}"
    return WorkFailedError(
        f"{service.unit} ended while loading ({said}{exit_text}).",
        remedy="Its last log lines are below.",
        code="crash",
        evidence=tuple(texts[-_EVIDENCE_LINES:]),
    )


async def _log_evidence(world: World, service: Service, status: ServiceStatus) -> tuple[str, ...]:
    recorded = await service.recent_log(invocation=status.invocation, lines=_EVIDENCE_LINES)
    return tuple(raw.decode("utf-8", "replace") for raw in recorded)


async def verify(world: World, asked: Settings, main_pid: int | None) -> EngineInfo:
    """One real generation, and the engine's own word on what it runs.

    Raises WorkFailedError where it generates nothing or runs another depth than asked.
    """
    model = world.rig.engine.model
    generation = await world.engine.generate(world.http, model)
    if not generation.ok:
        raise WorkFailedError(
            f"The engine is up but its first generation failed: {generation.error}.",
            remedy="A healthy port is not enough; its log says why it cannot generate.",
            code="no-generation",
        )
    if generation.tokens == 0:
        raise WorkFailedError(
            "The engine is up but its first generation gave no token.",
            remedy="See its log; the candidate may not fit this model.",
            code="no-generation",
        )
    info = await running_info(world, main_pid)
    if info.settings is not None:
        difference = world.engine.same_depth(asked, info.settings)
        if difference:
            raise WorkFailedError(
                difference,
                remedy="The engine adjusted or ignored the setting; nothing is measured under"
                " a wrong name.",
                code="other-depth",
            )
    return info
