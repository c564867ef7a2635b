"""A scripted host, and one that runs for real on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from specdash.hosts.protocol import Completed, Tunnel

Answer = tuple[int | None, bytes, bytes]


class ScriptedHost:
    """Answers commands by a function of argv; remembers them with their stdin."""

    def __init__(
        self,
        answer: Callable[[tuple[str, ...]], Answer | bytes] = lambda argv: b"",
        records: Sequence[bytes] = (),
        *,
        timed_out: bool = False,
    ) -> None:
        self._answer = answer
        self._records = records
        self._timed_out = timed_out
        self.ran: list[tuple[str, ...]] = []
        self.stdin: list[bytes | None] = []

    @property
    def name(self) -> str:
        return "svc"

    async def run(
        self, argv: Sequence[str], *, timeout_s: float = 30.0, stdin: bytes | None = None
    ) -> Completed:
        self.ran.append(tuple(argv))
        self.stdin.append(stdin)
        answer = self._answer(tuple(argv))
        status, out, err = (0, answer, b"") if isinstance(answer, bytes) else answer
        return Completed("svc", tuple(argv), status, out, err, 0.0, self._timed_out)

    @asynccontextmanager
    async def lines(self, argv: Sequence[str]) -> AsyncIterator[AsyncIterator[bytes]]:
        self.ran.append(tuple(argv))

        async def records() -> AsyncIterator[bytes]:
            for record in self._records:
                yield record

        yield records()

    async def tunnel(self, address: str, port: int) -> Tunnel:
        raise NotImplementedError

    async def close(self) -> None:
        return


class ThisHost(ScriptedHost):
    """Runs commands on this machine."""

    async def run(
        self, argv: Sequence[str], *, timeout_s: float = 30.0, stdin: bytes | None = None
    ) -> Completed:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate(stdin or b"")
        return Completed("svc", tuple(argv), process.returncode, out, err, 0.0)


@pytest.fixture
def scripted() -> type[ScriptedHost]:
    return ScriptedHost


@pytest.fixture
def this_host() -> ThisHost:
    return ThisHost()
