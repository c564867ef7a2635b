"""The border of this room: what every supervisor can do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from specdash.core.service import ServiceStatus
from specdash.hosts.protocol import Completed

Argv = tuple[str, ...]


class Service(Protocol):
    """A supervised service on one host. Commands are plain values so that a plan can show them."""

    @property
    def unit(self) -> str: ...

    @property
    def host_name(self) -> str: ...

    def stop_argv(self) -> Argv: ...

    def start_argv(self) -> Argv: ...

    def reload_argv(self) -> Argv: ...

    async def status(self) -> ServiceStatus:
        """One status query. A unit the supervisor does not know has the state ``not-found``."""
        ...

    async def stop(self) -> Completed:
        """Ask for a stop without waiting for its end (the caller polls ``status``)."""
        ...

    async def start(self) -> Completed:
        """Ask for a start without waiting; a failed unit is reset first where that is needed."""
        ...

    async def reload(self) -> Completed:
        """Make the supervisor read its config again."""
        ...

    async def control_group_pids(self, status: ServiceStatus) -> tuple[int, ...]:
        """Pids the supervisor holds for this unit (empty where it holds none)."""
        ...

    async def recent_log(self, *, invocation: str = "", lines: int = 200) -> list[bytes]:
        """The last lines of the log, of one invocation where given."""
        ...

    def follow_log(self) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """New log lines as they come, without history."""
        ...

    async def check_config(self, path: str, data: bytes) -> str:
        """Verify a proposed config file without installing it; "" or what is wrong with it."""
        ...
