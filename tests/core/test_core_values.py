"""Redaction, waiting, settings and the JSON of events."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.core.clock import DeadlinePassedError, wait_until
from specdash.core.events import CellMeasured, LogLine, QueueChanged, StageStarted, event_json
from specdash.core.records import Cell
from specdash.core.redact import MASK, Redactor
from specdash.core.settings import OFF, Candidate, Settings
from specdash.core.text import make_safe


class FakeClock:
    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return 1_000.0 + self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


async def test_wait_until_returns_the_value_as_soon_as_there_is_one() -> None:
    clock = FakeClock()

    async def probe() -> str | None:
        return "up" if clock.time >= 1.0 else None

    assert await wait_until(probe, clock=clock, deadline_s=5.0, every_s=0.5) == "up"
    assert clock.time == 1.0


async def test_wait_until_tries_at_least_once_and_ends_at_its_deadline() -> None:
    clock = FakeClock()
    tries = 0

    async def probe() -> None:
        nonlocal tries
        tries += 1

    with pytest.raises(DeadlinePassedError):
        await wait_until(probe, clock=clock, deadline_s=0.0)
    assert tries == 1
    with pytest.raises(DeadlinePassedError):
        await wait_until(probe, clock=clock, deadline_s=2.0, every_s=0.5)
    assert clock.time == 2.0


@pytest.mark.parametrize(
    "text",
    [
        "--api-key sk-12345",
        "--api-key=sk-12345",
        "--api-key 'sk-12345'",
        "HF_TOKEN=sk-12345",
        "Environment=API_KEY=sk-12345",
        "Authorization: Bearer sk-12345",
        "password: sk-12345",
        "nothing names it: sk-12345",
    ],
)
def test_a_secret_is_masked(text: str) -> None:
    assert "sk-12345" not in Redactor(["sk-12345"]).text(text)


def test_a_secret_is_masked_by_the_name_before_it_alone() -> None:
    redact = Redactor()
    assert "hunter2" not in redact.text("--api-key hunter2 --port 30000")
    assert "--port 30000" in redact.text("--api-key hunter2 --port 30000")
    assert redact.argv(["x", "--api-key", "hunter2", "--port", "1"]) == (
        "x",
        "--api-key",
        MASK,
        "--port",
        "1",
    )


@pytest.mark.parametrize(
    "text",
    [
        "--speculative-num-draft-tokens 5 --max-total-tokens 4096",
        "output_tokens: 256, max_total_num_tokens=2999808",
        "gen throughput (token/s): 39.33, #queue-req: 0",
        "prompt tokens: 12",
    ],
)
def test_what_only_sounds_like_a_secret_stays(text: str) -> None:
    assert Redactor().text(text) == text


@given(st.text(min_size=4), st.text(), st.text())
def test_a_known_secret_never_survives(secret: str, head: str, tail: str) -> None:
    if secret not in MASK:
        assert secret not in Redactor([secret]).text(head + secret + tail).replace(MASK, "\x00")


@pytest.mark.parametrize(
    ("settings", "short"),
    [
        (OFF, "off"),
        (Settings(num_steps=0), "off"),
        (Settings("EAGLE3", 3, 1, 4), "3/1/4"),
        (Settings(num_steps=4), "4"),
        (Settings(), "?"),
        (Settings(eagle_topk=1), "?/1"),
    ],
)
def test_short_settings(settings: Settings, short: str) -> None:
    assert settings.short() == short


def test_events_are_plain_json() -> None:
    events = [
        StageStarted(t=1.0, stage="load", deadline_s=5.0),
        CellMeasured(t=2.0, cell=Cell(concurrency=4)),
        LogLine(t=3.0, source="service", text=make_safe("x")),
        QueueChanged(t=4.0, queue=(Candidate(3),)),
    ]
    bodies = [json.loads(json.dumps(event_json(event))) for event in events]
    assert [body["event"] for body in bodies] == [
        "stage_started",
        "cell_measured",
        "log_line",
        "queue_changed",
    ]
    assert bodies[1]["cell"]["output_tok_s"] is None
    assert bodies[3]["queue"][0]["num_steps"] == 3
