"""``specdash edit`` as scripts see it: one document, exit codes, and files that stay as they were."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from specdash.cli.main import run

UNIT = """[Service]
ExecStart=/opt/v/bin/python -m sglang.launch_server \\
  --model-path /m --api-key sk-very-secret \\
  --speculative-algorithm EAGLE3 \\
  --speculative-num-steps 3 \\
  --speculative-eagle-topk 1 \\
  --speculative-num-draft-tokens 4 \\
  --port 30000
"""
KEYS = {
    "path",
    "engine",
    "changed",
    "written",
    "backup",
    "before",
    "after",
    "diff",
    "argv",
    "warnings",
}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "specdash"


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    path = tmp_path / "sgl.service"
    path.write_text(UNIT)
    return path


def edit(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, object]]:
    """Run with ``--json``; exactly one document has to be on stdout."""
    capsys.readouterr()
    code = run(["edit", *map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


def numbers(settings: object) -> tuple[object, ...]:
    assert isinstance(settings, dict)
    return settings["num_steps"], settings["eagle_topk"], settings["num_draft_tokens"]


def test_reads_without_a_candidate(capsys: pytest.CaptureFixture[str], unit: Path) -> None:
    code, body = edit(capsys, unit)
    assert code == 0
    assert set(body) == KEYS
    assert body["changed"] is body["written"] is False
    assert body["before"] == body["after"]
    assert numbers(body["before"]) == (3, 1, 4)
    assert (body["engine"], body["backup"], body["diff"]) == ("sglang", None, "")
    assert unit.read_text() == UNIT


def test_shows_and_writes_nothing_without_write(
    capsys: pytest.CaptureFixture[str], unit: Path, state: Path
) -> None:
    code, body = edit(capsys, unit, "--steps", 5)
    assert code == 0
    assert (body["changed"], body["written"]) == (True, False)
    assert numbers(body["after"]) == (5, 1, 6)
    assert "+  --speculative-num-steps 5 \\" in str(body["diff"])
    assert "sk-very-secret" not in json.dumps(body)
    assert unit.read_text() == UNIT
    assert not state.exists()


def test_writes_with_a_backup_and_keeps_the_mode(
    capsys: pytest.CaptureFixture[str], unit: Path
) -> None:
    unit.chmod(0o640)
    code, body = edit(capsys, unit, "--steps", 10, "--write")
    assert code == 0
    assert body["written"] is True
    expected = UNIT.replace("num-steps 3", "num-steps 10").replace(
        "draft-tokens 4", "draft-tokens 11"
    )
    assert unit.read_text() == expected
    assert stat.S_IMODE(unit.stat().st_mode) == 0o640
    backup = Path(str(body["backup"]))
    assert backup.read_text() == UNIT
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert sorted(p.name for p in unit.parent.iterdir()) == ["sgl.service", "state"]
    code, body = edit(capsys, unit, "--steps", 3, "--write")
    assert unit.read_text() == UNIT
    code, body = edit(capsys, unit, "--steps", 3, "--write")
    assert (code, body["changed"], body["written"], body["backup"]) == (0, False, False, None)


def test_a_symlink_stays_and_its_target_changes(
    capsys: pytest.CaptureFixture[str], unit: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link.service"
    link.symlink_to(unit)
    code, body = edit(capsys, link, "--steps", 2, "--write")
    assert code == 0
    assert body["path"] == str(link)
    assert link.is_symlink()
    assert "num-steps 2" in unit.read_text()


@pytest.mark.parametrize("from_backup", [False, True])
def test_off_and_on_again(
    capsys: pytest.CaptureFixture[str], unit: Path, state: Path, from_backup: bool
) -> None:
    code, body = edit(capsys, unit, "--steps", 0, "--write")
    assert code == 0
    assert numbers(body["after"]) == (0, None, None)
    assert isinstance(body["after"], dict)
    assert body["after"]["enabled"] is False
    assert "speculative" not in unit.read_text()
    assert edit(capsys, unit)[1]["before"] == body["after"]
    if from_backup:
        for path in (state / "removed").iterdir():
            path.unlink()
    code, body = edit(capsys, unit, "--steps", 3, "--write")
    assert code == 0
    assert unit.read_text() == UNIT
    assert isinstance(body["after"], dict)
    assert body["after"]["algorithm"] == "EAGLE3"


def test_on_without_anything_kept_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "run.sh"
    path.write_text("python -m sglang.launch_server --port 1\n")
    code, body = edit(capsys, path, "--steps", 3)
    assert code == 4
    assert isinstance(body["error"], dict)
    assert body["error"]["code"] == "nothing-to-restore"
    assert "--speculative-algorithm" in body["error"]["message"]


def test_an_emptied_environment_file_can_be_turned_on_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "llama.env"
    path.write_text("LLAMA_ARG_SPEC_DRAFT_N_MAX=4\nLLAMA_ARG_PORT=1\n")
    assert edit(capsys, path, "--steps", 0, "--write")[0] == 0
    assert path.read_text() == "LLAMA_ARG_PORT=1\n"
    code, _body = edit(capsys, path, "--steps", 6, "--write")
    assert code == 0
    assert path.read_text() == "LLAMA_ARG_SPEC_DRAFT_N_MAX=6\nLLAMA_ARG_PORT=1\n"


def test_an_illegal_candidate_prints_the_document_and_exits_4(
    capsys: pytest.CaptureFixture[str], unit: Path
) -> None:
    code, body = edit(capsys, unit, "--steps", 3, "--draft-tokens", 9, "--write")
    assert code == 4
    assert set(body) == KEYS | {"error"}
    assert numbers(body["before"]) == (3, 1, 4)
    assert (body["after"], body["changed"], body["written"]) == (None, False, False)
    assert unit.read_text() == UNIT


@pytest.mark.parametrize(
    "words",
    [
        ("--steps", "-1"),
        ("--steps", "3.0"),
        ("--steps", "many"),
        ("--steps", "99999999999999999999"),
        ("--steps", "3", "--topk", "0"),
        ("--steps", "3", "--draft-tokens", "0"),
        ("--steps",),
        ("--engine", "trt"),
        ("--unknown",),
    ],
)
def test_values_outside_their_domain_exit_2(
    capsys: pytest.CaptureFixture[str], unit: Path, words: tuple[str, ...]
) -> None:
    code, body = edit(capsys, unit, *words)
    assert code == 2
    assert "error" in body
    assert unit.read_text() == UNIT


def test_topk_alone_keeps_the_steps(capsys: pytest.CaptureFixture[str], unit: Path) -> None:
    code, body = edit(capsys, unit, "--topk", 4, "--draft-tokens", 8)
    assert code == 0
    assert numbers(body["after"]) == (3, 4, 8)


def test_block_algorithms_take_draft_tokens(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "run.sh"
    path.write_text(
        "sglang serve --speculative-algorithm DFLASH --speculative-num-draft-tokens 8\n"
    )
    code, body = edit(capsys, path, "--steps", 5)
    assert code == 4
    assert "--draft-tokens" in json.dumps(body["error"])
    code, body = edit(capsys, path, "--draft-tokens", 16)
    assert code == 0
    assert "--speculative-num-draft-tokens 16" in str(body["diff"])


def test_a_value_elsewhere_is_named_and_followed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    env = tmp_path / "sgl.env"
    env.write_text(
        "# x\nSPEC='--speculative-algorithm EAGLE3 --speculative-num-steps 3"
        " --speculative-eagle-topk 1 --speculative-num-draft-tokens 4'\n"
    )
    unit = tmp_path / "sgl.service"
    text = f"[Service]\nEnvironmentFile={env}\nExecStart=/v/python -m sglang.launch_server $SPEC\n"
    unit.write_text(text)
    code, body = edit(capsys, unit, "--steps", 5, "--write")
    assert code == 1
    assert isinstance(body["error"], dict)
    assert str(env) in body["error"]["message"]
    assert "line 2" in body["error"]["message"]
    code, body = edit(capsys, unit, "--steps", 5, "--follow", "--write")
    assert code == 0
    assert body["path"] == str(env)
    assert "--speculative-num-steps 5" in env.read_text()
    assert unit.read_text() == text
    assert edit(capsys, unit, "--steps", 0, "--follow", "--write")[0] == 0
    assert "SPEC=''" in env.read_text()
    assert edit(capsys, unit, "--steps", 5, "--follow", "--write")[0] == 0
    assert "--speculative-num-steps 5" in env.read_text()


def test_a_drop_in_beside_the_unit_is_said(capsys: pytest.CaptureFixture[str], unit: Path) -> None:
    folder = unit.with_name("sgl.service.d")
    folder.mkdir()
    (folder / "10.conf").write_text("[Service]\nExecStart=\nExecStart=/x\n")
    code, body = edit(capsys, unit)
    assert code == 0
    assert "10.conf" in json.dumps(body["warnings"])


@pytest.mark.parametrize(
    "kind", ["missing", "directory", "fifo", "binary", "latin", "big", "empty", "loop"]
)
def test_what_is_no_launch_config(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "thing"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind != "missing":
        path.write_bytes(
            {
                "binary": b"\x7fELF\0\0",
                "latin": b"A=\xe9\n",
                "big": b"#" * 10_000_000,
                "empty": b"",
            }[kind]
        )
    code, body = edit(capsys, path, "--steps", 3, "--write")
    assert code == 1
    assert isinstance(body["error"], dict)
    assert body["error"]["message"]
    assert str(path) in str(body["error"]["message"])


def test_a_read_only_file_is_left_alone(capsys: pytest.CaptureFixture[str], unit: Path) -> None:
    unit.chmod(0o444)
    code, body = edit(capsys, unit, "--steps", 5, "--write")
    assert code == 1
    assert "read-only" in json.dumps(body["error"])
    assert unit.read_text() == UNIT


def test_a_name_that_is_no_utf8(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.service")
    path.write_text(UNIT)
    code, body = edit(capsys, path, "--steps", 5, "--write")
    assert code == 0
    assert "\ufffd" in str(body["path"])


def test_an_unknown_engine_is_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "x.env"
    path.write_text("STEPS=3\n")
    code, body = edit(capsys, path, "--steps", 3)
    assert code == 1
    assert "--engine" in json.dumps(body["error"])


def test_people_see_the_diff(capsys: pytest.CaptureFixture[str], unit: Path) -> None:
    assert run(["edit", str(unit), "--steps", "5"]) == 0
    said = capsys.readouterr()
    assert "3/1/4 -> 5/1/6" in said.out
    assert "-  --speculative-num-steps 3 \\" in said.out
    assert "--write" in said.out
    assert "topk 1" in said.err


def test_a_file_that_changes_meanwhile_is_left_alone(
    unit: Path, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from specdash.cli import localfile

    real = localfile._write_beside

    def meanwhile(file: localfile.LocalFile, data: bytes) -> Path:
        temporary = real(file, data)
        thread = threading.Thread(target=unit.write_text, args=("# mine\n" + UNIT,))
        thread.start()
        thread.join()
        return temporary

    monkeypatch.setattr(localfile, "_write_beside", meanwhile)
    code, body = edit(capsys, unit, "--steps", 5, "--write")
    assert code == 1
    assert isinstance(body["error"], dict)
    assert body["error"]["code"] == "changed-underfoot"
    assert unit.read_text() == "# mine\n" + UNIT
    assert [p.name for p in unit.parent.glob(".*")] == []


def test_nothing_is_taken_out_that_cannot_be_kept(
    unit: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    before = unit.read_bytes()
    for steps in (0, 7):
        code, body = edit(capsys, unit, "--steps", steps, "--write")
        assert code == 1
        assert body["written"] is False
        assert "was not changed" in str(body["error"])
        assert unit.read_bytes() == before
