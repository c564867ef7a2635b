"""The live streams of an open rig: service status, GPUs and log, each on its own legs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from specdash.core.clock import Clock
from specdash.core.errors import SpecdashError
from specdash.core.events import GpusSampled, LinkChanged, LogLine, StatusChanged
from specdash.core.settings import Settings
from specdash.core.text import make_safe
from specdash.cycle.running import running_info
from specdash.cycle.world import World
from specdash.engines.protocol import EngineInfo
from specdash.gpus.stream import watch
from specdash.hosts.files import read_file
from specdash.launch.reading import read_config
from specdash.services.protocol import Service
from specdash.services.registry import service_for
from specdash.session.wiring import Wiring

STATUS_EVERY_S = 1.0
CONFIG_EVERY_S = 5.0
GPU_INTERVAL_MS = 400
_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 15.0


class LiveStreams:
    """Starts and keeps the streams. A stream that fails is tried again; the others go on.

    The engine is never asked anything while ``measuring`` says a measurement runs.
    """

    def __init__(
        self,
        world: World,
        wiring: Wiring,
        clock: Clock,
        measuring: Callable[[], bool],
        busy: Callable[[], bool],
    ) -> None:
        self._world = world
        self._wiring = wiring
        self._clock = clock
        self._measuring = measuring
        self._busy = busy
        self._tasks: list[asyncio.Task[None]] = []
        self._info: EngineInfo = EngineInfo()
        self._said: dict[str, str] = {}
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
        self._tasks.append(asyncio.create_task(self._again(host, body), name=name))

    async def _again(self, host: str, body: Callable[[], Awaitable[None]]) -> None:
        backoff = _FIRST_BACKOFF_S
        while True:
            started = self._clock.now()
            try:
                await body()
            except SpecdashError as error:
                self._link(host, "refused" if error.code == "refused" else "lost", error)
            if self._clock.now() - started > _LONGEST_BACKOFF_S:
                backoff = _FIRST_BACKOFF_S
            await self._clock.sleep(backoff)
            backoff = min(backoff * 2, _LONGEST_BACKOFF_S)

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
        if not self._measuring():
            changed = status.invocation != self._seen_invocation
            if changed or self._clock.now() >= self._config_due:
                self._seen_invocation = status.invocation
                self._config_due = self._clock.now() + CONFIG_EVERY_S
                self.config = await self._read_config()
            self._info = (
                await running_info(self._world, status.main_pid) if status.running else EngineInfo()
            )
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
        host = await self._world.hosts.get(rig.gpus.host)
        self._link(rig.gpus.host, "up", None)
        async for snapshot in watch(host, interval_ms=GPU_INTERVAL_MS, clock=self._clock):
            self._wiring.gpus.push(snapshot)
            self._world.emit(GpusSampled(t=self._clock.wall(), snapshot=snapshot))

    def _link(self, host: str, state: str, error: SpecdashError | None) -> None:
        message = "" if error is None else f"{error.message} {error.remedy}".strip()
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
