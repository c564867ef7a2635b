"""The way back: after a failure or a cancel, bring the rig to a state that can be named."""

from __future__ import annotations

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


class WayBack:
    """Decides from what was done so far, and does no more than that needs."""

    def __init__(
        self, world: World, stages: StageRunner, progress: Progress, unattended: bool
    ) -> None:
        self._world = world
        self._stages = stages
        self._progress = progress
        self._unattended = unattended

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
        if self._unattended:
            return True
        return await self._world.decide.ask(
            Question(kind="restore", title=f"Start the service again with {word} {says}?")
        )

    async def _restart(self, present: Present, word: str, says: str) -> str:
        self._say("starting the service with the last good config")
        service = present.service
        tail = LogTail(self._world, on=True)
        forget = self._world.log.watch(tail.feed)
        try:
            started = await start(self._world, service, present.status, self._stages)
            await load(self._world, service, started, self._stages, tail)
        except (SpecdashError, DeadlinePassedError) as error:
            # Its supervisor may try again by itself: only its own word tells what is true now.
            status = await service.status()
            trying = f"{status.state}, and its supervisor keeps trying"
            state = trying if status.running else "stopped"
            return f"{state}, config says {word} {says}; it did not come up again: {error}"
        finally:
            forget()
        return f"running, {word} {says}, restored"

    def _say(self, text: str) -> None:
        self._world.emit(
            LogLine(t=self._world.clock.wall(), source="specdash", text=make_safe(text))
        )
