"""The box's parts on their own: unit files, flags, journal, GPU memory, the batch, HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.demo.engine.batch import Batch, Request
from specdash.demo.engine.flags import IllegalError, parse, tree_overflows
from specdash.demo.engine.http import Ask, HttpServer
from specdash.demo.faults import Fault, FaultSwitch
from specdash.demo.journal import Journal, Match, render
from specdash.demo.machine import RELEASE_S, Machine, Proc
from specdash.demo.model import Shape, accept_length
from specdash.demo.programs.analyze import verify
from specdash.demo.programs.ps import _format
from specdash.demo.units import (
    Unit,
    UnitError,
    command,
    environment_file,
    logical_lines,
    read_into,
    span_seconds,
    split_words,
)

# Unit files


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/a b c", ["/a", "b", "c"]),
        ("/a 'b c' \"d e\"f", ["/a", "b c", "d ef"]),
        (r"/a b\x41\t\s", ["/a", "bA\t "]),
        ("/a --x 3 # old", ["/a", "--x", "3", "#", "old"]),
        ("/a '{\"k\": 3}'", ["/a", '{"k": 3}']),
        ("/a ''", ["/a", ""]),
    ],
)
def test_words_of_a_command(text: str, words: list[str]) -> None:
    assert split_words(text) == words


def test_an_open_quote_is_an_error() -> None:
    with pytest.raises(UnitError, match="Unbalanced"):
        split_words("/a 'b")


def test_variables_split_or_stay_whole() -> None:
    env = {"FLAGS": "-x 1", "DIR": "/m o"}
    argv = command("-/bin/a $FLAGS ${DIR}/w $$HOME %n $NONE", env, {"n": "u.service"})
    assert argv == ["/bin/a", "-x", "1", "/m o/w", "$HOME", "u.service"]


def test_continuations_drop_comments_and_join_with_a_space() -> None:
    text = "A=1 \\\n  # no\n  2\n; gone\nB=3"
    assert [line for _, line in logical_lines(text)] == ["A=1    2", "B=3"]


def test_later_files_win_and_an_empty_value_clears() -> None:
    unit = Unit()
    read_into(unit, "[Service]\nExecStart=/bin/a\nRestart=no\nColour=red\n", "u")
    read_into(unit, "[Service]\nExecStart=\nExecStart=/bin/b\nRestart=always\n", "d")
    assert unit.all("Service", "ExecStart") == ["/bin/b"]
    assert unit.last("Service", "Restart") == "always"
    assert any("Unknown key name 'Colour'" in line for line in unit.complaints)


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("[Service]\nExecStart=/bin/sh -c true\n", False),
        ("[Service]\nType=simple\n", True),
        ("[Service]\nExecStart=/no/such/program\n", True),
        ("[Service]\nExecStart=/bin/sh 'x\n", True),
        ("[Service]\nExecStart=/bin/sh\nExecStart=/bin/sh\n", True),
        ("[Service\nExecStart=/bin/sh\n", True),
    ],
)
def test_verify(text: str, bad: bool) -> None:
    complaints, wrong = verify(text, "/x/u.service")
    assert wrong is bad
    assert bool(complaints) is bad


@given(st.text())
def test_no_text_breaks_the_unit_reader(text: str) -> None:
    unit = Unit()
    read_into(unit, text, "u")
    read_into(unit, "[Service]\nExecStart=" + text.replace("\n", " "), "u")
    verify(text, "u.service")


def test_environment_files_and_spans() -> None:
    assert environment_file("A=1\n# no\nB='x y'\nC=a\\\nb\n") == {"A": "1", "B": "x y", "C": "ab"}
    assert span_seconds("1min 30s", 0) == 90
    assert span_seconds("infinity", 0) == float("inf")
    assert span_seconds("", 7) == 7


# Flags

SPEC = "--speculative-algorithm EAGLE3 --speculative-draft-model-path /d"
DRAFTS = "--speculative-num-draft-tokens"


def engine(words: str) -> list[str]:
    return ["--model-path", "/m", *words.split()]


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        ("", (0, 1, 0)),
        (SPEC, (3, 1, 4)),
        (f"{SPEC} --speculative-num-steps 5 --speculative-eagle-topk 1", (5, 1, 6)),
        (
            f"{SPEC} --speculative-num-steps=2 --speculative-eagle-topk=1 {DRAFTS} 9",
            (2, 1, 3),
        ),
        (
            f"{SPEC} --speculative-num-steps 3 --speculative-eagle-topk 4 {DRAFTS} 8",
            (3, 4, 8),
        ),
        (f"{SPEC} --speculative-num-st 4 --speculative-eagle 1", (4, 1, 5)),
    ],
)
def test_flags_resolve_as_sglang_does(words: str, shape: tuple[int, int, int]) -> None:
    found = parse(engine(words)).shape
    assert (found.steps, found.topk, found.draft_tokens) == shape


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (f"{SPEC} --speculative-eagle-topk 1", "AssertionError"),
        (f"{SPEC} --speculative-num-steps 3", "TypeError"),
        (f"{SPEC} --speculative-num-steps 0 --speculative-eagle-topk 1", "AssertionError"),
        ("--speculative-algorithm MAGIC", "Unknown speculative algorithm"),
        ("--speculative-algorithm EAGLE3", "draft-model-path is required"),
    ],
)
def test_illegal_combinations_die_as_sglang_does(words: str, text: str) -> None:
    with pytest.raises(IllegalError, match=text):
        parse(engine(words))


@pytest.mark.parametrize("words", ["--colour red", "--port many", "--speculative 3"])
def test_bad_words_exit_with_2(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(engine(words))
    assert stop.value.code == 2
    assert "launch_server.py: error:" in capsys.readouterr().err


def test_a_tree_that_cannot_be_filled() -> None:
    assert tree_overflows(Shape(1, 2, 4))
    assert not tree_overflows(Shape(3, 4, 8))
    assert not tree_overflows(Shape(3, 1, 4))


# ps


def test_ps_formats() -> None:
    assert _format("pid=,args=") == [("pid", "", None), ("args", "", None)]
    assert _format("user:32=,pid") == [("user", "", 32), ("pid", None, None)]
    assert _format("pid,args=Some, title") == [("pid", None, None), ("args", "Some, title", None)]


# The journal


def test_matches_are_an_or_of_ands() -> None:
    async def body() -> list[str]:
        journal = Journal("h")
        journal.write(b"a\n", pid=9, identifier="x", _SYSTEMD_UNIT="u", N="1")
        journal.write(b"\rb", pid=1, identifier="systemd", UNIT="u", N="2")
        journal.write(b"c", pid=9, identifier="x", _SYSTEMD_UNIT="v", N="2")
        match = Match(((("_SYSTEMD_UNIT", "u"),), (("UNIT", "u"), ("_PID", "1"))))
        return [render(e, "short").decode().split(": ", 1)[1] for e in journal.after(0) if match(e)]

    assert asyncio.run(body()) == ["a\n", "[2B blob data]\n"]


# GPU memory


class Hands:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.t = 100.0

    def __call__(self) -> float:
        return self.t


def test_memory_drains_after_an_exit_and_never_overflows(tmp_path: Path) -> None:
    clock = Hands()
    machine = Machine(FaultSwitch(tmp_path), speed=2.0, now=clock, wall=clock)
    machine.add(Proc(500, "a"))
    assert machine.alloc(500, 0, 60_000)
    machine.add(Proc(501, "b"))
    assert not machine.alloc(501, 0, 60_000)
    assert machine.alloc(501, 1, 60_000)
    machine.gone(500)
    assert machine.holders(0) == []
    full = machine.used_mib(0)
    clock.t += RELEASE_S / 4
    assert 0.4 * full < machine.used_mib(0) < 0.6 * full
    clock.t += RELEASE_S / 4
    assert machine.used_mib(0) < 100
    assert machine.used_mib(1) > 60_000


def test_stuck_memory_stays_until_the_fault_ends(tmp_path: Path) -> None:
    clock = Hands()
    faults = FaultSwitch(tmp_path)
    machine = Machine(faults, now=clock, wall=clock)
    machine.add(Proc(500, "a"))
    machine.alloc(500, 0, 60_000)
    faults.write([Fault.MEMORY_STUCK])
    machine.gone(500)
    clock.t += 1000
    assert machine.used_mib(0) > 60_000
    faults.write([])
    machine.used_mib(0)
    clock.t += RELEASE_S
    assert machine.used_mib(0) < 100


def test_only_processes_of_the_box_can_be_signalled(tmp_path: Path) -> None:
    machine = Machine(FaultSwitch(tmp_path))
    with pytest.raises(ProcessLookupError):
        machine.signal(1, 0)


# The batch


class Counter:
    def __init__(self) -> None:
        self.chunks: list[int] = []
        self.done = asyncio.Event()

    def tokens(self, count: int, finish: str | None) -> None:
        self.chunks.append(count)
        if finish is not None:
            self.done.set()


async def test_a_batch_runs_its_capacity_and_queues_the_rest() -> None:
    shape = Shape(4, 1, 5)
    lines: list[str] = []
    batch = Batch(shape, 2, log=lines.append, busy=lambda load: None, log_every=2)
    ticking = asyncio.create_task(batch.run())
    sinks = [Counter() for _ in range(3)]
    for sink in sinks:
        batch.submit(Request(10, 40, sink))
    assert (len(batch.running), len(batch.waiting)) == (2, 1)
    await asyncio.gather(*(sink.done.wait() for sink in sinks))
    ticking.cancel()
    for sink in sinks:
        assert sum(sink.chunks) == 40
        assert max(sink.chunks) <= 5
        assert sink.chunks[0] == 1
    rounds = batch.totals.rounds
    assert batch.totals.accepted / rounds == pytest.approx(accept_length(shape), rel=0.15)
    assert any("#queue-req: 1" in line for line in lines)
    assert any("accept len: " in line for line in lines)


async def test_a_cancelled_request_leaves_its_place() -> None:
    batch = Batch(Shape(1, 1, 2), 1, log=lambda text: None, busy=lambda load: None)
    ticking = asyncio.create_task(batch.run())
    first, second = Request(5, 100_000, Counter()), Request(5, 3, sink := Counter())
    batch.submit(first)
    batch.submit(second)
    batch.cancel(first)
    await sink.done.wait()
    ticking.cancel()
    assert sum(sink.chunks) == 3


# HTTP


async def _exchange(*pieces: bytes) -> bytes:
    async def handler(ask: Ask) -> None:
        if ask.path == "/fail":
            raise RuntimeError("inside")
        ask.connection.reply(200, f"{ask.method} {ask.body.decode()}".encode(), kind="text/plain")

    server = HttpServer(handler)
    await server.listen("127.0.0.1", 0)
    listening = server._server
    assert listening is not None
    port = listening.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0)
    data = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    server.stop_listening()
    return data


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((b"GET / HTTP/1.0\r\n\r\n",), [b"200 OK", b"GET "]),
        (
            (b"POST / HTTP/1.1\r\nconnection: close\r\ncontent-length: 3\r\n\r\nab", b"c"),
            [b"POST abc"],
        ),
        (
            (
                b"POST / HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n",
                b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
            ),
            [b"POST abc"],
        ),
        (
            (b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\nconnection: close\r\n\r\n",),
            [b"200 OK", b"connection: close"],
        ),
        ((b"nonsense\r\n\r\n",), [b"400 Bad Request"]),
        ((b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",), [b"400 Bad Request"]),
        (
            (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",),
            [b"400 Bad Request"],
        ),
        ((b"GET /fail HTTP/1.0\r\n\r\n",), [b"500 Internal Server Error", b"inside"]),
        ((b"HEAD / HTTP/1.0\r\n\r\n",), [b"content-length: 5"]),
    ],
)
async def test_http(pieces: tuple[bytes, ...], expected: list[bytes]) -> None:
    data = await _exchange(*pieces)
    for part in expected:
        assert part in data
