"""A session on a fresh rig in a box at top speed, with short limits and short cells."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from specdash.core.events import Event
from specdash.core.ports import Question
from specdash.core.settings import Candidate
from specdash.cycle.runner import Ask, Result
from specdash.demo.box import Box, start_box
from specdash.demo.faults import Fault
from specdash.hosts.options import SshOptions
from specdash.rig.schema import Rig
from specdash.rig.store import places
from specdash.session.session import RigSession
from specdash.session.wiring import Wiring

TOP_SPEED = 1000.0


@dataclass
class Answers:
    """Implements ``Decide``: says yes to the kinds it was told, and remembers what was asked."""

    yes: frozenset[str] = frozenset({"run-plan", "restore"})
    asked: list[Question] = field(default_factory=list)

    async def ask(self, question: Question) -> bool:
        self.asked.append(question)
        return question.kind in self.yes

    def kinds(self) -> list[str]:
        return [question.kind for question in self.asked]


@dataclass
class Bench:
    """One open session on one box, and what a test asks of it."""

    box: Box
    session: RigSession
    answers: Answers
    events: list[Event]
    state: Path

    async def cycle(
        self, steps: int | None = 4, *, concurrency: tuple[int, ...] = (1,), unattended: bool = True
    ) -> Result:
        candidate = None if steps is None else Candidate(steps)
        return await self.session.run_cycle(Ask(candidate, concurrency, unattended=unattended))

    def config(self) -> bytes:
        return Path(self.session.rig.config.path).read_bytes()

    def fault(self, *faults: Fault) -> None:
        self.box.set_faults(*faults)


Opened = Callable[..., Awaitable[Bench]]


@pytest.fixture
def user_dirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own directories are not touched."""
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    return tmp_path


@pytest.fixture
async def open_box(user_dirs: Path) -> AsyncIterator[Opened]:
    """Opens boxes that end with the test."""
    async with AsyncExitStack() as stack:

        async def opened(
            *faults: Fault, yes: tuple[str, ...] = ("run-plan", "restore"), **options: object
        ) -> Bench:
            return await stack.enter_async_context(_opened(faults, yes, user_dirs, options))

        yield opened


@asynccontextmanager
async def _opened(
    faults: tuple[Fault, ...], yes: tuple[str, ...], state: Path, options: dict[str, object]
) -> AsyncIterator[Bench]:
    steps = options.pop("steps", 1)
    assert isinstance(steps, int)
    async with await start_box(steps=steps, speed=TOP_SPEED, faults=faults) as box:
        rig = _quick(box.rig, options)
        answers = Answers(frozenset(yes))
        wiring = Wiring(rig, SshOptions(config_files=(box.ssh_config,)), os.environ)
        session = RigSession(wiring, decide=answers, places=places(os.environ), unattended=True)
        events: list[Event] = []
        wiring.hub.observe(events.append)
        await session.open()
        try:
            yield Bench(box, session, answers, events, state)
        finally:
            await session.close()


def _quick(rig: Rig, options: dict[str, object]) -> Rig:
    limits = replace(rig.limits, stop_s=6.0, grace_s=1.0, free_s=2.0, load_s=6.0)
    bench = replace(rig.bench, budget_s=0.7, output_tokens=48)
    settled = {"limits": limits, "bench": bench, "simulated": True, **options}
    return replace(rig, **settled)  # type: ignore[arg-type]
