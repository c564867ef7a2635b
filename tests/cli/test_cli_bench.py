"""``specdash bench`` as scripts see it: one document, exit codes, no secret anywhere."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from mock_endpoint import Mock, mock_endpoint

CELL_KEYS = [
    "concurrency",
    "output_tok_s",
    "output_tok_s_low",
    "output_tok_s_high",
    "per_request_tok_s",
    "ttft_ms",
    "tpot_ms",
    "itl_ms",
    "chunk_gap_ms",
    "accept_length",
    "accept_histogram",
    "output_tokens",
    "chunks",
    "requests",
    "window_s",
    "joules_per_token",
    "flags",
]
QUICK = ["--requests", "3", "--output-tokens", "32", "--concurrency", "1"]


@dataclass
class Said:
    code: int
    stdout: str
    stderr: str

    def document(self) -> dict[str, Any]:
        body = json.loads(self.stdout)
        assert isinstance(body, dict)
        return body


async def started(*words: str, **environ: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from specdash.cli.main import main; main()",
        "bench",
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environ},
    )


async def ended(process: asyncio.subprocess.Process) -> Said:
    stdout, stderr = await process.communicate()
    assert process.returncode is not None
    return Said(process.returncode, stdout.decode(), stderr.decode())


async def bench(*words: str, **environ: str) -> Said:
    return await ended(await started(*words, **environ))


@pytest.fixture
async def mock() -> AsyncIterator[Mock]:
    async with mock_endpoint(step_s=0.001, dialect="sglang", tokens_per_chunk=4) as running:
        yield running


async def test_the_document(mock: Mock) -> None:
    said = await bench("--url", mock.url, "--json", *QUICK)
    assert said.code == 0
    body = said.document()
    assert list(body) == ["url", "model", "engine", "workload", "cells"]
    assert body["url"] == mock.url
    assert body["model"] == "mock-model"
    assert body["engine"] == "sglang"
    assert body["workload"] == {
        "prompts": "mixed",
        "output_tokens": 32,
        "temperature": 0.0,
        "ignore_eos": True,
        "budget_s": None,
        "requests": 3,
    }
    (cell,) = body["cells"]
    assert list(cell) == CELL_KEYS
    assert cell["output_tokens"] == 96
    assert cell["chunks"] == 24
    assert cell["requests"] == {"ok": 3, "failed": 0, "errors": {}}
    assert cell["joules_per_token"] is None


async def test_for_people_the_table_is_on_stdout(mock: Mock) -> None:
    said = await bench("--url", mock.url, *QUICK)
    assert said.code == 0
    assert "tok/s" in said.stdout.splitlines()[0]
    assert "3/0" in said.stdout
    assert "1 at once" in said.stderr
    assert "\x1b" not in said.stdout + said.stderr
    assert "\r" not in said.stderr


async def test_events_a_line(mock: Mock) -> None:
    said = await bench("--url", mock.url, "--jsonl", *QUICK)
    lines = [json.loads(line) for line in said.stdout.splitlines()]
    assert lines[0]["event"] == "cell_started"
    assert lines[-2]["event"] == "cell_measured"
    assert lines[-1]["event"] == "bench_ended"
    assert lines[-1]["cells"][0]["output_tokens"] == 96


async def test_against_an_earlier_run(mock: Mock, tmp_path: Path) -> None:
    first = await bench("--url", mock.url, "--json", *QUICK)
    body = first.document()
    for name in ("output_tok_s", "output_tok_s_low", "output_tok_s_high"):
        body["cells"][0][name] = {"output_tok_s": 10, "output_tok_s_low": 9}.get(name, 11)
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps(body), "utf-8")
    # Long enough for an interval.
    longer = ["--requests", "12", "--output-tokens", "64", "--concurrency", "1"]
    said = await bench("--url", mock.url, "--json", *longer, "--against", str(earlier))
    assert said.code == 0
    found = said.document()["against"]
    assert found["differs"] == ["output_tokens"]
    assert found["cells"][0]["before"] == 10
    assert found["cells"][0]["verdict"] == "better"
    said = await bench("--url", mock.url, *QUICK, "--against", str(earlier))
    assert "against" in said.stdout


async def test_a_cell_without_a_good_request_exits_1_and_the_document_stands() -> None:
    async with mock_endpoint(fault=lambda number: "500") as broken:
        said = await bench("--url", broken.url, "--json", *QUICK)
    assert said.code == 1
    body = said.document()
    assert body["cells"][0]["requests"]["errors"] == {
        "http-500": body["cells"][0]["requests"]["failed"]
    }
    assert body["cells"][0]["output_tok_s"] is None
    assert body["error"]["code"] == "no-good-request"
    assert "the engine is on fire" in said.stderr


async def test_nobody_answers_exits_3() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        said = await bench("--url", f"127.0.0.1:{held.getsockname()[1]}", "--json")
    assert said.code == 3
    body = said.document()
    assert body["cells"] == []
    assert body["engine"] is None
    assert body["error"]["remedy"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--url", "ftp://h"],
        ["--url", "http://h", "--concurrency", "0"],
        ["--url", "http://h", "--concurrency", "1,,2"],
        ["--url", "http://h", "--concurrency", "one"],
        ["--url", "http://h", "--output-tokens", "0"],
        ["--url", "http://h", "--temperature", "-1"],
        ["--url", "http://h", "--temperature", "nan"],
        ["--url", "http://h", "--budget", "0"],
        ["--url", "http://h", "--budget", "inf"],
        ["--url", "http://h", "--requests", "0"],
        ["--url", "http://h", "--prompts", "poetry"],
        ["--url", "http://h", "--header", "no colon"],
        ["--url", "http://h", "--header", "A: b\r\nX: y"],
        ["--url", "http://h", "--api-key-env", "NOT_SET_ANYWHERE"],
        ["--url", "http://h", "--unknown"],
    ],
)
async def test_bad_values_exit_2_with_one_document(words: list[str]) -> None:
    said = await bench(*words, "--json")
    assert said.code == 2
    assert said.document()["error"]["message"]


async def test_an_unreadable_file_exits_1(tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing.json")
    said = await bench("--url", "http://h", "--against", missing, "--json")
    assert said.code == 1
    assert said.document()["error"]["code"] == "against"
    broken = tmp_path / "p.jsonl"
    broken.write_text("{", "utf-8")
    said = await bench("--url", "http://h", "--prompts", str(broken), "--json")
    assert said.code == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupt_keeps_what_was_measured(number: signal.Signals) -> None:
    async with mock_endpoint(step_s=0.001) as slow:
        words = ["--output-tokens", "40", "--budget", "0.5", "--concurrency", "1,2,3,4,5,6,7,8"]
        process = await started("--url", slow.url, "--json", *words)
        stderr = process.stderr
        assert stderr is not None
        said = b""
        while b"1 at once:" not in said or b"tok/s (" not in said:
            said += await stderr.readline()
        process.send_signal(number)
        result = await ended(process)
    assert result.code == 130
    body = result.document()
    assert body["error"]["code"] == "interrupted"
    assert 1 <= len(body["cells"]) < 8
    assert slow.running == 0


async def test_secrets_are_used_and_never_shown(tmp_path: Path) -> None:
    async with mock_endpoint(step_s=0.001, needs_key="s3cr3t-k3y") as guarded:
        url = guarded.url.replace("http://", "http://me:pa55w0rd@")
        words = ["--url", url, "--api-key-env", "MY_KEY", "--header", "X-Tenant: t3nant-t0ken"]
        said = await bench(*words, "--json", *QUICK, MY_KEY="s3cr3t-k3y")
        refused = await bench(*words, "--json", *QUICK, MY_KEY="wr0ng-k3y")
    assert said.code == 0
    assert guarded.requests[0].headers["x-tenant"] == "t3nant-t0ken"
    assert refused.code == 3
    for result in (said, refused):
        for secret in ("s3cr3t-k3y", "wr0ng-k3y", "pa55w0rd", "t3nant-t0ken"):
            assert secret not in result.stdout + result.stderr


async def test_what_the_server_names_itself_cannot_control_the_terminal() -> None:
    evil = "\x1b]0;pwned\x07m\x1b[2J\ud800"
    async with mock_endpoint(step_s=0.001, model=evil) as hostile:
        said = await bench("--url", hostile.url, *QUICK)
        document = await bench("--url", hostile.url, "--json", *QUICK)
    assert said.code == 0
    assert "\x1b" not in said.stdout + said.stderr
    assert document.document()["model"] == "m"


async def test_a_users_prompts_are_sent(mock: Mock, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"prompt": "first of mine"}\n{"text": "second of mine"}\n', "utf-8")
    said = await bench("--url", mock.url, "--prompts", str(file), "--json", *QUICK)
    assert said.code == 0
    assert all(prompt.endswith("of mine") for prompt in mock.prompts())
