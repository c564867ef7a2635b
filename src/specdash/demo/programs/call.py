"""One call of a box program: who called, with which words, and where the output goes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from specdash.demo.faults import FaultSwitch
from specdash.demo.journal import Journal
from specdash.demo.machine import Machine
from specdash.demo.supervisor import Supervisor

CONTAINER_ID = "129"
CONTAINER_HOST = "gpu-service"
NODE_HOST = "pve-node"


class Output(Protocol):
    """The caller's stdout and stderr, and its own end."""

    async def out(self, text: str | bytes) -> None: ...

    async def err(self, text: str) -> None: ...

    async def replace(self, path: str, cwd: str, argv: list[str]) -> None:
        """Make the caller become another program."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """Everything a program can look at. ``bin_paths``: host -> its PATH."""

    machine: Machine
    supervisor: Supervisor
    journal: Journal
    faults: FaultSwitch
    root: Path
    speed: float
    bin_paths: dict[str, str] = field(default_factory=dict)
    may_signal: Callable[[int], bool] = lambda pid: False


@dataclass(frozen=True, slots=True)
class Call:
    """``host`` is "svc" (the container's own address, ``ct`` is the same place) or "node"."""

    world: World
    host: str
    program: str
    argv: list[str]
    cwd: str
    pid: int
    output: Output

    async def out(self, text: str | bytes) -> None:
        await self.output.out(text)

    async def err(self, text: str) -> None:
        await self.output.err(text)

    async def fail(self, status: int, text: str) -> int:
        """Say ``text`` on stderr and end with ``status``."""
        await self.err(text.rstrip("\n") + "\n")
        return status


Program = Callable[[Call], Coroutine[None, None, int]]
