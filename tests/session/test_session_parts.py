"""The hub, the journal, the flag memory and the GPU feed, each alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from specdash.core.clock import SystemClock
from specdash.core.errors import WorkFailedError
from specdash.core.events import (
    CycleStarted,
    Event,
    GpusSampled,
    LinkChanged,
    LogLine,
    StageStarted,
)
from specdash.core.gpu import Gpu, GpuProcess, Snapshot
from specdash.core.redact import Redactor
from specdash.core.settings import Candidate, Resolution, Settings
from specdash.core.text import make_safe
from specdash.rig.schema import GpusSpec
from specdash.session.feeds import GpuReadings
from specdash.session.hub import Hub
from specdash.session.journal import FileJournal
from specdash.session.memory import FileFlagMemory


async def _first(hub: Hub, count: int) -> list[Event]:
    seen: list[Event] = []
    async for event in hub.read():
        seen.append(event)
        if len(seen) == count:
            break
    return seen


def _sample(t: float, used: int) -> GpusSampled:
    return GpusSampled(t=t, snapshot=_snapshot(used))


def _snapshot(used: int, *processes: GpuProcess) -> Snapshot:
    return Snapshot(
        source="node",
        gpus=(Gpu(index=0, uuid="GPU-0", memory_total_mib=97887, memory_used_mib=used),),
        processes=processes,
    )


async def test_a_late_reader_first_gets_what_still_holds() -> None:
    hub = Hub()
    hub.publish(LinkChanged(t=1, host="svc", state="up"))
    hub.publish(LogLine(t=2, source="service", text=make_safe("gone")))
    hub.publish(_sample(3, 10))
    hub.publish(_sample(4, 20))
    hub.publish(
        CycleStarted(
            t=5,
            candidate=Candidate(3),
            resolution=Resolution(Candidate(3), Settings()),
            concurrency=(1,),
        )
    )
    hub.publish(StageStarted(t=6, stage="stop"))
    seen = await _first(hub, 4)
    assert [type(event).__name__ for event in seen] == [
        "LinkChanged",
        "GpusSampled",
        "CycleStarted",
        "StageStarted",
    ]
    assert seen[1].t == 4


async def test_a_reader_that_never_reads_is_bounded() -> None:
    hub = Hub()
    reader = hub.read()
    task = asyncio.ensure_future(anext(reader))
    await asyncio.sleep(0)
    for t in range(30_000):
        hub.publish(LogLine(t=t, source="service", text=make_safe("x")))
    await task
    assert (await anext(reader)).t >= 9_000
    await reader.aclose()


async def test_the_journal_is_on_disk_and_holds_no_secret(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path, "qwen", SystemClock(), Redactor(["sk-12345"]))
    await journal.write("stop", argv=["x", "--api-key", "sk-12345"], settings=Settings())
    text = journal.path.read_text(encoding="utf-8")
    assert "sk-12345" not in text
    entry = json.loads(text)
    assert entry["kind"] == "stop"
    assert entry["settings"]["num_steps"] is None
    assert journal.path.parent.stat().st_mode & 0o077 == 0


async def test_a_journal_that_cannot_be_written_stops_the_act(tmp_path: Path) -> None:
    (tmp_path / "qwen").write_text("a file in the way")
    journal = FileJournal(tmp_path, "qwen", SystemClock(), Redactor())
    with pytest.raises(WorkFailedError, match="cannot be written"):
        await journal.write("stop")


def test_removed_flags_are_kept(tmp_path: Path) -> None:
    memory = FileFlagMemory(tmp_path / "deep" / "qwen.json")
    assert memory.load() is None
    memory.save({"pieces": [1]})
    assert FileFlagMemory(tmp_path / "deep" / "qwen.json").load() == {"pieces": [1]}
    assert (tmp_path / "deep" / "qwen.json").stat().st_mode & 0o077 == 0
    (tmp_path / "deep" / "qwen.json").write_text("{broken")
    with pytest.raises(WorkFailedError, match="cannot be read"):
        memory.load()


async def test_fresh_waits_for_the_stream_and_asks_only_where_it_is_silent() -> None:
    asked = 0

    async def once() -> Snapshot:
        nonlocal asked
        asked += 1
        return _snapshot(7)

    feed = GpuReadings(once, None, lambda _: False)
    waiting = asyncio.ensure_future(feed.fresh())
    await asyncio.sleep(0)
    feed.push(_snapshot(5))
    assert (await waiting).gpus[0].memory_used_mib == 5
    assert asked == 0


async def test_only_readings_with_nothing_running_teach_the_idle_level() -> None:
    async def once() -> Snapshot:
        return _snapshot(0)

    quiet = False
    feed = GpuReadings(once, GpusSpec("node"), lambda _: quiet)
    gpu = _snapshot(0).gpus[0]
    for _ in range(5):
        feed.push(_snapshot(61_000))
    assert feed.idle_levels().of(gpu) == 1024
    quiet = True
    for _ in range(5):
        feed.push(_snapshot(400))
    assert 400 <= feed.idle_levels().of(gpu) < 1024
