"""Why a load failed, from the logs of failed loads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.engines.registry import ENGINES, engine_for

Lines = Callable[[str], list[str]]


@pytest.mark.parametrize(
    ("kind", "name", "code", "words", "remedy"),
    [
        ("sglang", "sglang/fail_memory_too_small.txt", "memory-too-small", "0.7", "Raise"),
        ("sglang", "sglang/fail_graph_oom.txt", "out-of-memory", "GPU", "Lower"),
        ("sglang", "sglang/fail_tree.txt", "illegal-combination", "tree", "draft tokens"),
        (
            "sglang",
            "sglang/fail_unknown_flag.txt",
            "unknown-flag",
            "--speculative-depth 4",
            "--help",
        ),
        ("sglang", "sglang/fail_port.txt", "port-in-use", "port", "end it"),
        ("sglang", "sglang/fail_restart_loop.txt", "crash", "killed from outside", "OOM"),
        ("vllm", "vllm/fail_held.txt", "orphan-worker", "cuda:0", "holds the GPU"),
        (
            "llama.cpp",
            "llama_cpp_b10434/log_removed_flag.txt",
            "unknown-flag",
            "--draft-max",
            "Spell",
        ),
        (
            "llama.cpp",
            "llama_cpp_b10434/log_unknown_flag.txt",
            "unknown-flag",
            "--speculative-num-steps",
            "--help",
        ),
        ("llama.cpp", "llama_cpp_b10434/log_bad_value.txt", "unknown-flag", "--spec", "Correct"),
        ("llama.cpp", "llama_cpp_b10434/log_bad_type.txt", "unknown-flag", "eagle", "Correct"),
        (
            "llama.cpp",
            "llama_cpp_b10434/log_missing_model.txt",
            "missing-weights",
            "nowhere.gguf (No such file",
            "path",
        ),
        (
            "llama.cpp",
            "llama_cpp_b10434/log_missing_draft.txt",
            "missing-weights",
            "draft model cannot be read: nowhere.gguf",
            "draft",
        ),
        ("llama.cpp", "llama_cpp_b10434/log_bad_model.txt", "missing-weights", "not one", "GGUF"),
        ("llama.cpp", "llama_cpp_b10434/log_port_in_use.txt", "port-in-use", "18520", "end it"),
        (
            "llama.cpp",
            "llama_cpp_b10434/log_no_draft_model.txt",
            "illegal-combination",
            "requires a draft context",
            "draft model",
        ),
    ],
)
def test_cause(kind: str, name: str, code: str, words: str, remedy: str, lines_of: Lines) -> None:
    lines = lines_of(name)
    cause = ENGINES[kind].diagnose(lines)  # type: ignore[index]
    assert cause is not None
    assert cause.code == code
    assert words in cause.message
    assert remedy in cause.remedy
    assert cause.evidence
    assert all(any(proof in line for line in lines) for proof in cause.evidence)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("TypeError: '>' not supported between instances of 'NoneType' and 'int'", "illegal-combination"),
        ("ValueError: trtllm_mha backend only supports topk = 1 for speculative decoding.", "illegal-combination"),
        ("ValueError: DSpark speculative_num_draft_tokens must be >= 2 (= gamma + 1), got 1.", "illegal-combination"),
        ("RuntimeError: rpc_port 30201 is used by a process already. process.name()='sglang'", "orphan-worker"),
        ("OSError: /models/none is not a local folder and is not a valid model identifier", "missing-weights"),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 12000).", "driver"),
        ("Failed to initialize NVML: Driver/library version mismatch", "driver"),
        ("RuntimeError: No CUDA GPUs are available", "driver"),
        ("sglang.service: A process of this unit has been killed by the OOM killer.", "out-of-memory"),
        ("ZeroDivisionError: division by zero", "crash"),
        ("sglang.service: Scheduled restart job, restart counter is at 5.", "restart-loop"),
    ],
)  # fmt: skip
def test_sglang_lines(line: str, code: str) -> None:
    cause = engine_for("sglang").diagnose(["something before", line, "something after"])
    assert cause is not None
    assert cause.code == code
    assert cause.evidence == (line,)


def test_killed_is_not_called_out_of_memory() -> None:
    cause = engine_for("sglang").diagnose(
        ["sglang.service: Main process exited, code=killed, status=9/KILL"]
    )
    assert cause is not None
    assert cause.code == "crash"
    assert "no proof of missing memory" in cause.message


def test_root_cause_stands_before_the_restart_loop_it_made(lines_of: Lines) -> None:
    lines = [
        *lines_of("sglang/fail_restart_loop.txt"),
        *lines_of("sglang/fail_memory_too_small.txt"),
    ]
    cause = engine_for("sglang").diagnose(lines)
    assert cause is not None
    assert cause.code == "memory-too-small"


@pytest.mark.parametrize("kind", list(ENGINES))
def test_healthy_logs_have_no_cause(kind: str, lines_of: Lines) -> None:
    healthy = {
        "sglang": "sglang/log_2026.txt",
        "vllm": "vllm/log.txt",
        "llama.cpp": "llama_cpp_b10434/log_ready_drafting.txt",
    }
    assert ENGINES[kind].diagnose(lines_of(healthy[kind])) is None  # type: ignore[index]


@given(st.lists(st.text(), max_size=8))
def test_any_log_is_read(lines: list[str]) -> None:
    for engine in ENGINES.values():
        cause = engine.diagnose(lines)
        assert cause is None or (cause.message and cause.remedy and cause.evidence)


def test_text_from_the_log_is_not_a_format_string() -> None:
    cause = engine_for("sglang").diagnose(["KeyError: '{0} {message} {'"])
    assert cause is not None
    assert "{message}" in cause.message


def test_control_sequences_do_not_reach_the_evidence() -> None:
    cause = engine_for("sglang").diagnose(
        ["\x1b[31mRuntimeError: No CUDA GPUs are available\x1b[0m"]
    )
    assert cause is not None
    assert cause.evidence == ("RuntimeError: No CUDA GPUs are available",)
