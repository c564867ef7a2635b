"""The border of this room: what to measure, where, and the process that measures it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from specdash.core.events import CellMeasured, CellProgress, CellStarted
from specdash.core.settings import Capacity
from specdash.rig.schema import HostSpec

Dialect = Literal["auto", "sglang", "vllm", "llama.cpp", "openai"]
BenchEvent = CellStarted | CellProgress | CellMeasured


@dataclass(frozen=True, slots=True)
class SshTunnel:
    """How the measuring process reaches the endpoint by itself. ``secrets``: host name ->
    password or passphrase given on screen; they travel over the stdin pipe only."""

    via: str
    hosts: Mapping[str, HostSpec]
    ssh_config: tuple[Path, ...] | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to send requests. ``url`` is a root, ``.../v1`` or a full endpoint."""

    url: str
    dialect: Dialect = "auto"
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tunnel: SshTunnel | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """What to send. ``prompts``: a built-in kind or a file. ``requests``: exactly that many a
    cell, unless the budget ends first (the cell is then flagged ``cut``). ``budget_s``: seconds
    the window of a cell may take, warm-up and ramp apart."""

    prompts: str = "mixed"
    output_tokens: int = 256
    temperature: float = 0.0
    ignore_eos: bool = True
    budget_s: float = 60.0
    requests: int | None = None
    stall_s: float = 30.0
    seed: int = 0

    def to_json(self) -> dict[str, object]:
        return {
            "prompts": self.prompts,
            "output_tokens": self.output_tokens,
            "temperature": self.temperature,
            "ignore_eos": self.ignore_eos,
            "budget_s": self.budget_s,
            "requests": self.requests,
        }


@dataclass(frozen=True, slots=True)
class Identity:
    """What answered at the endpoint."""

    url: str
    dialect: Dialect
    model: str | None


class Bench(Protocol):
    """A measuring process, ready. Leaving its context ends it and drops its connections."""

    async def identify(self) -> Identity:
        """Find the engine and the model. Raises UnreachableError where nothing answers."""
        ...

    def measure(
        self, concurrency: int, *, capacity: Capacity = Capacity(), fresh: bool = True
    ) -> AsyncGenerator[BenchEvent, None]:
        """One cell: started, progress at most 10 a second, and at the end exactly one
        CellMeasured (also for a cell without one good request). Closing the iterator early
        cancels the cell."""
        ...

    async def close(self) -> None: ...
