"""``specdash themes`` as scripts see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specdash.cli.main import run


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "specdash" / "themes"
    folder.mkdir(parents=True)
    return folder


def test_one_document_with_name_kind_and_path(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (config / "mine.toml").write_text('name="mine"\ndark=false\n[colors]\nprimary="#123456"\n')
    assert run(["themes", "--json"]) == 0
    out = capsys.readouterr()
    body = json.loads(out.out)
    assert {"name": "mine", "dark": False, "path": str(config / "mine.toml")} in body["themes"]
    assert {"night", "day"} <= {item["name"] for item in body["themes"]}
    assert body["problems"] == []


def test_for_people_a_line_each(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["themes"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert any(row.split()[:2] == ["night", "dark"] for row in rows)
    assert any(row.split()[:2] == ["day", "light"] for row in rows)


def test_a_wrong_file_is_named_and_the_rest_is_listed(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = config / "bad.toml"
    bad.write_text('name="bad"\ndark=true\n[colors]\nprimary="blurple"\n')
    assert run(["themes", "--json"]) == 2
    out = capsys.readouterr()
    body = json.loads(out.out)
    assert "night" in {item["name"] for item in body["themes"]}
    assert body["problems"][0]["message"] == f"{bad}: colors.primary is 'blurple'"
    assert str(bad) in out.err


def test_a_streaming_reader_gets_a_line_a_theme(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["themes", "--jsonl"]) == 0
    rows = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    assert {row["event"] for row in rows} == {"theme"}
