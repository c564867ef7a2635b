"""The border of this room: what every host can do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from specdash.core.errors import UnreachableError, WorkFailedError


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ended. ``exit_status`` None: the link was lost, the outcome is unknown."""

    host: str
    argv: tuple[str, ...]
    exit_status: int | None
    stdout: bytes
    stderr: bytes
    seconds: float
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """True only for exit status 0."""
        return self.exit_status == 0


class LinkLostError(UnreachableError):
    """The connection to a host died; what ran there may still run."""

    default_code = "link-lost"


class CommandFailedError(WorkFailedError):
    """A command ended with another status than 0."""

    default_code = "command-failed"

    def __init__(self, completed: Completed, message: str, *, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy, evidence=evidence_of(completed))
        self.completed = completed


def evidence_of(completed: Completed, lines: int = 12) -> tuple[str, ...]:
    """The command, its exit status and its last lines."""
    status = (
        "deadline passed"
        if completed.timed_out
        else "outcome unknown, link lost"
        if completed.exit_status is None
        else f"exit {completed.exit_status}"
    )
    output = (completed.stdout + b"\n" + completed.stderr).decode("utf-8", "replace").splitlines()
    tail = [line for line in output if line.strip()][-lines:]
    return (f"{completed.host}$ {' '.join(completed.argv)}", status, *tail)


class Tunnel(Protocol):
    """A local port that leads to an address as the host sees it."""

    @property
    def local_port(self) -> int: ...

    async def close(self) -> None: ...


class Host(Protocol):
    """A machine that runs argv lists. Nothing it starts outlives its reader."""

    @property
    def name(self) -> str:
        """The name in the rig file."""
        ...

    async def run(
        self, argv: Sequence[str], *, timeout_s: float = 30.0, stdin: bytes | None = None
    ) -> Completed:
        """Run to the end and collect the output.

        Any exit status is a normal return. At ``timeout_s`` the remote process is ended too
        (``timed_out``). Raises LinkLostError or another UnreachableError where the host cannot
        be reached.
        """
        ...

    def lines(self, argv: Sequence[str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Run and read stdout line by line (without line ends) until it ends or the context is left.

        stderr is merged. Leaving the context, losing the link or dying ends the remote process.
        """
        ...

    async def tunnel(self, address: str, port: int) -> Tunnel:
        """A local port forwarded to ``address:port`` as this host resolves it."""
        ...

    async def close(self) -> None:
        """End what runs and hang up. May be called twice."""
        ...
