"""A password that the operator gives on screen opens every connection and is found nowhere."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from specdash.core.clock import SystemClock, wait_until
from specdash.core.events import CellProgress, Event, LinkChanged, event_json
from specdash.core.ports import Question, SecretQuestion
from specdash.core.settings import Candidate
from specdash.cycle.runner import Ask
from specdash.demo.box import start_box
from specdash.hosts.options import SshOptions
from specdash.rig.store import places
from specdash.session import live
from specdash.session.session import RigSession
from specdash.session.wiring import Wiring

sys.path.insert(0, str(Path(__file__).parents[1] / "hosts"))

from ssh_loopback import Behaviour, Loopback, serve

SECRET = "s3cret-of-the-jump-host"


class Yes:
    async def ask(self, question: Question) -> bool:
        return True


class Operator:
    """Implements ``AskSecret``; ``answers`` are given in turn, the last one for good."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.asked: list[SecretQuestion] = []

    async def __call__(self, question: SecretQuestion) -> str | None:
        self.asked.append(question)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / ".ssh" / "known_hosts").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    return tmp_path


@asynccontextmanager
async def behind_a_jump_host(
    home: Path, operator: Operator
) -> AsyncIterator[tuple[RigSession, Loopback, list[Event]]]:
    """The rig in a box, reached by way of a server that wants a password."""
    async with (
        await start_box(speed=1000.0) as box,
        serve(home, Behaviour(password=SECRET)) as server,
    ):
        server.trust()
        text = box.ssh_config.read_text()
        blocks = text.replace("    User root\n", f"    User root\n    ProxyJump {server.target}\n")
        config = home / "jump_config"
        config.write_text(blocks)
        rig = replace(
            box.rig,
            engine=replace(box.rig.engine, tunnel="svc"),
            bench=replace(box.rig.bench, budget_s=0.7, output_tokens=48),
            simulated=True,
        )
        wiring = Wiring(rig, SshOptions(config_files=(config,), ask=operator), os.environ)
        session = RigSession(wiring, decide=Yes(), places=places(os.environ), unattended=True)
        events: list[Event] = []
        wiring.hub.observe(events.append)
        await session.open()
        try:
            yield session, server, events
        finally:
            await session.close()


def files_under(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def own_children() -> list[int]:
    me = os.getpid()
    return [
        pid
        for path in Path("/proc").iterdir()
        if (pid := int(path.name) if path.name.isdigit() else 0) and _parent(path) == me
    ]


def _parent(path: Path) -> int:
    try:
        return int((path / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


async def test_one_password_serves_all_connections_and_leaves_no_trace(home: Path) -> None:
    operator = Operator(SECRET)
    workers: list[bytes] = []

    def look(event: Event) -> None:
        if isinstance(event, CellProgress) and not workers:
            for pid in own_children():
                seen = b"".join(
                    Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")
                )
                if b"specdash.bench.worker" in seen:
                    workers.append(seen)

    async with behind_a_jump_host(home, operator) as (session, server, events):
        session._hub.observe(look)
        logins = server.behaviour.logins
        result = await session.run_cycle(Ask(None, (1,), unattended=True))
        assert result.record.outcome == "measured", result.error
        assert server.behaviour.logins > logins, "the worker has a connection of its own"
        plan = await session.plan(Candidate(4))
        documents = repr(events) + repr([event_json(event) for event in events])
        documents += repr(result) + repr(result.record.to_json()) + repr(plan) + repr(session)
    assert len(operator.asked) == 1, "asked once, whatever connects at the same time"
    (question,) = operator.asked
    assert (question.kind, question.attempt) == ("password", 1)
    assert question.subject == f"tester@127.0.0.1:{server.port}"
    assert SECRET not in documents
    assert workers
    assert not [seen for seen in workers if SECRET.encode() in seen]
    written = files_under(home)
    assert any(name.endswith(".jsonl") for name in written), "the journal"
    assert not [name for name, data in written.items() if SECRET.encode() in data]


async def test_a_wrong_password_is_asked_again_with_its_attempt(home: Path) -> None:
    operator = Operator("wrong-one", SECRET)
    async with behind_a_jump_host(home, operator) as (session, _, events):
        result = await session.run_cycle(Ask(None, (1,), unattended=True))
        assert result.record.outcome == "measured", result.error
    assert [question.attempt for question in operator.asked] == [1, 2]
    assert "wrong-one" not in repr(events)


async def test_without_a_password_the_link_is_refused_and_not_tried_over_and_over(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_FIRST_BACKOFF_S", 0.01)
    monkeypatch.setattr(live, "_LONGEST_BACKOFF_S", 0.01)
    operator = Operator(None)
    async with behind_a_jump_host(home, operator) as (session, server, events):
        result = await session.run_cycle(Ask(None, (1,), unattended=True))
        assert result.record.outcome == "failed"
        assert result.error is not None
        assert result.error.code == "permission-denied"
        await until(lambda: links(events) == {"svc": "refused", "node": "refused"})
        assert server.behaviour.logins <= 6, "refused logins are not tried over and over"
        operator.answers = [SECRET]
        result = await session.run_cycle(Ask(None, (1,), unattended=True))
        assert result.record.outcome == "measured", result.error
        await until(lambda: links(events) == {"svc": "up", "node": "up"})


def links(events: list[Event]) -> dict[str, str]:
    """The last word on each host."""
    return {event.host: event.state for event in events if isinstance(event, LinkChanged)}


async def until(condition: Callable[[], bool]) -> None:
    async def probe() -> bool | None:
        return condition() or None

    await wait_until(probe, clock=SystemClock(), deadline_s=20.0, every_s=0.02)
