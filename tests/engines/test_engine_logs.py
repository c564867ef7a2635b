"""Load phases from whole logs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.engines.logscan import LoadReader
from specdash.engines.protocol import LogFact
from specdash.engines.registry import ENGINES, engine_for

Lines = Callable[[str], list[str]]


def _phases(kind: str, lines: list[str]) -> list[str]:
    """The phases in order, each once for each time it begins."""
    engine, reader = ENGINES[kind], LoadReader()  # type: ignore[index]
    facts = [reader.place(fact) for line in lines if (fact := engine.read_log(line))]
    return [
        fact.phase
        for index, fact in enumerate(facts)
        if index == 0 or facts[index - 1].phase != fact.phase
    ]


def test_sglang_of_2026(lines_of: Lines) -> None:
    assert _phases("sglang", lines_of("sglang/log_2026.txt")) == [
        "process",
        "weights",
        "kv-cache",
        "draft-weights",
        "kv-cache",
        "graphs",
        "warm-up",
        "ready",
    ]


def test_sglang_of_2025(lines_of: Lines) -> None:
    assert _phases("sglang", lines_of("sglang/log_2025.txt")) == [
        "process",
        "weights",
        "kv-cache",
        "graphs",
        "draft-weights",
        "graphs",
        "warm-up",
        "ready",
    ]


def test_vllm(lines_of: Lines) -> None:
    assert _phases("vllm", lines_of("vllm/log.txt")) == [
        "process",
        "weights",
        "draft-weights",
        "weights",
        "kv-cache",
        "graphs",
        "warm-up",
        "ready",
    ]


def test_llama_server_with_a_draft(lines_of: Lines) -> None:
    assert _phases("llama.cpp", lines_of("llama_cpp_b10434/log_ready_drafting.txt")) == [
        "process",
        "weights",
        "draft-weights",
        "kv-cache",
        "warm-up",
        "ready",
    ]


@pytest.mark.parametrize(
    ("kind", "line", "fact"),
    [
        (
            "sglang",
            "Multi-thread loading shards:  17% Completed | 8/48 [00:11<00:45,  1.13s/it]",
            LogFact("weights", 8 / 48, "shards 8/48"),
        ),
        (
            "sglang",
            "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:05<00:15]",
            LogFact("weights", 0.25, "shards 1/4"),
        ),
        (
            "sglang",
            (
                "\x1b[33mLoading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?]\x1b[0m\r"
                "Loading safetensors checkpoint shards:  75% Completed | 3/4 [00:05<00:15]"
            ),
            LogFact("weights", 0.75, "shards 3/4"),
        ),
        (
            "sglang",
            "Capturing batches (bs=4 avail_mem=7.94 GB):  25%|##5     | 1/4 [00:02<00:06]",
            LogFact("graphs", 0.25, "batch sizes 1/4"),
        ),
        (
            "sglang",
            "[2026-11-02 09:15:32 TP0] KV Cache is allocated. #tokens: 812345, K size: 1 GB",
            LogFact("kv-cache", None, "812345 tokens"),
        ),
        (
            "sglang",
            "[2026-11-02 09:15:36 TP0] Capture target verify CUDA graph begin. backend=full",
            LogFact("graphs", None, "target verify graphs"),
        ),
        (
            "sglang",
            "[2025-03-11 20:02:44 TP0] Capture draft cuda graph begin. This can take long",
            LogFact("graphs", None, "draft graphs"),
        ),
        (
            "vllm",
            "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  50%|##  | 2/4 [00:00<00:00]",
            LogFact("graphs", 0.5, "batch sizes 2/4"),
        ),
        (
            "llama.cpp",
            "main: server is listening on http://127.0.0.1:8080 - starting the main loop",
            LogFact("ready", None, "http://127.0.0.1:8080"),
        ),
    ],
)
def test_one_line(kind: str, line: str, fact: LogFact) -> None:
    assert ENGINES[kind].read_log(line) == fact  # type: ignore[index]


def test_decode_lines_say_nothing_of_the_load() -> None:
    line = (
        "[2026-11-02 10:00:00 TP0] Decode batch, #running-req: 1, #token: 523, token usage: 0.00, "
        "accept len: 2.54, gen throughput (token/s): 186.20, #queue-req: 0"
    )
    assert engine_for("sglang").read_log(line) is None


def test_ranks_that_end_late_do_not_make_the_target_a_draft() -> None:
    reader = LoadReader()
    facts = [
        LogFact("weights", 0.0, "reading weights"),
        LogFact("weights", 1.0, "loaded"),
        LogFact("weights", 1.0, "loaded"),
        LogFact("weights", 0.0, "reading weights"),
        LogFact("weights", 1.0, "loaded"),
    ]
    assert [reader.place(fact).phase for fact in facts] == [
        "weights",
        "weights",
        "weights",
        "draft-weights",
        "draft-weights",
    ]


def test_a_second_start_begins_with_the_target_again() -> None:
    reader = LoadReader()
    for fact in (LogFact("weights", 1.0, "loaded"), LogFact("ready")):
        reader.place(fact)
    reader.place(LogFact("process"))
    assert reader.place(LogFact("weights", 0.0)).phase == "weights"


@given(
    st.text()
    | st.from_regex(r"\s*(Loading .* shards:|Capturing batches.*:)\s*\d+%\|.*", fullmatch=True)
)
def test_any_line_is_read_and_fractions_stay_in_range(line: str) -> None:
    for engine in ENGINES.values():
        fact = engine.read_log(line)
        assert fact is None or fact.fraction is None or 0.0 <= fact.fraction <= 1.0


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_bars_give_their_fraction(done: int, total: int) -> None:
    line = f"Multi-thread loading shards:  17% Completed | {done}/{total} [00:11<00:45]"
    fact = engine_for("sglang").read_log(line)
    assert fact is not None
    assert fact.fraction == (min(1.0, done / total) if total else 0.17)
