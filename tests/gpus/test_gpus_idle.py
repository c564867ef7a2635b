"""Idle levels, and what is still held by whom."""

from __future__ import annotations

import pytest

from specdash.core.gpu import Gpu, GpuProcess, Problem, Snapshot
from specdash.gpus.idle import IdleLevels, IdleObserver, freed, missing, selected
from specdash.rig.schema import GpusSpec


def gpus(*used: int | None) -> Snapshot:
    return Snapshot(
        "s",
        tuple(
            Gpu(index=i, uuid=f"GPU-{i}", memory_used_mib=mib, temperature_c=30)
            for i, mib in enumerate(used)
        ),
    )


def test_selection_by_uuid_then_index_then_all() -> None:
    snapshot = gpus(1, 2, 3)
    assert [g.index for g in selected(snapshot, GpusSpec("h", uuids=("GPU-2", "GPU-9")))] == [2]
    assert [g.index for g in selected(snapshot, GpusSpec("h", indices=(0, 1)))] == [0, 1]
    assert len(selected(snapshot, GpusSpec("h"))) == len(selected(snapshot, None)) == 3
    assert missing(snapshot, GpusSpec("h", uuids=("GPU-2", "GPU-9"))) == ("GPU-9",)
    assert missing(snapshot, GpusSpec("h", indices=(2, 7))) == ("index 7",)


def test_levels_given_seen_or_default() -> None:
    observer = IdleObserver()
    for used in (500, 500, 501, 70000, 700, 701, 700):
        observer.observe(gpus(used), rig_running=False)
    gpu = gpus(0).gpus[0]
    assert observer.levels(None).of(gpu) == 501 + 64
    assert observer.levels(GpusSpec("h", idle_mib=2000)).of(gpu) == 2000
    assert IdleLevels().of(gpu) == 1024


def test_readings_while_the_rig_runs_teach_nothing() -> None:
    observer = IdleObserver()
    for _ in range(5):
        observer.observe(gpus(3), rig_running=True)
    observer.observe(gpus(3), rig_running=False)
    assert observer.lowest == {}


def test_a_reading_that_still_falls_is_not_stable() -> None:
    observer = IdleObserver()
    for used in (90000, 60000, 30000, 4, 4):
        observer.observe(gpus(used), rig_running=False)
    assert observer.lowest == {}
    observer.observe(gpus(4), rig_running=False)
    assert observer.lowest == {"GPU-0": 4}


def test_freed_names_what_is_held_and_by_whom() -> None:
    held_by = GpuProcess("GPU-1", 812, "sglang::scheduler_TP1", "root", 61200)
    snapshot = Snapshot("s", gpus(4, 61204).gpus, (held_by,))
    (held,) = freed(snapshot, IdleLevels(), None)
    assert (held.why, held.level_mib, held.processes) == ("memory", 1024, (held_by,))
    assert held.sentence() == (
        "GPU 1 still holds 61204 MiB (idle is 1024): sglang::scheduler_TP1 (pid 812, root, 61200 MiB)"
    )
    assert freed(gpus(4, 1024), IdleLevels(), None) == ()
    assert freed(snapshot, IdleLevels(), GpusSpec("h", indices=(0,))) == ()


def test_holders_the_operator_keeps_raise_the_level() -> None:
    kept = GpuProcess("GPU-0", 7, "embedder", "bob", 9000)
    snapshot = Snapshot("s", gpus(9800).gpus, (kept,))
    assert len(freed(snapshot, IdleLevels(), None)) == 1
    assert freed(snapshot, IdleLevels(), None, kept_pids={7}) == ()


def test_unknown_memory_is_free_when_no_process_of_the_rig_is_there() -> None:
    process = GpuProcess("GPU-0", 7, "sglang::scheduler", None, None)
    busy = Snapshot("s", gpus(None).gpus, (process,))
    assert [held.why for held in freed(busy, IdleLevels(), None)] == ["process"]
    assert freed(busy, IdleLevels(), None, is_rig_process=lambda p: False) == ()
    assert freed(gpus(None), IdleLevels(), None) == ()


@pytest.mark.parametrize(
    ("snapshot", "why"),
    [
        (Snapshot("s", (Gpu(index=0, state="lost"),)), "lost"),
        (Snapshot("s", (Gpu(index=0, state="unknown"),)), "unknown"),
        (Snapshot("s", gpus(None).gpus, (), (Problem("no-driver", "m", "r"),)), "unknown"),
        (Snapshot("s"), "missing"),
        (Snapshot("s", (), (), (Problem("no-command", "m", "r"),)), "missing"),
    ],
)
def test_what_cannot_be_read_is_never_free(snapshot: Snapshot, why: str) -> None:
    held = freed(snapshot, IdleLevels(), None)
    assert [one.why for one in held] == [why]
    assert held[0].sentence()


def test_a_rig_gpu_that_is_not_listed_is_not_free() -> None:
    (held,) = freed(gpus(1), IdleLevels(), GpusSpec("h", uuids=("GPU-0", "GPU-5")))
    assert (held.why, held.sentence()) == ("missing", "GPU GPU-5 is not listed")
