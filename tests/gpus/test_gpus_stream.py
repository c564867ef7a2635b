"""The live stream: first picture, rounds, failures, falling back, lateness."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from gpus_helpers import (
    FakeHost,
    Reply,
    TurnClock,
    asked_fields,
    csv,
    gpu_values,
    header_line,
    row_line,
)

from specdash.core.gpu import Snapshot
from specdash.gpus.rounds import Rounds
from specdash.gpus.stream import watch
from specdash.hosts.protocol import LinkLostError

APPS = (
    b"gpu_uuid, pid, used_gpu_memory [MiB], process_name\n"
    b"GPU-00000001-1111-2222-3333-444444444444, 812, 61200 MiB, sglang::scheduler_TP0\n"
)


def driver(argv: tuple[str, ...], *, used: int = 1) -> Reply:
    if any(word.startswith("--query-gpu=") for word in argv):
        return csv(asked_fields(argv), [gpu_values(i, used=used, count=2) for i in range(2)])
    if any(word.startswith("--query-compute-apps=") for word in argv):
        return APPS
    return (127, b"") if argv[0] == "stdbuf" else b""


class Box(FakeHost):
    """A host whose loop prints a round every half second of its clock."""

    def __init__(self, replies=driver, stream=None) -> None:  # type: ignore[no-untyped-def]
        super().__init__(replies, stream or self.rounds)
        self.clock = TurnClock()

    async def rounds(self, argv: tuple[str, ...], start: int = 100) -> AsyncIterator[bytes]:
        fields = asked_fields(argv)
        yield header_line(fields).encode()
        used = start
        while True:
            for index in range(2):
                yield row_line(fields, gpu_values(index, used=used, count=2)).encode()
            used += 1
            await self.clock.sleep(0.5)


async def take(host: Box, count: int) -> list[Snapshot]:
    taken: list[Snapshot] = []
    async with aclosing(watch(host, interval_ms=500, clock=host.clock)) as snapshots:
        async for snapshot in snapshots:
            taken.append(snapshot)
            if len(taken) == count:
                break
    return taken


def used(snapshot: Snapshot) -> list[int | None]:
    return [gpu.memory_used_mib for gpu in snapshot.gpus]


async def test_the_first_picture_is_a_query_the_next_are_rounds() -> None:
    host = Box()
    taken = await take(host, 5)
    assert host.ran[0][-1] == "--format=csv"
    assert all(a == b and (a or 0) >= 100 for a, b in (used(s) for s in taken[1:]))
    (argv,) = host.streamed
    assert argv[-2:] == ("-lms", "500")
    assert argv[0] == "nvidia-smi"  # no stdbuf on this host


async def test_stdbuf_is_used_where_it_is_there() -> None:
    host = Box(lambda argv: b"ok" if argv[0] == "stdbuf" else driver(argv))
    await take(host, 3)
    assert host.streamed[0][:3] == ("stdbuf", "-oL", "nvidia-smi")


async def test_a_late_reader_gets_the_newest_round_only() -> None:
    host = Box()
    async with aclosing(watch(host, clock=host.clock)) as snapshots:
        seen: list[int] = []
        async for snapshot in snapshots:
            seen.append(used(snapshot)[0] or 0)
            if len(seen) == 3:
                break
            await host.clock.sleep(10.0)
    assert seen[-1] - seen[-2] > 5


async def test_holders_come_beside_the_rows() -> None:
    host = Box()
    taken = await take(host, 30)
    assert [p.pid for p in taken[-1].processes] == [812]


async def test_holders_that_hang_do_not_delay_rows() -> None:
    class Hanging(Box):
        async def run(self, argv, *, timeout_s=30.0, stdin=None):  # type: ignore[no-untyped-def]
            if any(word.startswith("--query-compute-apps=") for word in argv):
                await asyncio.Event().wait()
            return await super().run(argv, timeout_s=timeout_s, stdin=stdin)

    taken = await take(Hanging(), 20)
    assert (used(taken[-1])[0] or 0) > 100
    assert taken[-1].processes == ()


async def test_a_stream_that_ends_is_started_again_after_a_pause() -> None:
    async def three_rounds(argv: tuple[str, ...]) -> AsyncIterator[bytes]:
        count = 0
        async for line in host.rounds(argv, start=100 * len(host.streamed)):
            yield line
            count += 1
            if count == 7:
                return

    host = Box(driver, three_rounds)
    taken = await take(host, 40)
    assert len(host.streamed) == 3  # then polling is steadier
    assert 2.0 in host.clock.slept
    assert used(taken[-1]) == [1, 1]


async def test_a_refused_loop_is_polled() -> None:
    async def refuses(argv: tuple[str, ...]) -> AsyncIterator[bytes]:
        yield b"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help."

    host = Box(driver, refuses)
    taken = await take(host, 6)
    assert [used(snapshot) for snapshot in taken] == [[1, 1]] * 6
    assert len(host.streamed) == 1


async def test_a_silent_pipe_is_polled() -> None:
    async def buffered(argv: tuple[str, ...]) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    host = Box(driver, buffered)
    assert len(await take(host, 6)) == 6
    assert len(host.streamed) == 1


async def test_rounds_that_arrive_in_blocks_are_polled() -> None:
    async def blocks(argv: tuple[str, ...]) -> AsyncIterator[bytes]:
        fields = asked_fields(argv)
        yield header_line(fields).encode()
        while True:
            for turn in range(6):
                for index in range(2):
                    yield row_line(fields, gpu_values(index, used=turn, count=2)).encode()
                await asyncio.sleep(0)
            await host.clock.sleep(3.0)

    host = Box(driver, blocks)
    taken = await take(host, 40)
    assert used(taken[-1]) == [1, 1]
    assert len(host.streamed) == 1


async def test_a_driver_that_stops_answering_is_said_once_and_waited_for() -> None:
    release = asyncio.Event()

    async def stalls(argv: tuple[str, ...]) -> AsyncIterator[bytes]:
        count = 0
        async for line in host.rounds(argv):
            yield line
            count += 1
            if count == 5:
                await release.wait()

    host = Box(driver, stalls)
    seen: list[Snapshot] = []
    async with aclosing(watch(host, clock=host.clock)) as snapshots:
        async for snapshot in snapshots:
            seen.append(snapshot)
            if [p.code for p in snapshot.problems] == ["no-driver"]:
                assert snapshot.gpus == ()
                release.set()
            elif release.is_set():
                break
    assert len(host.streamed) == 1
    assert used(seen[-1])[0] is not None


async def test_a_gpu_that_falls_off_in_mid_stream() -> None:
    async def falls(argv: tuple[str, ...]) -> AsyncIterator[bytes]:
        fields = asked_fields(argv)
        yield header_line(fields).encode()
        for turn in range(1000):
            for index in range(2 if turn < 2 else 1):
                yield row_line(fields, gpu_values(index, used=turn, count=2)).encode()
            await host.clock.sleep(0.5)

    host = Box(driver, falls)
    taken = await take(host, 8)
    last = taken[-1]
    assert [(gpu.index, gpu.state) for gpu in last.gpus] == [(0, "ok"), (1, "lost")]
    assert last.gpus[1].memory_used_mib is None
    assert last.gpus[1].memory_total_mib == 97887
    assert [problem.code for problem in last.problems] == ["gpu-lost"]


@pytest.mark.parametrize("listed", [b"0000:01:00.0\n0000:02:00.0\n", b""])
async def test_a_lost_gpu_that_hides_the_others_is_left_out_and_named(listed: bytes) -> None:
    broken = False

    def breaks(argv: tuple[str, ...]) -> Reply:
        if argv[0] == "ls":
            return listed
        if broken and any(word.startswith("--query-gpu=") for word in argv):
            if "-i" not in argv:
                return (
                    255,
                    b"Unable to determine the device handle for GPU0000:02:00.0: Unknown Error\n",
                )
            return csv(asked_fields(argv), [gpu_values(0, used=3, count=2)])
        return driver(argv)

    async def stream(argv: tuple[str, ...]) -> AsyncIterator[bytes]:
        nonlocal broken
        fields = asked_fields(argv)
        yield header_line(fields).encode()
        if "-i" in argv:
            for turn in range(1000):
                yield row_line(fields, gpu_values(0, used=50 + turn, count=2)).encode()
                await host.clock.sleep(0.5)
        broken = True
        yield b"Unable to determine the device handle for GPU0000:02:00.0: Unknown Error"

    host = Box(breaks, stream)
    taken = await take(host, 6)
    first, second = taken[-1].gpus
    assert (first.index, first.state) == (0, "ok")
    assert (first.memory_used_mib or 0) >= 50
    assert (second.index, second.state, second.memory_used_mib) == (1, "lost", None)
    assert {problem.code for problem in taken[-1].problems} == {"gpu-lost"}


async def test_a_lost_link_empties_the_picture_and_comes_back() -> None:
    link = {"up": True}

    def flaky(argv: tuple[str, ...]) -> Reply:
        return driver(argv) if link["up"] else LinkLostError("gone")

    async def stream(argv: tuple[str, ...]) -> AsyncIterator[bytes]:
        link["up"] = False
        raise LinkLostError("gone")
        yield b""

    host = Box(flaky, stream)
    seen: list[Snapshot] = []
    async with aclosing(watch(host, clock=host.clock)) as snapshots:
        async for snapshot in snapshots:
            seen.append(snapshot)
            if not snapshot.gpus:
                assert snapshot.problems == ()
                link["up"] = True
            elif len(seen) > 2:
                break
    assert [bool(snapshot.gpus) for snapshot in seen[:2]] == [True, False]


@pytest.mark.parametrize(
    ("reply", "code"),
    [((127, b""), "no-command"), ((6, b"No devices were found\n"), "no-devices")],
)
async def test_a_host_without_gpus_is_asked_again_ever_more_seldom(reply: Reply, code: str) -> None:
    host = Box(lambda argv: reply)
    taken = await take(host, 8)
    assert {problem.code for snapshot in taken for problem in snapshot.problems} == {code}
    assert host.clock.slept[:5] == [1.0, 2.0, 5.0, 10.0, 20.0]


async def test_a_fault_of_our_own_is_not_hidden() -> None:
    def bug(argv: tuple[str, ...]) -> Reply:
        return ZeroDivisionError("bug")

    with pytest.raises(ZeroDivisionError):
        await take(Box(bug), 1)


async def test_leaving_ends_the_stream_and_every_task() -> None:
    ended = asyncio.Event()

    async def stream(argv: tuple[str, ...]) -> AsyncIterator[bytes]:
        try:
            async for line in host.rounds(argv):
                yield line
        finally:
            ended.set()

    before = asyncio.all_tasks()
    host = Box(driver, stream)
    await take(host, 4)
    await asyncio.sleep(0)
    assert ended.is_set()
    assert asyncio.all_tasks() == before


def test_a_round_is_complete_by_its_count_without_waiting_for_the_next() -> None:
    rounds = Rounds()
    fields = ("count", "index", "uuid", "memory.used")
    assert rounds.feed(header_line(fields)) is None
    rows = [row_line(fields, gpu_values(i, used=i, count=3)) for i in range(3)]
    results = [rounds.feed(row) for row in rows]
    assert results[:2] == [None, None]
    assert results[2] is not None
    assert len(results[2].readings) == 3


def test_indices_that_moved_with_a_reboot_are_no_lost_gpus() -> None:
    rounds = Rounds()
    fields = ("count", "index", "uuid", "memory.used")
    rounds.feed(header_line(fields))
    for order in ((0, 1), (1, 0)):
        parsed = None
        for place, gpu in enumerate(order):
            parsed = rounds.feed(row_line(fields, gpu_values(gpu, count=2) | {"index": str(place)}))
        rounds.start()
        rounds.feed(header_line(fields))
        assert parsed is not None
        assert [reading.fault for reading in parsed.readings] == ["", ""]
