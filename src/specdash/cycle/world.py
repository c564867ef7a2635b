"""Everything a cycle acts on, as arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from specdash.bench.protocol import Bench
from specdash.core.clock import Clock
from specdash.core.events import Event
from specdash.core.gpu import Snapshot
from specdash.core.ports import Decide, Journal
from specdash.core.redact import Redactor
from specdash.engines.protocol import Engine, Http
from specdash.gpus.idle import IdleLevels
from specdash.hosts.protocol import Host
from specdash.rig.schema import Rig


class Hosts(Protocol):
    """The rig's hosts by their names in the rig file, connected on first use."""

    async def get(self, name: str) -> Host: ...


class GpuFeed(Protocol):
    """The rig's GPUs as the live stream sees them."""

    async def fresh(self) -> Snapshot:
        """A reading that was taken after this call began."""
        ...

    async def query(self) -> Snapshot:
        """One query of its own, with who holds memory right now."""
        ...

    def idle_levels(self) -> IdleLevels:
        """The memory at or below which each GPU counts as idle, as far as is known by now."""
        ...

    def watch(self, observer: Callable[[Snapshot], None]) -> Callable[[], None]:
        """Call ``observer`` with each reading until the returned function is called."""
        ...


class LogFeed(Protocol):
    """The service's log as the live stream sees it."""

    def watch(self, observer: Callable[[str], None]) -> Callable[[], None]:
        """Call ``observer`` with each new line until the returned function is called."""
        ...


class FlagMemory(Protocol):
    """The bytes of the flags that turning speculation off removed, kept across sessions."""

    def load(self) -> Mapping[str, object] | None: ...

    def save(self, removed: Mapping[str, object]) -> None: ...


class Backups(Protocol):
    """Copies of what a host held, on the operator's machine."""

    async def keep(self, host: str, path: str, data: bytes) -> str:
        """On disk when it returns; returns where."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """The outside of one cycle. ``operator`` names who acts, for locks and the journal."""

    rig: Rig
    hosts: Hosts
    local: Host
    engine: Engine
    http: Http
    gpus: GpuFeed
    log: LogFeed
    open_bench: Callable[[], AbstractAsyncContextManager[Bench]]
    journal: Journal
    decide: Decide
    clock: Clock
    emit: Callable[[Event], None]
    memory: FlagMemory
    backups: Backups
    operator: str
    redact: Redactor = field(default_factory=Redactor)
