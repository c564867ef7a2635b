"""What was measured is there at the next start, whole."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from specdash.core.records import (
    Cell,
    CycleRecord,
    Failure,
    RequestCounts,
    Spread,
    StageRecord,
)
from specdash.core.settings import Candidate, Capacity, Settings
from specdash.history.codec import cycle_from
from specdash.history.store import History, HistoryError

RECORD = CycleRecord(
    rig="qwen",
    simulated=True,
    candidate=Settings("EAGLE3", 4, 1, 5, "/models/draft", True),
    asked=Candidate(4, 1, 5, "breaks the plateau?"),
    resolved=Settings("EAGLE3", 4, 1, 5, "/models/draft", True),
    stages=(StageRecord("stop", "done", 2.5, "inactive"), StageRecord("load", "failed", 9.0, "")),
    capacity=Capacity(17, 300_000),
    gpu_idle_mib=(4, 4),
    gpu_peak_mib=(90_000, 90_001),
    cells=(
        Cell(
            concurrency=16,
            output_tok_s=812.5,
            output_tok_s_low=800.0,
            output_tok_s_high=825.0,
            ttft_ms=Spread(50.0, 49.0, 60.0, 70.0),
            accept_length=2.5,
            accept_histogram=(1, 2, 3),
            requests=RequestCounts(15, 1, {"http-500": 1}),
            flags=("queued",),
        ),
    ),
    outcome="failed",
    failure=Failure("load", "Out of memory.", "Lower it.", ("torch.OutOfMemoryError",)),
    end_state="running, steps 3",
    started_at=1_800_000_000.5,
    note="breaks the plateau?",
)


def test_a_document_reads_back_as_the_same_record() -> None:
    assert cycle_from(RECORD.to_json()) == RECORD


async def test_a_cycle_is_there_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "history.sqlite3"
    stored = await History(path).add(RECORD)
    assert stored.id is not None
    (again,) = await History(path).of_rig("qwen")
    assert again == stored
    assert await History(path).of_rig("other") == ()


async def test_order_is_oldest_first_and_the_limit_keeps_the_newest(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite3")
    ids = [(await history.add(RECORD)).id for _ in range(4)]
    assert [record.id for record in await history.of_rig("qwen", limit=3)] == ids[1:]


async def test_two_sessions_may_start_together(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite3"
    await asyncio.gather(*(History(path).add(RECORD) for _ in range(8)))
    assert len(await History(path).of_rig("qwen")) == 8


async def test_a_broken_or_newer_file_is_a_typed_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite3"
    broken.write_bytes(b"not a database, at all" * 100)
    with pytest.raises(HistoryError, match="cannot be used"):
        await History(broken).of_rig("qwen")
    newer = tmp_path / "newer.sqlite3"
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(HistoryError, match="newer specdash"):
        await History(newer).add(RECORD)
