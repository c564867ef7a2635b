"""From a rig file to connected parts: pool, endpoint, feeds and the world of its cycles."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from specdash.bench.protocol import Bench, Endpoint, SshTunnel, Workload
from specdash.bench.runner import open_bench
from specdash.core.clock import Clock, SystemClock
from specdash.core.errors import UsageError
from specdash.core.events import CommandRan
from specdash.core.gpu import Snapshot
from specdash.core.ports import Decide
from specdash.core.redact import Redactor
from specdash.core.text import make_safe
from specdash.cycle.world import World
from specdash.engines.registry import engine_for
from specdash.gpus.once import snapshot
from specdash.hosts.local import LocalHost
from specdash.hosts.options import SshOptions
from specdash.hosts.pool import HostPool
from specdash.hosts.protocol import Completed, Host
from specdash.rig.schema import Rig
from specdash.rig.store import Places
from specdash.session.backups import FileBackups
from specdash.session.endpoint import TunnelledHttp
from specdash.session.feeds import Feed, GpuReadings
from specdash.session.hub import Hub
from specdash.session.journal import FileJournal
from specdash.session.memory import FileFlagMemory

_SHOWN_OUTPUT = 2_000


class Wiring:
    """The connected parts of one rig. Nothing connects before it is used."""

    def __init__(
        self, rig: Rig, options: SshOptions, environ: Mapping[str, str], clock: Clock | None = None
    ) -> None:
        self.rig = rig
        self.hub = Hub()
        self.clock = clock or SystemClock()
        self._options = options
        self._api_key = _api_key(rig, environ)
        self.redact = Redactor([self._api_key] if self._api_key else [])
        self.pool = HostPool(rig.hosts, options, on_command=self._command_ran)
        self.local = LocalHost("local")
        tunnel = rig.engine.tunnel
        self.http = TunnelledHttp(
            rig.engine.url,
            api_key=self._api_key,
            tunnel_host=None if tunnel is None else lambda: self.pool.get(tunnel),
        )
        self.gpus = GpuReadings(self._gpus_once, rig.gpus, self._quiet)
        self.log: Feed[str] = Feed()
        self.at_rest = False
        """The service is known to be down and no cycle runs."""

    def world(self, decide: Decide, places: Places) -> World:
        """Everything a cycle of this rig acts on."""
        return World(
            rig=self.rig,
            hosts=self.pool,
            local=self.local,
            engine=engine_for(self.rig.engine.kind),
            http=self.http,
            gpus=self.gpus,
            log=self.log,
            open_bench=self._open_bench,
            journal=FileJournal(places.journals, self.rig.name, self.clock, self.redact),
            decide=decide,
            clock=self.clock,
            emit=self.hub.publish,
            backups=FileBackups(places.backups / self.rig.name, self.clock),
            memory=FileFlagMemory(places.state / "flags" / f"{self.rig.name}.json"),
            operator=operator_name(),
            redact=self.redact,
        )

    async def close(self) -> None:
        """Hang up everywhere."""
        await self.http.close()
        await self.pool.close()
        await self.local.close()

    def _quiet(self, snapshot: Snapshot) -> bool:
        is_own = engine_for(self.rig.engine.kind).is_own_process
        return self.at_rest and not any(is_own(row.name or "") for row in snapshot.processes)

    async def _gpus_once(self) -> Snapshot:
        if self.rig.gpus is None:
            return Snapshot(source="")
        host: Host = await self.pool.get(self.rig.gpus.host)
        return await snapshot(host)

    def _open_bench(self) -> AbstractAsyncContextManager[Bench]:
        engine, bench = self.rig.engine, self.rig.bench
        tunnel = None
        if engine.tunnel is not None:
            tunnel = SshTunnel(
                via=engine.tunnel,
                hosts=self.rig.hosts,
                ssh_config=self._options.config_files,
                secrets=self.pool.secrets(),
            )
        endpoint = Endpoint(
            url=engine.url,
            dialect=engine.kind,
            model=engine.model,
            api_key=self._api_key,
            tunnel=tunnel,
        )
        workload = Workload(
            prompts=bench.prompts, output_tokens=bench.output_tokens, budget_s=bench.budget_s
        )
        return open_bench(endpoint, workload, clock=self.clock)

    def _command_ran(self, done: Completed) -> None:
        output = (done.stdout + done.stderr)[:_SHOWN_OUTPUT]
        self.hub.publish(
            CommandRan(
                t=self.clock.wall(),
                host=done.host,
                argv=tuple(make_safe(word) for word in self.redact.argv(done.argv)),
                exit_status=done.exit_status,
                seconds=done.seconds,
                output=make_safe(
                    self.redact.text(output.decode("utf-8", "replace")), keep_newlines=True
                ),
            )
        )


def operator_name() -> str:
    """``user@machine (pid N)``, for locks and journals."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()} (specdash pid {os.getpid()})"


def _api_key(rig: Rig, environ: Mapping[str, str]) -> str | None:
    variable = rig.engine.api_key_env
    if variable is None:
        return None
    key = environ.get(variable, "").strip()
    if not key:
        raise UsageError(
            f"The environment variable {variable} is not set.",
            remedy=f"engine.api_key_env of rig {rig.name} names it; export it first.",
            code="api-key-missing",
        )
    if not key.isprintable():
        raise UsageError(
            f"The value of the environment variable {variable} cannot be sent in a header.",
            remedy="It holds a line end or another control character; export the key alone.",
            code="bad-key",
        )
    return key
