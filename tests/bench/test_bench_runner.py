"""Whatever the measuring process does, the reader gets one cell."""

from __future__ import annotations

import sys
from contextlib import aclosing

import pytest

from specdash.bench.protocol import Endpoint, Workload
from specdash.bench.runner import WorkerLostError, open_bench
from specdash.core.clock import SystemClock
from specdash.core.errors import WorkFailedError
from specdash.core.events import CellMeasured, CellProgress
from specdash.core.records import Cell

ENDPOINT = Endpoint("http://127.0.0.1:9", api_key="s3cr3t-k3y")

READ = "import sys, json\nopen_ = sys.stdin.readline()\n"
SAY = "def say(kind, body):\n    print(json.dumps({'id': 1, 'kind': kind, 'body': body}), flush=True)\n"

WORKERS = {
    "dies-at-once": "import sys; sys.exit(3)",
    "dies-on-job": READ
    + "sys.stdin.readline(); sys.stderr.write('boom s3cr3t-k3y\\n'); sys.exit(5)",
    "killed": READ + "import os; sys.stdin.readline(); os.kill(os.getpid(), 9)",
    "garbage": READ + "sys.stdin.readline(); print('hello there', flush=True); sys.stdin.read()",
    "binary": READ
    + "sys.stdin.readline(); sys.stdout.buffer.write(b'\\xff\\xfe\\n'); sys.stdout.flush(); sys.stdin.read()",
    "wrong-shape": READ
    + SAY
    + "sys.stdin.readline(); say('measured', {'cell': 7}); sys.stdin.read()",
    "unknown-kind": READ + SAY + "sys.stdin.readline(); say('dance', {}); sys.stdin.read()",
    "says-error": READ
    + SAY
    + "sys.stdin.readline(); say('error', {'code': 'no-luck', 'message': 'no s3cr3t-k3y'}); sys.stdin.read()",
}
CAUSES = {
    "dies-at-once": "worker-died",
    "dies-on-job": "worker-died",
    "killed": "worker-died",
    "garbage": "worker-garbled",
    "binary": "worker-garbled",
    "wrong-shape": "worker-garbled",
    "unknown-kind": "worker-garbled",
    "says-error": "no-luck",
}


@pytest.mark.parametrize("name", WORKERS)
async def test_a_broken_worker_is_a_failed_cell(name: str) -> None:
    argv = [sys.executable, "-c", WORKERS[name]]
    async with open_bench(ENDPOINT, Workload(), clock=SystemClock(), argv=argv) as bench:
        events = [event async for event in bench.measure(4)]
        problems = dict(bench.problems)
    assert len(events) == 1
    assert isinstance(events[0], CellMeasured)
    cell: Cell = events[0].cell
    assert cell.concurrency == 4
    assert "failed" in cell.flags
    assert cell.requests.errors == {CAUSES[name]: 1}
    assert "s3cr3t" not in str(problems)


async def test_the_next_cell_gets_a_new_process() -> None:
    argv = [sys.executable, "-c", WORKERS["dies-on-job"]]
    async with open_bench(ENDPOINT, Workload(), clock=SystemClock(), argv=argv) as bench:
        for _ in range(2):
            events = [event async for event in bench.measure(1)]
            assert [type(event) for event in events] == [CellMeasured]


@pytest.mark.parametrize("name", ["dies-at-once", "garbage", "unknown-kind"])
async def test_identify_says_what_happened(name: str) -> None:
    source = WORKERS[name].replace("'dance'", "'identity'")
    argv = [sys.executable, "-c", source]
    async with open_bench(ENDPOINT, Workload(), clock=SystemClock(), argv=argv) as bench:
        with pytest.raises(WorkerLostError) as caught:
            await bench.identify()
    assert isinstance(caught.value, WorkFailedError)


async def test_a_program_that_is_not_there() -> None:
    argv = ["/no/such/python"]
    with pytest.raises(WorkerLostError):
        async with open_bench(ENDPOINT, Workload(), clock=SystemClock(), argv=argv):
            pass


async def test_a_worker_that_ignores_a_cancel_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdash.bench.runner._CANCEL_S", 0.2)
    monkeypatch.setattr("specdash.bench.runner._END_S", 0.2)
    body = (
        "{'concurrency': 1, 'warming': True, 'in_flight': 1, 'done': 0, 'failed': 0,"
        " 'elapsed_s': 0.0, 'budget_s': 1.0}"
    )
    source = (
        READ + SAY + f"sys.stdin.readline(); say('progress', {body})\nwhile True: sys.stdin.read()"
    )
    argv = [sys.executable, "-c", source]
    async with open_bench(ENDPOINT, Workload(), clock=SystemClock(), argv=argv) as bench:
        async with aclosing(bench.measure(1)) as events:
            async for event in events:
                assert isinstance(event, CellProgress)
                worker = bench._worker
                break
        assert worker is not None
        assert worker._process.returncode is not None
        assert bench._worker is None


async def test_close_twice() -> None:
    async with open_bench(ENDPOINT, Workload(), clock=SystemClock()) as bench:
        await bench.close()
        await bench.close()
