"""The script's behaviour, on this machine: the same words run on every host."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from process_traces import Traces

from specdash.core.errors import WorkFailedError
from specdash.hosts import shell
from specdash.hosts.local import LocalHost
from specdash.hosts.protocol import Completed

BYTES = bytes(range(256)) * 40


async def test_status_and_streams_apart(local: LocalHost) -> None:
    done = await local.run(["sh", "-c", "echo out; echo err >&2; exit 7"])
    assert (done.exit_status, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    assert done.host == "here"
    assert done.argv == ("sh", "-c", "echo out; echo err >&2; exit 7")
    assert not done.timed_out
    assert not done.ok


async def test_bytes_pass_unchanged_both_ways(local: LocalHost) -> None:
    done = await local.run(["cat"], stdin=BYTES)
    assert done.ok
    assert done.stdout == BYTES


async def test_stdin_that_nobody_reads(local: LocalHost) -> None:
    assert (await local.run(["true"], stdin=BYTES * 20)).exit_status == 0


async def test_without_stdin_a_reader_sees_its_end(local: LocalHost) -> None:
    assert (await local.run(["cat"])).stdout == b""


async def test_no_such_program(local: LocalHost) -> None:
    done = await local.run(["specdash-no-such-program"])
    assert done.exit_status == 127
    assert b"not found" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_death_by_a_signal_is_128_and_the_number(local: LocalHost, number: int) -> None:
    done = await local.run(["sh", "-c", f"kill -{int(number)} $$"])
    assert done.exit_status == 128 + number


async def test_deadline_ends_children_too(local: LocalHost, traces: Traces) -> None:
    running = asyncio.ensure_future(
        local.run(["env", traces.variable, "sh", "-c", "sleep 600 & sleep 600"], timeout_s=0.4)
    )
    done = await running
    assert done.timed_out
    await traces.until(0)


@pytest.mark.usefixtures("short_grace")
async def test_a_command_that_ignores_sigterm_is_killed(local: LocalHost, traces: Traces) -> None:
    immune = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    done = await local.run(["env", traces.variable, "sh", "-c", immune], timeout_s=0.5)
    assert done.timed_out
    assert done.stdout == b"ready\n"
    await traces.until(0)


async def test_cancelling_ends_the_command(local: LocalHost, traces: Traces) -> None:
    running = asyncio.ensure_future(local.run(["env", traces.variable, "sleep", "600"]))
    await traces.until(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await traces.until(0)


async def test_remote_deadline_counts_where_nobody_closes_stdin(traces: Traces) -> None:
    wrapped = shell.wrap(["env", traces.variable, "sleep", "600"], mark="m", deadline_s=1)
    process = await asyncio.create_subprocess_exec(
        *wrapped.words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert await process.wait() == 143
    await traces.until(0)
    assert process.stdin is not None
    process.stdin.close()


async def test_a_reader_that_dies_ends_the_command(traces: Traces) -> None:
    """SIGKILL of the reader: nothing can be cleaned up here, the closed pipe has to do."""
    wrapped = shell.wrap(["env", traces.variable, "sh", "-c", "sleep 600 & wait"], mark="m")
    reader = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import subprocess,sys;subprocess.Popen(sys.argv[1:],stdin=subprocess.PIPE,"
        "start_new_session=True).wait()",
        *wrapped.words,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    await traces.until(2)
    reader.kill()
    await reader.wait()
    await traces.until(0)


@pytest.mark.parametrize("inner", ["/bin/sh", "/bin/bash"])
async def test_stdin_closed_at_once_leaves_nothing(inner: str, traces: Traces) -> None:
    if shutil.which(inner) is None:
        pytest.skip(f"no {inner}")
    for _ in range(12):
        wrapped = shell.wrap(["env", traces.variable, "sleep", "600"], mark="m")
        process = await asyncio.create_subprocess_exec(
            inner,
            *wrapped.words[1:],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        await process.wait()
    await traces.until(0)


async def test_helpers_are_gone_when_the_command_is(local: LocalHost) -> None:
    mark = Traces()
    os.environ[mark.mark] = "1"
    try:
        for _ in range(20):
            assert (await local.run(["true"], timeout_s=500)).ok
        assert mark.alive() == []
    finally:
        del os.environ[mark.mark]


@pytest.fixture
def bare_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH with a handful of programs and no setsid."""
    for name in ("sleep", "cat", "env", "sh", "true"):
        (tmp_path / name).symlink_to(
            next(p for p in (f"/bin/{name}", f"/usr/bin/{name}") if Path(p).exists())
        )
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("bare_path")
async def test_without_setsid(local: LocalHost, traces: Traces) -> None:
    done = await local.run(["sh", "-c", "echo out; exit 3"])
    assert (done.exit_status, done.stdout) == (3, b"out\n")
    assert (await local.run(["cat"], stdin=BYTES)).stdout == BYTES
    assert (await local.run(["nothing-there"])).exit_status == 127
    done = await local.run(
        ["env", traces.variable, "sh", "-c", "sleep 600 & sleep 600"], timeout_s=0.4
    )
    assert done.timed_out
    await traces.until(0)


async def test_lines_are_read_as_they_come_and_end_with_the_context(
    local: LocalHost, traces: Traces
) -> None:
    loop = "echo one; echo two >&2; printf 'three\\r\\n'; while :; do sleep 0.1; done"
    async with local.lines(["env", traces.variable, "sh", "-c", loop]) as lines:
        got = [await anext(lines) for _ in range(3)]
    assert got == [b"one", b"two", b"three"]
    await traces.until(0)


async def test_lines_end_with_the_command_and_keep_a_last_piece(local: LocalHost) -> None:
    async with local.lines(["printf", "a\\n\\nb"]) as lines:
        assert [line async for line in lines] == [b"a", b"", b"b"]


async def test_many_lines_for_a_slow_reader(local: LocalHost) -> None:
    """More than the buffers hold: the sender is paused and nothing is lost."""
    count = 0
    async with local.lines(["sh", "-c", "seq 1 400000"]) as lines:
        async for line in lines:
            count += 1
            assert line == str(count).encode()
            if count % 100_000 == 0:
                await asyncio.sleep(0)
    assert count == 400_000


async def test_a_flood_is_ended(local: LocalHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdash.hosts.running.MAX_OUTPUT", 1 << 20)
    with pytest.raises(WorkFailedError, match="more than 1 MiB"):
        await local.run(["cat", "/dev/zero"])


async def test_a_child_left_behind_does_not_hold_the_result(
    local: LocalHost, traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdash.hosts.running._DRAIN_S", 0.2)
    done = await local.run(
        ["env", traces.variable, "sh", "-c", "sleep 5 & echo started"], timeout_s=60
    )
    assert (done.exit_status, done.stdout) == (0, b"started\n")
    assert done.seconds < 5


async def test_every_command_is_reported(traces: Traces) -> None:
    seen: list[Completed] = []
    host = LocalHost("here", on_command=seen.append)
    await host.run(["true"])
    await host.run(["sleep", "600"], timeout_s=0.2)
    assert [(item.argv, item.timed_out) for item in seen] == [
        (("true",), False),
        (("sleep", "600"), True),
    ]
    await host.close()
    await host.close()


async def test_tunnel_to_loopback_is_the_port_itself(local: LocalHost) -> None:
    tunnel = await local.tunnel("127.0.0.1", 4242)
    assert tunnel.local_port == 4242
    await tunnel.close()


async def test_tunnel_to_another_address_is_relayed(local: LocalHost) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.2", 0)
    port = server.sockets[0].getsockname()[1]
    tunnel = await local.tunnel("127.0.0.2", port)
    reader, writer = await asyncio.open_connection("127.0.0.1", tunnel.local_port)
    writer.write(b"hello\n")
    assert await reader.read() == b"HELLO\n"
    writer.close()
    await tunnel.close()
    server.close()


async def test_tunnel_to_a_closed_port_ends_the_connection(local: LocalHost) -> None:
    tunnel = await local.tunnel("127.0.0.3", 1)
    reader, writer = await asyncio.open_connection("127.0.0.1", tunnel.local_port)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    await tunnel.close()
