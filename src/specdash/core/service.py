"""The state of a supervised service as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ServiceState = Literal[
    "active",
    "reloading",
    "inactive",
    "failed",
    "activating",
    "deactivating",
    "maintenance",
    "not-found",
    "unknown",
]


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """What the supervisor says. None where it does not say.

    ``invocation`` changes at each start; ``since`` is the supervisor's own text for when the
    state began; ``needs_reload`` is True where the supervisor's copy of the config is stale.
    """

    unit: str
    state: ServiceState = "unknown"
    sub_state: str = ""
    main_pid: int | None = None
    since: str = ""
    invocation: str = ""
    restarts: int | None = None
    result: str = ""
    exit_status: int | None = None
    needs_reload: bool | None = None
    control_group: str = ""
    fragment_path: str = ""
    drop_in_paths: tuple[str, ...] = ()
    exec_start: str = ""
    stop_timeout_s: float | None = None

    @property
    def running(self) -> bool:
        """A main process exists or is being brought up or down."""
        return self.state in ("active", "reloading", "activating", "deactivating")


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a host. ``started`` pins it: a pid alone can be reused."""

    host: str
    pid: int
    ppid: int
    session: int
    uid: int
    user: str
    state: str
    started: str
    age_s: int | None
    command: str
    gpu_mib: int | None = None
    why: str = ""
