"""Processes seen from outside, by a mark in their environment."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from specdash.core.clock import SystemClock, wait_until


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
