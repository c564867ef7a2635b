"""Processes seen from outside, and a host that is this machine."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from specdash.core.clock import SystemClock, wait_until
from specdash.hosts.local import LocalHost


class Traces:
    """Finds processes by a mark in their environment, however they were started."""

    def __init__(self) -> None:
        self.mark = f"SPECDASH_TEST_{secrets.token_hex(8)}"

    @property
    def variable(self) -> str:
        """To be put in front of a command with ``env``."""
        return f"{self.mark}=1"

    def alive(self) -> list[str]:
        """Command lines of the marked processes that are no zombies."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if self.mark.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found

    async def until(self, count: int, deadline_s: float = 10.0) -> None:
        """Wait until exactly ``count`` marked processes live."""

        async def probe() -> bool | None:
            return True if len(self.alive()) == count else None

        await wait_until(probe, clock=SystemClock(), deadline_s=deadline_s, every_s=0.02)


@pytest.fixture
def traces() -> Traces:
    return Traces()


@pytest_asyncio.fixture
async def local() -> AsyncIterator[LocalHost]:
    host = LocalHost("here")
    yield host
    await host.close()


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL soon after SIGTERM."""
    monkeypatch.setattr("specdash.hosts.shell.GRACE_S", 0.3)


__all__ = ["Traces", "asyncio", "local", "short_grace", "traces"]
