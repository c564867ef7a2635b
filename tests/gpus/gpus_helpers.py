"""Captured sections and a fake host for the tests of this room."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from specdash.hosts.protocol import Completed, LinkLostError

CAPTURES = Path(__file__).parent / "captures"
_HEAD = re.compile(r"#{80}\n# (.*)\n# \$ .*\n#{80}\n")


def capture(name: str) -> bytes:
    return (CAPTURES / name).read_bytes()


def section(name: str, title: str) -> bytes:
    """The body of one section of a capture; ``title`` is the beginning of its heading."""
    parts = _HEAD.split((CAPTURES / name).read_text())
    found = [
        body for head, body in zip(parts[1::2], parts[2::2], strict=True) if head.startswith(title)
    ]
    assert len(found) == 1, (name, title, len(found))
    return found[0].strip("\n").encode() + b"\n"


class TurnClock:
    """Virtual time: when every task had many turns, the earliest sleeper wakes."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.slept: list[float] = []
        self._deadlines: list[tuple[float, int]] = []

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        mine = (self.time + seconds, len(self.slept))
        self._deadlines.append(mine)
        try:
            while True:
                for _ in range(30):
                    await asyncio.sleep(0)
                if self.time >= mine[0]:
                    return
                if min(self._deadlines) == mine:
                    self.time = mine[0]
                    return
        finally:
            self._deadlines.remove(mine)


Reply = bytes | tuple[int, bytes] | Exception


class FakeHost:
    """Answers argv lists: ``replies`` gets the argv and returns stdout, (status, stdout) or raises.

    ``stream`` gets the argv of ``lines`` and yields its output.
    """

    def __init__(
        self,
        replies: Callable[[tuple[str, ...]], Reply],
        stream: Callable[[tuple[str, ...]], AsyncIterator[bytes]] | None = None,
    ) -> None:
        self.name = "box"
        self.ran: list[tuple[str, ...]] = []
        self.streamed: list[tuple[str, ...]] = []
        self._replies = replies
        self._stream = stream

    async def run(
        self, argv: Sequence[str], *, timeout_s: float = 30.0, stdin: bytes | None = None
    ) -> Completed:
        self.ran.append(tuple(argv))
        await asyncio.sleep(0)
        reply = self._replies(tuple(argv))
        if isinstance(reply, Exception):
            raise reply
        status, stdout = reply if isinstance(reply, tuple) else (0, reply)
        return Completed(self.name, tuple(argv), status, stdout, b"", 0.01)

    @asynccontextmanager
    async def lines(self, argv: Sequence[str]) -> AsyncIterator[AsyncIterator[bytes]]:  # type: ignore[override]
        self.streamed.append(tuple(argv))
        if self._stream is None:
            raise LinkLostError("no stream")
        source = self._stream(tuple(argv))
        try:
            yield source
        finally:
            await source.aclose()  # type: ignore[attr-defined]

    async def tunnel(self, address: str, port: int):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    async def close(self) -> None:
        return


def asked_fields(argv: Sequence[str]) -> list[str]:
    """The field list of a ``--query-gpu=`` argument."""
    return next(a for a in argv if a.startswith("--query-gpu=")).partition("=")[2].split(",")


UNITS = {
    "memory.total": "MiB", "memory.used": "MiB", "memory.reserved": "MiB", "utilization.gpu": "%",
    "power.draw": "W", "power.limit": "W", "clocks.current.sm": "MHz", "clocks.sm": "MHz",
}  # fmt: skip


def gpu_values(index: int, *, used: int = 0, count: int = 4) -> dict[str, str]:
    """A row of an RTX PRO 6000 by field name."""
    return {
        "timestamp": f"2026/07/03 22:11:09.{index:03d}",
        "count": str(count),
        "index": str(index),
        "uuid": f"GPU-{index:08x}-1111-2222-3333-444444444444",
        "pci.bus_id": f"00000000:{index + 1:02X}:00.0",
        "gpu_bus_id": f"00000000:{index + 1:02X}:00.0",
        "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "memory.total": "97887 MiB",
        "memory.reserved": "636 MiB",
        "memory.used": f"{used} MiB",
        "utilization.gpu": "3 %",
        "temperature.gpu": "26",
        "power.draw": "39.17 W",
        "power.limit": "600.00 W",
        "clocks.current.sm": "180 MHz",
        "clocks.sm": "180 MHz",
        "clocks_event_reasons.active": "0x0000000000000001",
        "clocks_throttle_reasons.active": "0x0000000000000001",
        "mig.mode.current": "[N/A]",
        "pstate": "P8",
    }


def header_line(fields: Sequence[str]) -> str:
    return ", ".join(f"{name} [{UNITS[name]}]" if name in UNITS else name for name in fields)


def row_line(fields: Sequence[str], values: dict[str, str]) -> str:
    return ", ".join(values[name] for name in fields)


def csv(fields: Sequence[str], rows: Sequence[dict[str, str]]) -> bytes:
    lines = [header_line(fields), *(row_line(fields, row) for row in rows)]
    return ("\n".join(lines) + "\n").encode()
