"""Acceptance and queues from Prometheus text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specdash.bench.counters import between, read_metrics


def vllm(drafts: int, accepted: int, positions: tuple[int, ...], waiting: int = 0) -> str:
    lines = [
        "# HELP vllm:spec_decode_num_drafts_total Number of drafts.",
        f'vllm:spec_decode_num_drafts_total{{engine="0",model_name="m"}} {drafts}.0',
        'vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e9',
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {accepted}.0',
        f'vllm:num_requests_waiting{{engine="0"}} {waiting}.0',
    ]
    lines += [
        "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        f'{{engine="0",model_name="m",position="{place}"}} {count}.0'
        for place, count in enumerate(positions)
    ]
    return "\n".join(lines)


def test_acceptance_between_two_scrapes() -> None:
    before = read_metrics(vllm(10, 15, (9, 6)))
    after = read_metrics(vllm(110, 165, (89, 76)))
    counters = between(before, after)
    assert counters is not None
    assert (counters.rounds, counters.accepted) == (100, 150)
    assert counters.histogram == (20, 10, 70)
    assert before.engine == "vllm"


def test_workers_are_summed() -> None:
    text = vllm(10, 15, (9, 6), waiting=2) + "\n" + vllm(5, 5, (4, 1), waiting=1)
    scrape = read_metrics(text)
    assert (scrape.rounds, scrape.accepted, scrape.waiting) == (15, 20, 3)
    assert scrape.by_position == {0: 13, 1: 7}


def test_a_restart_or_no_rounds_tell_nothing() -> None:
    low, high = read_metrics(vllm(1, 1, ())), read_metrics(vllm(9, 9, ()))
    assert between(high, low) is None
    assert between(low, low) is None
    assert between(read_metrics(""), high) is None


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    read_metrics(text)


def test_not_a_number_is_passed_over() -> None:
    scrape = read_metrics("vllm:num_requests_waiting NaN\nvllm:num_requests_waiting{a} x\n")
    assert scrape.waiting is None
