"""The command line is a contract: words, exit codes, one document on stdout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from specdash.cli.main import VERBS, run

RIG = """\
[hosts.svc]
ssh = "root@127.0.0.1:1"
[service]
host = "svc"
kind = "systemd"
unit = "sglang.service"
[config]
host = "svc"
path = "/etc/systemd/system/sglang.service"
[engine]
kind = "sglang"
url = "http://127.0.0.1:30000"
"""


@pytest.fixture(autouse=True)
def user_dirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    rigs = tmp_path / "XDG_CONFIG_HOME" / "specdash" / "rigs"
    rigs.mkdir(parents=True)
    (rigs / "qwen.toml").write_text(RIG)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    """The one document on stdout."""
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "code", "slug"),
    [
        (["cycel", "qwen"], 2, "unknown-rig"),
        (["nothing-of-that-name"], 2, "unknown-rig"),
        (["cycle", "qwen", "--steps", "x"], 2, "usage"),
        (["cycle", "qwen", "--steps", "-1"], 2, "usage"),
        (["cycle", "qwen", "--step", "3"], 2, "usage"),
        (["cycle", "qwen"], 2, "failed"),
        (["cycle", "qwen", "--measure-only", "--steps", "3"], 2, "usage"),
        (["cycle", "none", "--steps", "3", "--yes"], 2, "unknown-rig"),
        (["cycle", "none", "--steps", "3"], 2, "unknown-rig"),
        (["cycle", "qwen", "--steps", "3", "--concurrency", "0"], 2, "usage"),
        (["cycle", "qwen", "--steps", "3", "--concurrency", "1,1"], 2, "usage"),
        (["cycle", "qwen", "--steps", "3", "--speed", "9", "--yes"], 2, "usage"),
        (["cycle", "qwen", "--steps", "3"], 4, "no-yes"),
        (["plan", "qwen"], 2, "usage"),
        (["plan", "none", "--steps", "3"], 2, "unknown-rig"),
        (["rig"], 2, "usage"),
        (["rig", "shwo", "qwen"], 2, "usage"),
        (["rig", "show", "none"], 2, "unknown-rig"),
        (["plan", "qwen", "--steps", "3", "-F", "/nowhere/config"], 2, "ssh-config"),
        (["demo"], 2, "no-terminal"),
        (["qwen"], 2, "no-terminal"),
        ([], 2, "no-terminal"),
    ],
)
def test_a_failure_is_one_document_and_a_code(
    words: Sequence[str],
    code: int,
    slug: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert run([*words, "--json"]) == code
    body = said(capsys)
    assert set(body["error"]) == {"code", "message", "remedy"}
    assert body["error"]["code"] == slug or slug == "failed"
    assert body["error"]["message"]


def test_the_nearest_verb_and_rig_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cycel", "--json"]) == 2
    assert "'cycle'" in said(capsys)["error"]["remedy"]
    assert run(["rig", "show", "qwne", "--json"]) == 2
    assert "'qwen'" in said(capsys)["error"]["remedy"]


@pytest.mark.parametrize("verb", [["rig", "check"], ["plan"], ["cycle"]])
def test_an_unreachable_host_exits_3(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    more = {"plan": ["--steps", "3"], "cycle": ["--steps", "3", "--yes"]}.get(verb[0], [])
    assert run([*verb, "qwen", *more, "--json"]) == 3
    body = said(capsys)
    assert "127.0.0.1" in body["error"]["message"]
    assert body["error"]["remedy"]
    if verb[0] == "cycle":
        assert body["outcome"] == "failed"
        assert body["failure"]["stage"] == "preflight"


def test_a_bad_rig_file_names_its_line_and_nothing_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(RIG.replace("unit =", "unti ="))
    for verb in (["rig", "check"], ["rig", "show"], ["plan"], ["cycle"]):
        more = [] if verb[0] == "rig" else ["--steps", "3"]
        assert run([*verb, str(path), *more, "--json"]) == 2
        assert "bad.toml:6:" in said(capsys)["error"]["message"]


def test_rig_list_and_show(user_dirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = user_dirs / "XDG_CONFIG_HOME" / "specdash" / "rigs" / "broken.toml"
    broken.write_text("[")
    assert run(["rig", "list", "--json"]) == 0
    rigs = said(capsys)["rigs"]
    assert [(row["name"], row["ok"]) for row in rigs] == [("broken", False), ("qwen", True)]
    assert set(rigs[0]) == {"name", "path", "ok"}
    assert run(["rig", "--json", "show", "qwen"]) == 0
    assert said(capsys)["rig"]["service"]["unit"] == "sglang.service"


@pytest.mark.parametrize("verb", [*VERBS, ""])
def test_help_names_the_verb(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*([verb] if verb else []), "--help"]) == 0
    out = capsys.readouterr().out
    assert f"specdash {verb}".strip() in out
    if not verb:
        assert all(name in out for name in VERBS)


def test_the_plan_of_the_demo_touches_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "demo", "--steps", "10", "--json"]) == 0
    body = said(capsys)
    assert body["refusals"] == []
    assert body["stages"][0]["name"] == "stop"
    write = next(stage for stage in body["stages"] if stage["name"] == "write")
    assert "+    --speculative-num-steps 10" in write["writes"][0]["diff"]
    assert all(isinstance(word, str) for s in body["stages"] for a in s["commands"] for word in a)


def test_a_refused_plan_is_still_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["plan", "demo", "--steps", "2", "--topk", "2", "--draft-tokens", "99", "--json"]) == 4
    )
    body = said(capsys)
    assert body["refusals"]
    assert body["stages"]
    assert body["error"]["code"]


def specdash(*words: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from specdash.cli.main import main; main()", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def test_a_cycle_of_the_demo_as_a_script_sees_it() -> None:
    process = specdash(
        "cycle", "demo", "--steps", "4", "--concurrency", "1", "--speed", "1000", "--yes", "--json"
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    body = json.loads(out)
    assert body["simulated"] is True
    assert "SIMULATED" in err
    assert body["outcome"] == "measured"
    assert body["candidate"]["num_draft_tokens"] == 5
    assert body["resolved"]["num_steps"] == 4
    assert body["capacity"]["max_running_requests"] > 0
    assert len(body["gpu"]["peak_mib"]) == 4
    assert [stage["state"] for stage in body["stages"]] == ["done"] * 10


def test_jsonl_streams_events_and_nothing_else() -> None:
    process = specdash(
        *("cycle", "demo", "--steps", "2", "--concurrency", "1", "--speed", "1000"),
        *("--yes", "--jsonl"),
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    events = [json.loads(line) for line in out.splitlines()]
    names = [event["event"] for event in events]
    assert "stage_started" in names
    assert "cell_measured" in names
    assert names[-1] == "cycle_ended"
    assert all("t" in event for event in events)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupting_a_cycle_brings_the_rig_back(number: int) -> None:
    process = specdash(
        *("cycle", "demo", "--steps", "4", "--concurrency", "1", "--yes", "--json"),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("load ..."):
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    body = json.loads(out)
    assert body["outcome"] == "cancelled"
    assert body["end_state"] == "running, steps 1/1/2, restored"
    assert body["error"]["code"] == "interrupted"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_impatient_interrupt_still_names_the_state(number: int) -> None:
    process = specdash(
        *("cycle", "demo", "--steps", "4", "--concurrency", "1", "--yes", "--json"),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    wanted = iter(("load ...", "stopping the service"))
    awaited = next(wanted)
    for line in process.stderr:
        if line.strip().startswith(awaited):
            process.send_signal(number)
            awaited = next(wanted, "\0")
            if awaited == "\0":
                break
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    body = json.loads(out)
    assert body["outcome"] == "cancelled"
    assert body["end_state"].endswith("config says steps 1/1/2")


def test_what_nohup_lets_pass_does_not_end_the_work() -> None:
    process = specdash(
        *("gpus", "demo", "--watch", "--jsonl", "--count", "6", "--interval-ms", "300"),
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert len(out.splitlines()) == 5


@pytest.mark.parametrize(
    ("value", "code", "slug"),
    [
        (None, 2, "api-key-missing"),
        (" \n", 2, "api-key-missing"),
        ("sk-a\nX: b", 2, "bad-key"),
        ("sk-a\n", 3, "connection-refused"),
    ],
)
def test_a_key_that_cannot_be_sent_is_said_before_anything_runs(
    value: str | None,
    code: int,
    slug: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "key.toml"
    path.write_text(RIG.replace("[engine]", '[engine]\napi_key_env = "LLM_KEY"'))
    monkeypatch.delenv("LLM_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("LLM_KEY", value)
    for verb in (["rig", "check"], ["plan"], ["cycle", "--yes"]):
        more = [] if verb[0] == "rig" else ["--steps", "3"]
        assert run([*verb, str(path), *more, "--json"]) == code
        said_all = capsys.readouterr()
        assert json.loads(said_all.out)["error"]["code"] == slug
        assert "sk-a" not in said_all.out + said_all.err
