"""Which command lines are an engine's own, and which only speak of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.engines.registry import ENGINES

OWN = [
    ("sglang", "sglang::scheduler_TP0"),
    ("sglang", "sglang::scheduler"),
    ("sglang", "sglang::detokenizer"),
    ("sglang", "/opt/venv/bin/python3 -m sglang.launch_server --model-path /m --tp 4"),
    ("sglang", "python3.12 -u -m sglang.launch_server --model-path /m"),
    ("sglang", "/opt/venv/bin/python /opt/venv/bin/sglang serve --model-path /m"),
    ("sglang", "/usr/local/bin/sglang serve --model-path /m"),
    ("sglang", "python /src/sglang/launch_server.py --model-path /m"),
    ("vllm", "VLLM::EngineCore"),
    ("vllm", "VLLM::Worker_TP1"),
    ("vllm", "/opt/v/bin/python3 /opt/v/bin/vllm serve /m --port 8000"),
    ("vllm", "python -m vllm.entrypoints.openai.api_server --model /m"),
    ("llama.cpp", "/usr/local/bin/llama-server -m x.gguf --port 8080"),
    ("llama.cpp", "llama-server"),
]
NOT_OWN = [
    "tail -f /var/log/sglang.log",
    "vim sglang.launch_server",
    "grep sglang::scheduler",
    "pkill -f sglang::scheduler",
    "bash -c python -m sglang.launch_server",
    "python3 -c import sglang.launch_server",
    "python3 -m sglang.bench_serving --backend sglang",
    "journalctl -u sglang.service -f",
    "docker run lmsysorg/sglang python3 -m sglang.launch_server",
    "python3 my_vllm_notes.py",
    "vllm bench serve --model m",
    "less llama-server.log",
    "python3 -m",
    "[kworker/0:1]",
    "",
    "   ",
]


@pytest.mark.parametrize(("kind", "command"), OWN)
def test_own_processes_are_known_by_their_engine_only(kind: str, command: str) -> None:
    assert [name for name, engine in ENGINES.items() if engine.is_own_process(command)] == [kind]


@pytest.mark.parametrize("command", NOT_OWN)
def test_words_on_a_command_line_prove_nothing(command: str) -> None:
    assert not any(engine.is_own_process(command) for engine in ENGINES.values())


@given(st.text())
def test_any_command_line_is_judged(command: str) -> None:
    for engine in ENGINES.values():
        assert isinstance(engine.is_own_process(command), bool)
        assert not engine.is_own_process("cat " + command)
