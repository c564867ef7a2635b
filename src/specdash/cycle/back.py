"""The way back: after a failure or a cancel, bring the rig to a state that can be named."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from specdash.core.clock import DeadlinePassedError
from specdash.core.errors import SpecdashError
from specdash.core.events import LogLine
from specdash.core.ports import Question
from specdash.core.settings import Settings
from specdash.core.text import make_safe
from specdash.cycle.config import put_back, reload_if_due
from specdash.cycle.down import Before, is_free, reap, stop
from specdash.cycle.prepare import Present
from specdash.cycle.progress import Progress, StageRunner
from specdash.cycle.up import LogTail, load, start
from specdash.cycle.world import World

_T = TypeVar("_T")


class WayBack:
    """Decides from what was done so far, and does no more than that needs."""

    def __init__(
        self, world: World, stages: StageRunner, progress: Progress, unattended: bool
    ) -> None:
        self._world = world
        self._stages = stages
        self._progress = progress
        self._unattended = unattended
        self._optional: asyncio.Future[Any] | None = None
        self._hurried = False

    def hurry(self) -> None:
        """The operator cancels the way back too: leave out what the rig can do without, which
        is the question and the wait for the old service. The config is put back all the same."""
        self._hurried = True
        if self._optional is not None:
            self._optional.cancel()

    async def go(
        self,
        present: Present,
        before: Before | None,
        resolved: Settings | None,
        written: bytes,
    ) -> str:
        """Return the named state the rig is left in."""
        word = self._world.engine.knob_word
        old = (present.info.settings or present.reading.settings).short()
        progress = self._progress
        if not progress.stopping:
            if present.status.running:
                return f"running, {word} {old}, untouched"
            return f"{present.status.state}, config says {word} {old}, untouched"
        if progress.verified:
            return f"running, {word} {(resolved or Settings()).short()}"
        await self._world.journal.write("way-back", written=progress.written)
        if progress.starting:
            self._say("stopping the service that did not come up")
            await stop(self._world, present.service, await present.service.status(), self._stages)
            if before is not None:
                await reap(self._world, before, self._stages)
        if progress.written:
            self._say("putting the last good config back")
            await put_back(present.targets, written)
            await reload_if_due(present.service)
        says = present.reading.settings.short()
        stopped = f"stopped, config says {word} {says}"
        if not present.status.running:
            return stopped
        if before is not None and not await is_free(self._world, before):
            return f"{stopped}, the GPUs are not free"
        if not await self._may_restart(word, says):
            return stopped
        return await self._restart(present, word, says)

    async def _may_restart(self, word: str, says: str) -> bool:
        if self._hurried:
            return False
        if self._unattended:
            return True
        question = Question(kind="restore", title=f"Start the service again with {word} {says}?")
        return bool(await self._unless_hurried(self._world.decide.ask(question)))

    async def _restart(self, present: Present, word: str, says: str) -> str:
        self._say("starting the service with the last good config")
        try:
            up = await self._unless_hurried(self._started_and_loaded(present))
        except (SpecdashError, DeadlinePassedError) as error:
            return f"{await self._tries(present, word, says)}; it did not come up again: {error}"
        if up is None:
            return f"{await self._tries(present, word, says)}; not waited for until it was ready"
        return f"running, {word} {says}, restored"

    async def _started_and_loaded(self, present: Present) -> bool:
        service = present.service
        tail = LogTail(self._world, on=True)
        forget = self._world.log.watch(tail.feed)
        try:
            started = await start(self._world, service, present.status, self._stages)
            await load(self._world, service, started, self._stages, tail)
        finally:
            forget()
        return True

    async def _tries(self, present: Present, word: str, says: str) -> str:
        """Its supervisor may try again by itself: only its own word tells what is true now."""
        status = await present.service.status()
        state = f"started, {status.state}" if status.running else "stopped"
        return f"{state}, config says {word} {says}"

    async def _unless_hurried(self, work: Coroutine[Any, Any, _T]) -> _T | None:
        """What ``work`` returns; None where :meth:`hurry` ended it."""
        task = asyncio.ensure_future(work)
        self._optional = task
        try:
            await asyncio.wait({task})
        finally:
            self._optional = None
        return None if task.cancelled() else task.result()

    def _say(self, text: str) -> None:
        self._world.emit(
            LogLine(t=self._world.clock.wall(), source="specdash", text=make_safe(text))
        )
