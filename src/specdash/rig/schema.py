"""One deployment under tuning, as values. The TOML keys are the field names."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

ServiceKind = Literal["systemd", "docker", "compose", "process"]
EngineKind = Literal["sglang", "vllm", "llama.cpp"]


@dataclass(frozen=True, slots=True)
class HostSpec:
    """A machine commands run on: over SSH, this one, or inside a container of another host.

    Exactly one of ``ssh`` (an alias or user@host[:port]), ``local`` and ``via`` is set.
    ``enter`` goes with ``via``: ``pct:129``, ``docker:NAME``, ``lxc:NAME``.
    """

    name: str
    ssh: str | None = None
    local: bool = False
    via: str | None = None
    enter: str | None = None
    sudo: bool = False


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    host: str
    kind: ServiceKind
    unit: str


@dataclass(frozen=True, slots=True)
class ConfigSpec:
    """``source``: a local file that is the truth and is copied to ``path``."""

    host: str
    path: str
    source: str | None = None
    service: str | None = None


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """``url`` is the endpoint's root; ``tunnel`` names the host through which it is reached."""

    kind: EngineKind
    url: str
    tunnel: str | None = None
    model: str | None = None
    api_key_env: str | None = None


@dataclass(frozen=True, slots=True)
class GpusSpec:
    """Which GPUs belong to the rig; none named means all of the host."""

    host: str
    uuids: tuple[str, ...] = ()
    indices: tuple[int, ...] = ()
    idle_mib: int | None = None


@dataclass(frozen=True, slots=True)
class CleanSpec:
    """Where residual processes may be, and which foreign holders may be ended, by name."""

    hosts: tuple[str, ...] = ()
    force_free: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SafetySpec:
    protected: bool = False
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class BenchSpec:
    """``prompts``: a built-in kind or a file. ``budget_s``: seconds a cell may take."""

    concurrency: tuple[int, ...] = (1, 4, 16)
    prompts: str = "mixed"
    output_tokens: int = 256
    budget_s: float = 60.0


@dataclass(frozen=True, slots=True)
class LimitsSpec:
    """Deadlines of the stages, in seconds. ``grace_s`` lies between SIGTERM and SIGKILL."""

    stop_s: float = 120.0
    grace_s: float = 30.0
    free_s: float = 120.0
    load_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class Rig:
    """One deployment: its hosts, service, launch config, endpoint and GPUs."""

    name: str
    path: Path | None
    hosts: dict[str, HostSpec]
    service: ServiceSpec
    config: ConfigSpec
    engine: EngineSpec
    gpus: GpusSpec | None = None
    clean: CleanSpec = CleanSpec()
    safety: SafetySpec = SafetySpec()
    bench: BenchSpec = BenchSpec()
    limits: LimitsSpec = LimitsSpec()
    simulated: bool = field(default=False, compare=False)
    """Set by the rig in a box, never by the file."""
