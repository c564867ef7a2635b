"""The live streams of an open rig: service status, GPUs and log, each on its own legs."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Literal

from specdash.core.clock import Clock
from specdash.core.errors import InternalError, SpecdashError, UnreachableError
from specdash.core.events import GpusSampled, LinkChanged, LogLine, Notice, StatusChanged
from specdash.core.settings import Settings
from specdash.core.text import make_safe
from specdash.cycle.running import running_info
from specdash.cycle.world import World
from specdash.engines.protocol import EngineInfo
from specdash.gpus.stream import watch
from specdash.hosts.files import read_file
from specdash.hosts.protocol import LinkLostError
from specdash.launch.reading import read_config
from specdash.services.protocol import Service
from specdash.services.registry import service_for
from specdash.session.wiring import Wiring

STATUS_EVERY_S = 1.0
CONFIG_EVERY_S = 5.0
GPU_INTERVAL_MS = 400
_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 15.0
_REFUSED_BACKOFF_S = 60.0
_LET_IN_EVERY_S = 0.5
_REFUSALS = frozenset(
    (
        "permission-denied",
        "key-encrypted",
        "host-key-unknown",
        "host-key-changed",
        "host-key-revoked",
    )
)


class LiveStreams:
    """Starts and keeps the streams. A stream that fails is tried again; the others go on.

    The engine is never asked anything while ``measuring`` says a measurement runs; what it is
    set to is then what the cycle ``verified``.
    """

    def __init__(
        self,
        world: World,
        wiring: Wiring,
        clock: Clock,
        measuring: Callable[[], bool],
        busy: Callable[[], bool],
        verified: Callable[[], EngineInfo | None],
    ) -> None:
        self._world = world
        self._wiring = wiring
        self._clock = clock
        self._measuring = measuring
        self._busy = busy
        self._verified = verified
        self._tasks: list[asyncio.Task[None]] = []
        self._info: EngineInfo = EngineInfo()
        self._said: dict[str, str] = {}
        self._noticed: dict[str, str] = {}
        self._config_due = 0.0
        self._seen_invocation = ""
        self.config: Settings | None = None
        """What the launch config says, as last read."""

    @property
    def now(self) -> Settings | None:
        """What the running engine says, as last asked."""
        return self._info.settings

    @property
    def simulated(self) -> bool:
        """Whether this is the rig in a box, by the caller's word or the engine's own."""
        return self._world.rig.simulated or self._info.simulated

    def start(self) -> None:
        """Start all streams; returns at once."""
        rig = self._world.rig
        self._keep("status", rig.service.host, self._status)
        self._keep("log", rig.service.host, self._log)
        if rig.gpus is not None:
            self._keep("gpus", rig.gpus.host, self._gpus)

    async def stop(self) -> None:
        """End all streams and what they run on the hosts."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def _keep(self, name: str, host: str, body: Callable[[], Awaitable[None]]) -> None:
        self._tasks.append(asyncio.create_task(self._again(name, host, body), name=name))

    async def _again(self, name: str, host: str, body: Callable[[], Awaitable[None]]) -> None:
        backoff = _FIRST_BACKOFF_S
        while True:
            started = self._clock.now()
            refused = False
            try:
                await body()
            except UnreachableError as error:
                refused = error.code in _REFUSALS
                self._link(host, "refused" if refused else "lost", error)
            except SpecdashError as error:
                self._notice(name, "warning", error)
            except Exception as bug:  # noqa: BLE001  the stream is tried again, the others go on
                self._notice(name, "error", InternalError.of(bug))
                await self._record(name)
            if self._clock.now() - started > _LONGEST_BACKOFF_S:
                backoff = _FIRST_BACKOFF_S
            if refused:
                await self._until_let_in(host)
            else:
                await self._clock.sleep(backoff)
                backoff = min(backoff * 2, _LONGEST_BACKOFF_S)

    async def _until_let_in(self, host: str) -> None:
        """A login that was refused is not tried over and over: servers lock out who does. It is
        tried again after a minute, once somebody else got in, or once a new secret is known."""
        pool = self._wiring.pool
        known = pool.secrets()
        end = self._clock.now() + _REFUSED_BACKOFF_S
        while self._clock.now() < end and not pool.is_up(host) and pool.secrets() == known:
            await self._clock.sleep(_LET_IN_EVERY_S)

    async def _status(self) -> None:
        rig = self._world.rig
        host = await self._world.hosts.get(rig.service.host)
        service = service_for(rig.service, host)
        self._link(rig.service.host, "up", None)
        while True:
            await self._one_status(service)
            await self._clock.sleep(STATUS_EVERY_S)

    async def _one_status(self, service: Service) -> None:
        status = await service.status()
        self._link(service.host_name, "up", None)
        self._wiring.at_rest = not status.running and not self._busy()
        measuring = self._measuring()
        changed = status.invocation != self._seen_invocation
        if changed or (not measuring and self._clock.now() >= self._config_due):
            self._seen_invocation = status.invocation
            self._config_due = self._clock.now() + CONFIG_EVERY_S
            self.config = await self._config_now()
        if measuring:
            self._info = self._verified() or self._info
        elif status.running:
            self._info = await running_info(self._world, status.main_pid)
        else:
            self._info = EngineInfo()
        self._world.emit(
            StatusChanged(
                t=self._clock.wall(),
                service=status,
                now=self._info.settings,
                config=self.config,
                model=make_safe(self._info.model or ""),
                simulated=self.simulated,
            )
        )

    async def _config_now(self) -> Settings | None:
        """What the config says; None, and said once, where it cannot be read."""
        try:
            config = await self._read_config()
        except UnreachableError:
            raise
        except SpecdashError as error:
            self._notice("config", "warning", error)
            return None
        self._noticed.pop("config", None)
        return config

    async def _read_config(self) -> Settings | None:
        rig = self._world.rig
        host = await self._world.hosts.get(rig.config.host)
        image = await read_file(host, rig.config.path)
        reading = read_config(
            rig.config.path,
            image.data,
            self._world.engine.knobs,
            service=rig.config.service,
            known_off=self._world.memory.load() is not None,
        )
        return reading.settings

    async def _log(self) -> None:
        rig = self._world.rig
        service = service_for(rig.service, await self._world.hosts.get(rig.service.host))
        async with service.follow_log() as lines:
            async for raw in lines:
                text = self._world.redact.text(raw.decode("utf-8", "replace"))
                self._wiring.log.push(text)
                self._world.emit(
                    LogLine(t=self._clock.wall(), source="service", text=make_safe(text))
                )

    async def _gpus(self) -> None:
        rig = self._world.rig
        if rig.gpus is None:
            return
        name = rig.gpus.host
        host = await self._world.hosts.get(name)
        self._link(name, "up", None)
        readings = watch(host, interval_ms=GPU_INTERVAL_MS, clock=self._clock)
        async with aclosing(readings):
            async for snapshot in readings:
                if snapshot.gpus or snapshot.problems:
                    self._wiring.gpus.push(snapshot)
                    self._world.emit(GpusSampled(t=self._clock.wall(), snapshot=snapshot))
                elif not self._wiring.pool.is_up(name):
                    # A host whose link is gone stays gone: the pool makes a new one.
                    raise LinkLostError(
                        f"the connection to {name} was lost",
                        remedy="specdash connects again by itself.",
                    )

    def _notice(self, what: str, level: Literal["warning", "error"], error: SpecdashError) -> None:
        """Say it once, until it changes."""
        redact = self._world.redact.text
        said = f"{error.message} {error.evidence}"
        if self._noticed.get(what) == said:
            return
        self._noticed[what] = said
        self._world.emit(
            Notice(
                t=self._clock.wall(),
                level=level,
                message=make_safe(redact(f"{what}: {error.message}")),
                remedy=make_safe(redact(error.remedy)),
                evidence=tuple(make_safe(redact(line)) for line in error.evidence),
            )
        )

    async def _record(self, what: str) -> None:
        text = traceback.format_exc()
        # A journal that cannot be written stops acts, not the view of the rig.
        with suppress(SpecdashError):
            await self._world.journal.write("internal-error", stream=what, traceback=text)

    def _link(self, host: str, state: str, error: SpecdashError | None) -> None:
        message = "" if error is None else error.sentences
        if self._said.get(host) == state + message:
            return
        self._said[host] = state + message
        self._world.emit(
            LinkChanged(
                t=self._clock.wall(),
                host=host,
                state="up" if state == "up" else "refused" if state == "refused" else "lost",
                message=make_safe(message),
            )
        )
