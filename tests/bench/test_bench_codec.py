"""The lines between specdash and its measuring process."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.bench import codec
from specdash.bench.codec import GarbledError
from specdash.bench.protocol import Endpoint, SshTunnel, Workload
from specdash.core.events import CellMeasured, CellProgress, CellStarted
from specdash.core.records import Cell, RequestCounts, Spread
from specdash.rig.schema import HostSpec

CELL = Cell(
    concurrency=4,
    output_tok_s=123.5,
    output_tok_s_low=120.0,
    output_tok_s_high=127.0,
    per_request_tok_s=31.0,
    ttft_ms=Spread(1.0, 2.0, 3.0, 4.0),
    accept_length=2.5,
    accept_histogram=(1, 2, 3),
    output_tokens=1000,
    chunks=400,
    requests=RequestCounts(3, 1, {"http-500": 1}),
    window_s=8.1,
    flags=("queued", "short"),
)


def test_an_endpoint_with_all_its_secrets() -> None:
    endpoint = Endpoint(
        url="http://h",
        dialect="sglang",
        model="m",
        api_key="k3y",
        headers={"X-A": "b"},
        tunnel=SshTunnel(
            via="svc",
            hosts={"svc": HostSpec("svc", ssh="root@h"), "ct": HostSpec("ct", via="svc")},
            ssh_config=(Path("/a"), Path("b")),
            secrets={"svc": "pa55"},
        ),
    )
    line = codec.dump_line(codec.endpoint_to_wire(endpoint))
    assert codec.endpoint_from_wire(codec.load_line(line)) == endpoint
    assert "k3y" not in repr(endpoint)
    assert "pa55" not in repr(endpoint)


def test_a_workload() -> None:
    workload = Workload(prompts="code", output_tokens=7, requests=3, budget_s=1.5)
    assert codec.workload_from_wire(codec.workload_to_wire(workload)) == workload


def test_a_cell() -> None:
    assert codec.cell_from_json(CELL.to_json()) == CELL
    assert codec.cell_from_json(Cell(1).to_json()) == Cell(1)


def test_events() -> None:
    progress = CellProgress(
        t=5.0,
        concurrency=2,
        warming=False,
        tok_s=1.0,
        mean_tok_s=None,
        per_request_tok_s=2.0,
        ttft_ms=3.0,
        accept_length=None,
        in_flight=2,
        done=1,
        failed=0,
        elapsed_s=0.5,
        budget_s=2.0,
    )
    wire = codec.progress_to_wire(progress)
    assert codec.event_from_wire("progress", wire, 5.0) == progress
    started = {"concurrency": 2, "requests": None}
    assert codec.event_from_wire("started", started, 1.0) == CellStarted(t=1.0, concurrency=2)
    measured = {"cell": CELL.to_json(), "problems": {}}
    assert codec.event_from_wire("measured", measured, 1.0) == CellMeasured(t=1.0, cell=CELL)


@pytest.mark.parametrize(
    "line", [b"", b"hello\n", b"[]\n", b"17\n", b"\xff\n", b"[" * 100_000, b'{"a": }\n']
)
def test_what_is_no_object_is_garbled(line: bytes) -> None:
    with pytest.raises(GarbledError):
        codec.load_line(line)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["cell", "concurrency", "requests", "ttft_ms", "flags", "ok", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(st.sampled_from(["started", "progress", "measured", "other"]), JSON)
def test_any_body_is_an_event_or_garbled(kind: str, body: object) -> None:
    with suppress(GarbledError):
        codec.event_from_wire(kind, body, 0.0)


@pytest.mark.parametrize(
    "change",
    [
        {"concurrency": 0},
        {"concurrency": None},
        {"output_tok_s": "fast"},
        {"ttft_ms": [1]},
        {"requests": {"ok": "3"}},
        {"flags": "queued"},
        {"accept_histogram": ["a"]},
        {"window_s": True},
    ],
)
def test_a_cell_of_the_wrong_shape(change: dict[str, object]) -> None:
    with pytest.raises(GarbledError):
        codec.cell_from_json({**CELL.to_json(), **change})
