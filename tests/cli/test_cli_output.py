"""What reaches stdout and stderr, whatever the words, the terminal and the pipes are like."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specdash.cli.main import VERBS, run, verb_first
from specdash.cli.output import Out, json_text
from specdash.core.errors import InternalError

MAIN = (sys.executable, "-c", "from specdash.cli.main import main; main()")


@pytest.fixture(autouse=True)
def user_dirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))


def shell(line: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    """``$@`` is the specdash command."""
    return subprocess.run(
        ["bash", "-c", line, "bash", *MAIN],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **environ},
        timeout=60,
        check=False,
    )


# -- the words --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--json", "rig", "list"], ["rig", "--json", "list"]),
        (
            ["-F", "f", "--jsonl", "gpus", "h", "--json"],
            ["gpus", "-F", "f", "--jsonl", "h", "--json"],
        ),
        (["--ssh-config=f", "-Fg", "plan", "r"], ["plan", "--ssh-config=f", "-Fg", "r"]),
        (["-F", "plan", "r"], ["-F", "plan", "r"]),
        (["--json"], ["--json"]),
        (["qwen", "cycle"], ["qwen", "cycle"]),
        ([], []),
    ],
)
def test_what_every_verb_takes_may_stand_in_front(words: list[str], expected: list[str]) -> None:
    assert verb_first(words) == expected


def test_json_in_front_of_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--json", "rig", "list"]) == 0
    assert json.loads(capsys.readouterr().out) == {"rigs": []}


@pytest.mark.parametrize("verb", [["rig", "list"], ["themes"], ["bench", "--url", "http://h"]])
def test_json_and_jsonl_together_are_a_usage_error(
    verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*verb, "--json", "--jsonl"]) == 2
    assert "one of the two" in json.loads(capsys.readouterr().out)["error"]["remedy"]


@pytest.mark.parametrize("words", [[], ["rig", "show"], ["plan", "--steps", "1"], ["gpus"]])
def test_a_name_longer_than_a_file_can_have(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "x" * 5000, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"].startswith("unknown-")


@pytest.mark.parametrize("steps", ["1_0", " 3", "٣", "3.0", "1e1", "", "9" * 5000, "0x3"])
def test_a_whole_number_is_ascii_digits(steps: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "demo", f"--steps={steps}", "--json"]) == 2
    message = json.loads(capsys.readouterr().out)["error"]["message"]
    assert "no whole number" in message
    assert len(message) < 200


def test_the_rig_in_a_box_is_shown_as_any_rig(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rig", "show", "demo", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rig"]["engine"]["kind"] == "sglang"


def test_a_mistake_of_our_own_is_still_one_document(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(directory: Path) -> list[Path]:
        raise ZeroDivisionError

    monkeypatch.setattr("specdash.cli.verbs.rig.rig_files", broken)
    assert run(["rig", "list", "--json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["error"]["code"] == InternalError.default_code
    assert "ZeroDivisionError" in said.err


# -- the text ---------------------------------------------------------------------------------


def test_json_holds_nothing_that_a_terminal_acts_on() -> None:
    hostile = "\x1b]52;c;aGk=\x07 \x9b31m \u202ebidi \u2028 日本 🚀 \x7f"
    text = json_text({"a": hostile}, ascii_only=False)
    assert json.loads(text) == {"a": hostile}
    assert "日本 🚀" in text
    assert not set(text) & set("\x1b\x07\x9b\u202e\u2028\x7f")


def test_bytes_that_are_no_text_become_the_replacement_character() -> None:
    for ascii_only in (False, True):
        text = json_text({"a\udcff": ["\ud800", "🚀"]}, ascii_only=ascii_only)
        text.encode()
        assert json.loads(text) == {"a\ufffd": ["\ufffd", "🚀"]}
    assert text.isascii()


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-16-le", "utf-8"])
def test_json_is_the_same_in_every_encoding(encoding: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Out(json_document=True, stdout=stream).document({"name": "日本語 ü"})
    stream.seek(0)
    assert json.loads(stream.read()) == {"name": "日本語 ü"}


def test_foreign_text_on_a_narrow_terminal() -> None:
    done = shell('"$@" rig show 日本語', PYTHONIOENCODING="ascii:strict")
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


# -- the pipes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--help", 0),
        *((f"{verb} --help", 0) for verb in VERBS),
        ("--version", 0),
        ("rig list --json", 0),
        ("rig show none --json", 2),
        ("plan demo --steps 2", 0),
    ],
)
def test_a_reader_that_left_changes_no_exit_code(words: str, code: int) -> None:
    done = shell(f'"$@" {words} | true; exit ${{PIPESTATUS[0]}}')
    assert done.returncode == code
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('"$@" rig list --json >&-', 0),
        ('"$@" rig show none --json >&-', 2),
        ('"$@" rig show none --json 2>&-', 2),
        ('"$@" rig list --json <&-', 0),
        ('"$@" gpus --from - --json <&-', 1),
        ('"$@" <&- >&- 2>&-', 2),
        ('"$@" rig show none --json 2>/dev/full', 2),
        ('"$@" rig list --json >/dev/full', 1),
        ('"$@" --version >/dev/full', 1),
    ],
)
def test_closed_and_full_streams(line: str, code: int) -> None:
    done = shell(line)
    assert done.returncode == code
    assert b"Traceback" not in done.stderr
    if done.stdout:
        json.loads(done.stdout)


def test_messages_that_nobody_reads_change_no_exit_code() -> None:
    done = shell('"$@" plan demo --steps 2 2>&1 | true; exit ${PIPESTATUS[0]}')
    assert done.returncode == 0


def test_a_watch_ends_with_its_reader() -> None:
    done = shell('"$@" gpus demo --watch --jsonl --interval-ms 100 | head -1')
    assert json.loads(done.stdout)["event"] == "gpus_sampled"
    assert b"Traceback" not in done.stderr
