"""The way back: after a failure or a cancel, bring the rig to a state that can be named."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from specdash.core.clock import DeadlinePassedError, wait_until
from specdash.core.errors import SpecdashError, UnreachableError
from specdash.core.events import LogLine
from specdash.core.ports import Question
from specdash.core.settings import Settings
from specdash.core.text import make_safe
from specdash.cycle.config import living, put_back, reload_if_due
from specdash.cycle.down import Before, is_free, reap, stop
from specdash.cycle.prepare import Present
from specdash.cycle.progress import Progress, StageRunner
from specdash.cycle.up import LogTail, load, start
from specdash.cycle.world import World
from specdash.services.protocol import Service
from specdash.services.registry import service_for

_T = TypeVar("_T")

_RECONNECT_S = 30.0


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
        present, before = await self._reconnected(present, before)
        now = await present.service.status()
        if progress.starting:
            self._say("stopping the service that did not come up")
            await stop(self._world, present.service, now, self._stages)
            if before is not None:
                await reap(self._world, before, self._stages)
        elif now.state == "active" and now.invocation == present.status.invocation:
            # The link may have been lost before the stop reached the supervisor.
            return f"running, {word} {old}, untouched"
        elif now.running:
            await stop(self._world, present.service, now, self._stages)
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

    async def _reconnected(
        self, present: Present, before: Before | None
    ) -> tuple[Present, Before | None]:
        """The same rig through connections that live: a lost one may be why we are here.

        Raises UnreachableError where the host does not come back in time.
        """
        world = self._world
        spec = world.rig.service
        lost: list[UnreachableError] = []

        async def reached() -> Service | None:
            try:
                return service_for(spec, await world.hosts.get(spec.host))
            except UnreachableError as error:
                lost.append(error)
                return None

        try:
            service = await wait_until(
                reached, clock=world.clock, deadline_s=_RECONNECT_S, every_s=1.0
            )
        except DeadlinePassedError:
            raise lost[-1] from None
        targets = tuple(
            [replace(target, host=await living(world, target.host)) for target in present.targets]
        )
        present = replace(present, service=service, targets=targets)
        return present, None if before is None else replace(before, service=service)

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
