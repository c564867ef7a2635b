"""From requests with known moments to the figures of a cell."""

from __future__ import annotations

import pytest

from specdash.bench.meter import Meter
from specdash.bench.reading import Draft, openai_reader
from specdash.bench.window import (
    Counters,
    Measured,
    Window,
    acceptance,
    build_cell,
    ramp_end,
    tpot_s,
    whole_requests,
)


def request(
    start: float,
    *,
    ttft: float = 0.1,
    step: float = 0.02,
    chunks: int = 50,
    per_chunk: int = 2,
    stream: int = 0,
    ignored: bool = False,
    state: str = "good",
    cause: str = "",
    draft: Draft | None = None,
) -> Meter:
    """Chunks of ``per_chunk`` tokens, ``step`` seconds apart, the first after ``ttft``."""
    meter = Meter(openai_reader(), start, stream=stream, ignored=ignored)
    for place in range(chunks):
        meter.times.append(start + ttft + place * step)
        meter.totals.append(per_chunk * (place + 1))
    meter._total = per_chunk * chunks
    meter.first = meter.times[0]
    meter.ended = meter.times[-1]
    meter.state = state  # type: ignore[assignment]
    meter.cause = cause
    meter.draft = draft
    return meter


def cell_of(meters: list[Meter], opened: float, closed: float, **more: object):  # type: ignore[no-untyped-def]
    return build_cell(
        Measured(concurrency=1, meters=meters, window=Window(opened, closed), **more)  # type: ignore[arg-type]
    )


def test_the_rate_is_tokens_in_the_window_over_the_window() -> None:
    cell = cell_of([request(0.0), request(2.0)], 0.0, 4.0)
    assert cell.output_tokens == 200
    assert cell.output_tok_s == pytest.approx(50)
    assert cell.chunks == 100
    assert cell.window_s == 4.0
    assert cell.requests.ok == 2


def test_tokens_outside_the_window_do_not_count() -> None:
    # Chunks at 0.1, 0.12, ... 1.08; (0.2, 0.3] holds those at 0.22 .. 0.30.
    cell = cell_of([request(0.0)], 0.2, 0.3 + 1e-9)
    assert cell.output_tokens == 10


def test_definitions_of_the_per_request_figures() -> None:
    cell = cell_of([request(0.0)], 0.0, 2.0)
    assert cell.ttft_ms.mean == pytest.approx(100)
    assert cell.tpot_ms.mean == pytest.approx(1000 * 49 * 0.02 / 99)
    assert cell.per_request_tok_s == pytest.approx(1000 / cell.tpot_ms.mean)
    assert cell.chunk_gap_ms.p50 == pytest.approx(20)
    assert cell.itl_ms.p50 == pytest.approx(10)


@pytest.mark.parametrize("per_chunk", [1, 2, 4, 8, 16])
def test_packing_tokens_changes_gap_and_not_rate(per_chunk: int) -> None:
    chunks = 160 // per_chunk
    step = 0.01 * per_chunk
    # The last token of each request is at the same moment, however they are packed.
    meters = [
        request(start, ttft=step, step=step, chunks=chunks, per_chunk=per_chunk)
        for start in (0.0, 1.6)
    ]
    cell = cell_of(meters, 0.0, 3.2)
    assert cell.output_tok_s == pytest.approx(100)
    assert cell.itl_ms.mean == pytest.approx(10)
    assert cell.chunk_gap_ms.mean == pytest.approx(10 * per_chunk)


def test_a_failed_request_leaves_the_others_standing() -> None:
    bad = request(1.0, state="failed", cause="http-500")
    cell = cell_of([request(0.0), bad], 0.0, 2.0)
    assert cell.output_tokens == 100
    assert cell.requests.to_json() == {"ok": 1, "failed": 1, "errors": {"http-500": 1}}
    assert "failed" not in cell.flags


def test_without_a_good_request_there_is_no_figure() -> None:
    bad = [request(0.0, state="failed", cause="stalled") for _ in range(3)]
    cell = cell_of(bad, 0.0, 2.0)
    assert "failed" in cell.flags
    assert not cell.good
    assert cell.output_tok_s is None
    assert cell.output_tokens is None
    assert cell.requests.errors == {"stalled": 3}


def test_a_window_shorter_than_a_request_still_has_a_figure() -> None:
    running = request(0.0, state="cut")
    cell = cell_of([running], 0.2, 0.8)
    assert cell.good
    assert cell.output_tok_s == pytest.approx(100)
    assert cell.per_request_tok_s == pytest.approx(99 / 0.98)


def test_a_little_has_no_interval_and_says_so() -> None:
    cell = cell_of([request(0.0, chunks=5)], 0.0, 1.0)
    assert "short" in cell.flags
    assert (cell.output_tok_s_low, cell.output_tok_s_high) == (None, None)
    assert cell.output_tok_s == 10


def test_requests_that_fill_the_ramp_count_as_tokens_only() -> None:
    ramp = request(0.0, ignored=True, ttft=0.5)
    cell = cell_of([ramp, request(1.0, stream=1)], 0.49, 3.0)
    assert cell.output_tokens == 200
    assert cell.requests.ok == 1
    assert cell.ttft_ms.mean == pytest.approx(100)


def test_ttft_is_of_requests_sent_in_the_window() -> None:
    cell = cell_of([request(0.0, ttft=0.9), request(2.0)], 1.5, 4.0)
    assert cell.ttft_ms.mean == pytest.approx(100)


def test_the_ramp_ends_with_the_last_first_token() -> None:
    meters = [request(0.0, ttft=0.1 * (k + 1), stream=k) for k in range(3)]
    assert ramp_end(meters, 3) == pytest.approx(0.3)
    assert ramp_end(meters, 2) == pytest.approx(0.2)
    assert ramp_end(meters, 4) is None


def test_at_one_request_the_window_holds_whole_requests() -> None:
    meters = [request(0.0), request(1.1), request(2.2)]
    window = whole_requests(meters, 0.0, 2.9)
    assert window is not None
    assert window.closed == pytest.approx(1.1 + 1.08)
    assert whole_requests(meters, 0.0, 1.0) is None
    # Time to first token stands in its true proportion: two requests in two requests' time.
    cell = build_cell(Measured(concurrency=1, meters=meters, window=window))
    assert cell.output_tok_s == pytest.approx(200 / (2 * 1.08 + 0.02))


def test_acceptance_weighs_rounds_not_requests() -> None:
    meters = [
        request(0.0, draft=Draft(100, 25, (5, 20))),
        request(0.0, draft=Draft(20, 20, (20, 0, 0))),
        request(0.0, draft=Draft(64, 1), ignored=True),
    ]
    length, histogram = acceptance(meters, None)
    assert length == pytest.approx(120 / 45)
    assert histogram == (25, 20, 0)


def test_acceptance_from_the_engines_counters() -> None:
    assert acceptance([request(0.0)], Counters(100, 150, (10, 90))) == (2.5, (10, 90))
    assert acceptance([request(0.0)], None) == (None, None)


def test_tpot_of_a_request_we_cut_ends_at_its_last_token() -> None:
    meter = request(0.0, state="cut")
    meter.ended = 100.0
    assert tpot_s(meter) == pytest.approx(49 * 0.02 / 99)
    assert tpot_s(request(0.0, chunks=1, per_chunk=1)) is None
