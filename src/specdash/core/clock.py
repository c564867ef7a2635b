"""Time as an argument, so that tests need not wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

_T = TypeVar("_T")


class Clock(Protocol):
    """Monotonic seconds for durations, wall seconds for records, and waiting."""

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; cancellable."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class DeadlinePassedError(TimeoutError):
    """A condition did not come true in time."""


async def wait_until(
    probe: Callable[[], Awaitable[_T | None]],
    *,
    clock: Clock,
    deadline_s: float,
    every_s: float = 0.25,
) -> _T:
    """Poll ``probe`` until it returns something other than None; return that.

    Raises DeadlinePassedError after ``deadline_s`` seconds. The probe always runs at least once.
    """
    end = clock.now() + deadline_s
    while True:
        value = await probe()
        if value is not None:
            return value
        if clock.now() >= end:
            raise DeadlinePassedError
        await clock.sleep(every_s)
