"""``ps`` listings, signals that hit only the process meant, and ports."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.core.errors import SpecdashError, UnreachableError, UsageError
from specdash.core.service import Process
from specdash.services.processes import (
    PS_ARGV,
    list_processes,
    listening,
    port_holders,
    signal_process,
)
from specdash.services.ps import (
    acceptable_starts,
    parse_processes,
    same_process,
    start_time,
)

needs_procps = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("ps") is None,
    reason="there is no procps on this machine",
)

LISTING = """\
Welcome to gpu-node
      1       0       1     0 root                             Ss    8640000 Sat Aug 22 09:00:01 2026 /sbin/init
      2       0       0     0 root                             S     8640000 Sat Aug 22 09:00:01 2026 [kthreadd]
   4242       1    4242   998 sglang                           Ssl       120 Sun Nov  1 14:59:07 2026 /opt/venv/bin/python3 -m sglang.launch_server  --model  /m
   4243    4242    4242   998 sglang                           Rl+       110 Sun Nov  1 14:59:17 2026 sglang::scheduler_TP0
   4300    4242    4242 100998 CORP\\jane doe                   D<s       110 Sun Nov 29 14:59:17 2026 x
   4301    4242    4242   998 sglang                           Zl          - Sun Nov 29 14:59:17 2026 [python3] <defunct>
   4302    4242       -   998 sglang                           S           1 Sun Nov 29 14:59:17 2026
garbage 1 2 3
"""
PROCESS = Process(
    "svc", 4243, 4242, 4242, 998, "sglang", "Rl+", "Sun Nov 1 14:59:17 2026", 110, "x"
)


def test_rows() -> None:
    rows = {row.pid: row for row in parse_processes("svc", LISTING.encode())}
    assert list(rows) == [1, 2, 4242, 4243, 4300, 4301, 4302]
    assert rows[4242] == Process(
        "svc", 4242, 1, 4242, 998, "sglang", "Ssl", "Sun Nov 1 14:59:07 2026", 120,
        "/opt/venv/bin/python3 -m sglang.launch_server  --model  /m",
    )  # fmt: skip
    assert rows[4300].user == "CORP\\jane doe"
    assert rows[4301].age_s is None
    assert (rows[4302].session, rows[4302].command) == (0, "")


_WORD = st.text(st.characters(codec="utf-8", exclude_characters="\n\r", exclude_categories=("Zs", "Cc", "Cs")), min_size=1, max_size=12)  # fmt: skip


@given(
    pid=st.integers(1, 2**22),
    uid=st.integers(0, 2**32 - 1),
    user=_WORD,
    state=st.sampled_from(["S", "Ssl+", "R<", "D", "Zl", "I<"]),
    age=st.integers(0, 10**9),
    day=st.integers(1, 28),
    command=st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=80),
)
def test_any_row_round_trips(
    pid: int, uid: int, user: str, state: str, age: int, day: int, command: str
) -> None:
    line = f"{pid:7d} {1:7d} {pid:7d} {uid:5d} {user:32} {state:4} {age:9d} Sun Nov {day:2d} 14:59:07 2026 {command}\n"
    assert parse_processes("h", line.encode()) == [
        Process("h", pid, 1, pid, uid, user, state, f"Sun Nov {day} 14:59:07 2026", age, command)
    ]


@given(st.binary())
def test_any_listing_is_read(listing: bytes) -> None:
    assert isinstance(parse_processes("h", listing), list)


def test_start_times_bend_by_a_second_over_a_new_year() -> None:
    assert acceptable_starts("Fri Jan 1 00:00:00 2027") == (
        "Thu Dec 31 23:59:59 2026",
        "Fri Jan 1 00:00:00 2027",
        "Fri Jan 1 00:00:01 2027",
    )


def test_same_process_is_pid_and_start() -> None:
    assert same_process(PROCESS, replace(PROCESS, started="Sun Nov 1 14:59:18 2026", age_s=9))
    assert not same_process(PROCESS, replace(PROCESS, started="Sun Nov 1 15:10:00 2026"))
    assert not same_process(PROCESS, replace(PROCESS, pid=1))
    assert not same_process(PROCESS, replace(PROCESS, host="ct"))


@given(st.datetimes().map(lambda time: time.replace(microsecond=0)))
def test_start_times_round_trip(time: Any) -> None:
    from datetime import datetime

    if not datetime(2000, 1, 1) < time < datetime(2100, 1, 1):
        return
    texts = acceptable_starts(time.strftime("%a %b %d %H:%M:%S %Y"))
    assert len(set(texts)) == 3
    assert start_time(texts[1]) == time


@pytest.mark.parametrize("text", ["", "yesterday", "Sun Nov 31 14:59:07 2026", "a b c d e"])
def test_what_is_no_start_time(text: str) -> None:
    assert start_time(text) is None
    assert acceptable_starts(text) == (text,)


async def test_no_ps_is_said(scripted: Any) -> None:
    with pytest.raises(SpecdashError, match="no ps on svc"):
        await list_processes(scripted(lambda argv: (127, b"", b"env: ps: No such file")))


async def test_a_ps_without_the_columns_is_said(scripted: Any) -> None:
    with pytest.raises(SpecdashError, match="cannot be listed") as caught:
        await list_processes(scripted(lambda argv: (1, b"", b"ps: bad -o argument 'lstart'")))
    assert "procps" in caught.value.remedy


async def test_a_lost_link_is_said(scripted: Any) -> None:
    with pytest.raises(UnreachableError):
        await list_processes(scripted(lambda argv: (None, b"", b"")))


async def test_signal_pins_the_start_time(scripted: Any) -> None:
    host = scripted()
    assert await signal_process(host, PROCESS, "TERM")
    argv = host.ran[0]
    assert argv[:2] == ("sh", "-c")
    assert argv[3:] == (
        "signal-if-same",
        "4243",
        "TERM",
        "Sun Nov 1 14:59:16 2026",
        "Sun Nov 1 14:59:17 2026",
        "Sun Nov 1 14:59:18 2026",
    )


@pytest.mark.parametrize("answer", [(3, b"", b""), (1, b"", b"kill: (4243): No such process")])
async def test_signal_to_what_is_gone(answer: Any, scripted: Any) -> None:
    assert not await signal_process(scripted(lambda argv: answer), PROCESS, "KILL")


async def test_signal_that_is_not_allowed(scripted: Any) -> None:
    host = scripted(lambda argv: (1, b"", b"kill: (4243): Operation not permitted"))
    with pytest.raises(SpecdashError, match="could not be sent SIGTERM") as caught:
        await signal_process(host, PROCESS, "TERM")
    assert any("not permitted" in line for line in caught.value.evidence)


async def test_signal_without_the_program_kill(scripted: Any) -> None:
    with pytest.raises(SpecdashError) as caught:
        await signal_process(scripted(lambda argv: (127, b"", b"env: kill: none")), PROCESS, "TERM")
    assert "procps" in caught.value.remedy


async def test_signal_with_a_lost_link_is_unknown(scripted: Any) -> None:
    with pytest.raises(UnreachableError):
        await signal_process(scripted(lambda argv: (None, b"", b"")), PROCESS, "TERM")


@pytest.mark.parametrize("pid", [1, 0, -1, -4243])
async def test_groups_and_init_are_never_signalled(pid: int, scripted: Any) -> None:
    host = scripted()
    with pytest.raises(UsageError):
        await signal_process(host, replace(PROCESS, pid=pid), "KILL")
    assert host.ran == []


@pytest.fixture
async def sleeper() -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec("sleep", "600")
    yield process
    if process.returncode is None:
        process.kill()
        await process.wait()


@needs_procps
async def test_a_real_process_is_listed_and_ended(
    this_host: Any, sleeper: asyncio.subprocess.Process
) -> None:
    rows = await list_processes(this_host)
    (mine,) = [row for row in rows if row.pid == sleeper.pid]
    assert mine.command == "sleep 600"
    assert mine.age_s is not None
    raw = (await this_host.run(PS_ARGV)).stdout.decode("utf-8", "replace").split("\n")
    assert len(parse_processes("svc", "\n".join(raw).encode())) == len([r for r in raw if r])
    assert await signal_process(this_host, mine, "TERM")
    assert await sleeper.wait() == -15
    assert not await signal_process(this_host, mine, "TERM")


@needs_procps
async def test_a_real_process_with_another_start_time_is_left_alone(
    this_host: Any, sleeper: asyncio.subprocess.Process
) -> None:
    (mine,) = [row for row in await list_processes(this_host) if row.pid == sleeper.pid]
    other = replace(mine, started="Sun Nov 1 00:00:00 2020")
    assert not await signal_process(this_host, other, "KILL")
    assert sleeper.returncode is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's tables")
async def test_a_real_port(this_host: Any) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert not await listening(this_host, port)
        server.listen()
        assert await listening(this_host, port)
    assert not await listening(this_host, port)


@pytest.mark.parametrize(
    ("answer", "is_open"), [(b"banner\nopen\n", True), (b"banner open\nclosed\n", False)]
)
async def test_ports(answer: bytes, is_open: bool, scripted: Any) -> None:
    host = scripted(lambda argv: answer)
    assert await listening(host, 30000) is is_open
    assert host.ran[0][3:] == ("sh", "30000", "7530")


async def test_a_port_that_cannot_be_looked_at(scripted: Any) -> None:
    with pytest.raises(SpecdashError, match="cannot be told"):
        await listening(scripted(lambda argv: (4, b"", b"")), 30000)


@pytest.mark.parametrize("port", [0, -1, 65536])
async def test_no_ports(port: int, scripted: Any) -> None:
    with pytest.raises(UsageError):
        await listening(scripted(), port)


@pytest.mark.parametrize(
    ("answer", "pids"),
    [
        ((0, b" 4242 4243\n", b"30000/tcp:          "), (4242, 4243)),
        ((0, b"30000/tcp:           4242\n", b""), (4242,)),
        ((1, b"", b""), ()),
        ((127, b"", b"fuser: not found"), ()),
    ],
)
async def test_port_holders(answer: Any, pids: tuple[int, ...], scripted: Any) -> None:
    assert await port_holders(scripted(lambda argv: answer), 30000) == pids
