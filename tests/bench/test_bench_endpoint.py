"""Whole cells through the measuring process, against an endpoint of known manners."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from mock_endpoint import Mock, mock_endpoint

from specdash.bench.protocol import Endpoint, SshTunnel, Workload
from specdash.bench.runner import WorkerBench, open_bench
from specdash.core.clock import SystemClock, wait_until
from specdash.core.errors import UnreachableError, UsageError
from specdash.core.events import CellMeasured, CellProgress, CellStarted
from specdash.core.records import Cell
from specdash.rig.schema import HostSpec

SHORT = Workload(output_tokens=48, requests=4, budget_s=20.0, stall_s=5.0)


def bench_of(mock: Mock, workload: Workload = SHORT, **endpoint: Any) -> Any:
    return open_bench(Endpoint(mock.url, **endpoint), workload, clock=SystemClock())


async def cell_of(bench: WorkerBench, concurrency: int, **more: Any) -> Cell:
    async with aclosing(bench.measure(concurrency, **more)) as events:
        cells = [event.cell async for event in events if isinstance(event, CellMeasured)]
    assert len(cells) == 1
    return cells[0]


@pytest.mark.parametrize(
    ("manners", "dialect"),
    [
        ({"dialect": "sglang"}, "sglang"),
        ({"dialect": "sglang", "routes": ("chat",)}, "sglang"),
        ({"dialect": "llama.cpp", "usage": "none"}, "llama.cpp"),
        ({"dialect": "vllm", "metrics": True}, "vllm"),
        ({"probes": False}, "openai"),
        ({"routes": ("completions",)}, "openai"),
        ({"usage": "final"}, "openai"),
        ({"usage": "in-finish"}, "openai"),
        ({"usage": "before-finish"}, "openai"),
        ({"usage": "final", "field": "reasoning_content"}, "openai"),
        ({"base": "/behind/a/proxy"}, "openai"),
        ({"refuses": ("stream_options",), "usage": "in-finish"}, "openai"),
    ],
)
async def test_tokens_are_exact_in_every_dialect(manners: dict[str, Any], dialect: str) -> None:
    async with (
        mock_endpoint(tokens_per_chunk=3, step_s=0.001, **manners) as mock,
        bench_of(mock) as bench,
    ):
        identity = await bench.identify()
        cell = await cell_of(bench, 1)
    assert identity.dialect == dialect
    assert cell.requests.to_json() == {"ok": 4, "failed": 0, "errors": {}}
    assert cell.output_tokens == 4 * 48
    assert cell.chunks == 4 * 16
    assert cell.output_tok_s == pytest.approx(cell.output_tokens / cell.window_s)
    assert "estimated-tokens" not in cell.flags


@pytest.mark.parametrize("per_chunk", [1, 2, 4, 8, 16])
async def test_events_are_not_tokens(per_chunk: int) -> None:
    async with (
        mock_endpoint(tokens_per_chunk=per_chunk, step_s=0.001, usage="final") as mock,
        bench_of(mock) as bench,
    ):
        cell = await cell_of(bench, 1)
    assert (cell.output_tokens, cell.chunks) == (4 * 48, 4 * 48 // per_chunk)


@pytest.mark.parametrize(
    "manners",
    [
        {"eol": b"\r\n"},
        {"comments": True},
        {"named_events": True},
        {"text": "größe 日本 🚀 ", "split": 1},
        {"pad": 1_100_000, "tokens_per_chunk": 48},
        {"done_twice": True},
        {"close_delimited": True},
    ],
    ids=["crlf", "comments", "named", "split-utf8", "megabyte-lines", "done-twice", "http-1.0"],
)
async def test_odd_but_legal_streams(manners: dict[str, Any]) -> None:
    async with mock_endpoint(step_s=0.0005, **manners) as mock, bench_of(mock) as bench:
        cell = await cell_of(bench, 2)
    assert cell.requests.ok == 4
    assert cell.requests.failed == 0


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("500", "http-500"),
        ("429", "http-429"),
        ("404", "http-404"),
        ("302", "http-302"),
        ("reset", "reset"),
        ("html", "broken-sse"),
        ("not-http", "bad-http"),
        ("bad-json", "bad-json"),
        ("cut-event", "broken-sse"),
        ("early-close", "early-close"),
        ("abort", "early-close"),
        ("error-event", "server-error"),
        ("hang", "stalled"),
        ("mid-hang", "stalled"),
        ("loris", "stalled"),
    ],
)
async def test_a_cell_without_one_good_request(fault: str, cause: str) -> None:
    workload = Workload(output_tokens=48, budget_s=0.5, stall_s=0.4)
    async with (
        mock_endpoint(step_s=0.001, fault=lambda number: fault) as mock,
        bench_of(mock, workload) as bench,
    ):
        cell = await cell_of(bench, 2)
        problems = dict(bench.problems)
    assert "failed" in cell.flags
    assert not cell.good
    assert list(cell.requests.errors) == [cause]
    assert cell.requests.failed == sum(cell.requests.errors.values()) > 0
    assert cell.output_tok_s is None
    assert cause in problems


async def test_the_other_requests_stand() -> None:
    def every_third(number: int) -> str | None:
        return "500" if number % 3 == 2 else None

    workload = Workload(output_tokens=48, requests=12, budget_s=20.0)
    async with (
        mock_endpoint(step_s=0.001, fault=every_third) as mock,
        bench_of(mock, workload) as bench,
    ):
        cell = await cell_of(bench, 2)
    assert cell.good
    assert cell.output_tok_s is not None
    assert cell.requests.ok + cell.requests.failed == 12
    assert set(cell.requests.errors) == {"http-500"}
    assert cell.requests.failed >= 3


async def test_the_other_cells_stand() -> None:
    sent = 0

    def first_only(number: int) -> str | None:
        nonlocal sent
        sent = number
        return "500" if number < 6 else None

    async with mock_endpoint(step_s=0.001, fault=first_only) as mock, bench_of(mock) as bench:
        first = await cell_of(bench, 1)
        while sent < 5:
            first = await cell_of(bench, 1)
        second = await cell_of(bench, 2)
    assert not first.good
    assert second.good


async def test_no_usage_is_asked_for_another_way() -> None:
    async with (
        mock_endpoint(step_s=0.001, usage="none", tokens_per_chunk=3) as mock,
        bench_of(mock) as bench,
    ):
        cell = await cell_of(bench, 1)
    assert cell.output_tokens == 4 * 48
    assert "estimated-tokens" not in cell.flags


async def test_no_usage_anywhere_is_marked() -> None:
    manners = {"usage": "none", "whole_usage": False, "tokens_per_chunk": 3}
    async with mock_endpoint(step_s=0.001, **manners) as mock, bench_of(mock) as bench:
        cell = await cell_of(bench, 1)
    assert "estimated-tokens" in cell.flags
    assert cell.output_tokens != cell.chunks


async def test_refused_parameters_are_left_out_and_said() -> None:
    manners = {"refuses": ("ignore_eos",), "honours_eos_at": 20}
    async with mock_endpoint(step_s=0.001, **manners) as mock, bench_of(mock) as bench:
        cell = await cell_of(bench, 1)
    assert "no-ignore-eos" in cell.flags
    assert cell.output_tokens == 4 * 20
    assert all("ignore_eos" not in seen.body for seen in mock.requests[-4:])


async def test_acceptance_as_sglang_reports_it() -> None:
    manners = {"dialect": "sglang", "tokens_per_chunk": 4, "draft_k": 3}
    async with mock_endpoint(step_s=0.001, **manners) as mock, bench_of(mock) as bench:
        cell = await cell_of(bench, 1)
    assert cell.accept_length == 4.0
    assert cell.accept_histogram == (0, 0, 0, 4 * 12)


async def test_acceptance_from_metrics() -> None:
    async with (
        mock_endpoint(step_s=0.001, metrics=True, tokens_per_chunk=3) as mock,
        bench_of(mock) as bench,
    ):
        cell = await cell_of(bench, 1)
    assert cell.accept_length == pytest.approx(3.0, abs=0.2)


async def test_a_full_engine_is_seen() -> None:
    async with (
        mock_endpoint(step_s=0.001, dialect="sglang", capacity=2) as mock,
        bench_of(mock) as bench,
    ):
        cells = [await cell_of(bench, streams) for streams in (2, 3)]
    assert [("queued" in cell.flags) for cell in cells] == [False, True]


async def test_every_stream_is_saturated_and_no_prefix_is_sent_twice() -> None:
    workload = Workload(output_tokens=48, budget_s=0.6)
    async with mock_endpoint(step_s=0.001) as mock, bench_of(mock, workload) as bench:
        for streams in (1, 4, 4):
            await cell_of(bench, streams)
    assert mock.peak == 4
    prompts = mock.prompts()
    assert len({prompt[:10] for prompt in prompts}) == len(prompts)


async def test_two_candidates_get_the_same_bytes() -> None:
    async def sent() -> list[str]:
        async with mock_endpoint(step_s=0.001) as mock:
            async with bench_of(mock) as bench:
                await cell_of(bench, 2)
            return mock.prompts()

    assert sorted(await sent()) == sorted(await sent())


async def test_the_story_of_a_cell() -> None:
    workload = Workload(output_tokens=48, budget_s=0.8)
    events: list[Any] = []
    async with mock_endpoint(step_s=0.002) as mock, bench_of(mock, workload) as bench:
        events = [event async for event in bench.measure(2, fresh=False)]
    assert isinstance(events[0], CellStarted)
    assert isinstance(events[-1], CellMeasured)
    progress = [event for event in events if isinstance(event, CellProgress)]
    assert len(progress) == len(events) - 2
    assert progress[-1].warming is False
    assert progress[-1].budget_s == 0.8
    assert progress[-1].mean_tok_s == pytest.approx(1000, rel=0.5)
    assert "not-fresh" in events[-1].cell.flags


async def test_closing_early_drops_the_connections() -> None:
    workload = Workload(output_tokens=100_000, budget_s=60.0)
    async with mock_endpoint(step_s=0.001) as mock, bench_of(mock, workload) as bench:
        async with aclosing(bench.measure(3)) as events:
            async for event in events:
                if isinstance(event, CellProgress) and not event.warming:
                    break
        assert mock.running == 3 or mock.dropped
        await none_running(mock)
        # The same process measures on.
        workload_again = await cell_of_some(bench)
    assert mock.dropped >= 3
    assert workload_again


async def none_running(mock: Mock) -> None:
    async def probe() -> bool | None:
        return None if mock.running else True

    await wait_until(probe, clock=SystemClock(), deadline_s=5, every_s=0.01)


async def cell_of_some(bench: WorkerBench) -> bool:
    async with aclosing(bench.measure(1)) as events:
        async for event in events:
            if isinstance(event, CellProgress) and event.tok_s:
                return True
    return False


async def test_leaving_the_context_drops_the_connections() -> None:
    workload = Workload(output_tokens=100_000, budget_s=60.0)
    async with mock_endpoint(step_s=0.001) as mock:
        async with bench_of(mock, workload) as bench:
            events = bench.measure(2)
            async for event in events:
                if isinstance(event, CellProgress) and not event.warming:
                    break
        await none_running(mock)
        await events.aclose()


async def test_the_key_goes_in_the_header_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LLM_KEY", "s3cr3t-k3y")
    async with (
        mock_endpoint(step_s=0.001, needs_key="s3cr3t-k3y") as mock,
        bench_of(mock, api_key="s3cr3t-k3y", headers={"X-Team": "blue"}) as bench,
    ):
        cell = await cell_of(bench, 1)
        worker = bench._worker
        assert worker is not None
        pid = worker._process.pid
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: ASYNC230, PTH123
            assert b"s3cr3t" not in file.read()
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: ASYNC230, PTH123
            assert b"s3cr3t" not in file.read()
    assert cell.good
    assert all(seen.headers["x-team"] == "blue" for seen in mock.requests)


async def test_a_missing_key_is_said_before_anything_is_measured() -> None:
    async with mock_endpoint(needs_key="s3cr3t-k3y") as mock, bench_of(mock) as bench:
        with pytest.raises(UnreachableError) as caught:
            await bench.identify()
    assert caught.value.code == "unauthorized"


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "no-such-host.invalid", "127.1:{port}"])
async def test_nobody_answers(host: str) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = "http://" + host.format(port=held.getsockname()[1])
        async with open_bench(Endpoint(url), SHORT, clock=SystemClock()) as bench:
            with pytest.raises(UnreachableError):
                await bench.identify()
            cell = await cell_of(bench, 1)
    assert "failed" in cell.flags
    assert sum(cell.requests.errors.values()) == 1


FULL: list[tuple[str, Callable[[Mock], str]]] = [
    ("/v1/chat/completions", lambda mock: mock.url + "/v1/chat/completions"),
    ("/v1/completions", lambda mock: mock.url + "/v1/completions"),
    ("/generate", lambda mock: mock.url + "/generate"),
    ("/v1/chat/completions", lambda mock: mock.url + "/v1"),
]


@pytest.mark.parametrize(("path", "url"), FULL)
async def test_a_full_endpoint_is_used_as_it_is(path: str, url: Callable[[Mock], str]) -> None:
    async with mock_endpoint(step_s=0.001) as mock:
        endpoint = Endpoint(url(mock))
        async with open_bench(endpoint, SHORT, clock=SystemClock()) as bench:
            cell = await cell_of(bench, 1)
    assert cell.requests.ok == 4
    assert {seen.path for seen in mock.requests} == {path}


async def test_through_a_tunnel_of_its_own() -> None:
    async with mock_endpoint(step_s=0.001) as mock:
        # The rig's address, as the host sees it; here the host is this machine.
        tunnel = SshTunnel(via="svc", hosts={"svc": HostSpec("svc", local=True)})
        async with bench_of(mock, tunnel=tunnel) as bench:
            cell = await cell_of(bench, 2)
    assert cell.requests.ok == 4
    assert mock.requests[0].headers["host"] == f"127.0.0.1:{mock.port}"


async def test_a_tunnel_by_way_of_nothing() -> None:
    tunnel = SshTunnel(via="nowhere", hosts={})
    async with mock_endpoint() as mock, bench_of(mock, tunnel=tunnel) as bench:
        with pytest.raises(UsageError):
            await bench.identify()
        cell = await cell_of(bench, 1)
    assert cell.requests.errors == {"no-host": 1}
