"""The border of this room: what is known of an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from specdash.core.errors import RefusedError
from specdash.core.settings import Candidate, Capacity, Resolution, Settings
from specdash.launch.knobs import KnobTable
from specdash.rig.schema import EngineKind

Phase = Literal["process", "weights", "draft-weights", "kv-cache", "graphs", "warm-up", "ready"]
CauseCode = Literal[
    "memory-too-small",  # raise the memory fraction, or a smaller draft
    "out-of-memory",  # lower the memory fraction
    "illegal-combination",
    "port-in-use",
    "orphan-worker",
    "missing-weights",
    "unknown-flag",
    "driver",
    "restart-loop",
    "crash",
]


class IllegalCandidateError(RefusedError):
    """The engine would refuse or change these settings; said before anything is stopped."""

    default_code = "illegal-candidate"


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An answer. ``status`` None: nothing answered (``error`` says why)."""

    status: int | None
    body: bytes = b""
    error: str = ""

    def json(self) -> Any:
        """The body as JSON, or None where it is not JSON."""
        import json

        try:
            return json.loads(self.body)
        except ValueError:
            return None


class Http(Protocol):
    """The endpoint, direct or through a tunnel. Never raises for an answer or its absence."""

    async def get(self, path: str, *, timeout_s: float = 5.0) -> HttpReply: ...

    async def post(
        self, path: str, body: Mapping[str, object], *, timeout_s: float = 60.0
    ) -> HttpReply: ...


@dataclass(frozen=True, slots=True)
class Readiness:
    """``ready`` by the engine's own rule; ``detail`` says how far it is.

    ``needs_key``: it is alive and refuses us, so that waiting will not make it ready.
    """

    ready: bool
    detail: str
    needs_key: bool = False


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the running engine says of itself; None where it does not say."""

    settings: Settings | None = None
    capacity: Capacity = Capacity()
    model: str | None = None
    version: str | None = None
    warnings: tuple[str, ...] = ()
    simulated: bool = False
    """The engine says that it is none: its figures are no measurement of hardware."""


@dataclass(frozen=True, slots=True)
class LogFact:
    """What one log line says of the load. ``fraction`` in [0, 1] within the phase."""

    phase: Phase
    fraction: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a load failed: a sentence, a remedy, the lines that prove it."""

    code: CauseCode
    message: str
    remedy: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Generation:
    """One real generation: ``tokens`` None where the engine did not count them."""

    ok: bool
    tokens: int | None = None
    text: str = ""
    error: str = ""


class Engine(Protocol):
    """Facts and rules of one engine. All but the three HTTP questions are pure."""

    @property
    def kind(self) -> EngineKind: ...

    @property
    def knob_word(self) -> str:
        """The engine's own word for the depth, for the screen ("steps", "draft tokens")."""
        ...

    @property
    def knobs(self) -> KnobTable:
        """The flags of its launch config."""
        ...

    @property
    def has_topk(self) -> bool:
        """Whether topk and draft tokens exist beside the depth."""
        ...

    def resolve(self, current: Settings, candidate: Candidate) -> Resolution:
        """Apply the engine's rules to a candidate on top of what the config says now.

        Raises IllegalCandidateError, naming the rule.
        """
        ...

    def same_depth(self, asked: Settings, resolved: Settings) -> str:
        """ "" where the engine runs what was asked, else one sentence on what differs."""
        ...

    def is_own_process(self, command: str) -> bool:
        """Whether a command line looks like a process of this engine (workers included)."""
        ...

    async def readiness(self, http: Http) -> Readiness: ...

    async def info(self, http: Http) -> EngineInfo: ...

    async def generate(self, http: Http, model: str | None) -> Generation:
        """One real generation of a few tokens at temperature 0."""
        ...

    def read_log(self, line: str) -> LogFact | None:
        """What one log line says of the load, if anything."""
        ...

    def diagnose(self, lines: Sequence[str]) -> Cause | None:
        """The cause of a failed load from its last log lines."""
        ...
