"""Exports say SIMULATED, survive hostile notes and hold what the results hold."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from specdash.core.clock import SystemClock
from specdash.core.errors import UsageError, WorkFailedError
from specdash.core.records import Cell, CycleRecord, RequestCounts, StageRecord
from specdash.core.settings import Settings
from specdash.history.export import COLUMNS, FORMATS, export_results, render

RECORD = CycleRecord(
    rig="qwen",
    simulated=True,
    candidate=Settings("EAGLE3", 4, 1, 5, None, True),
    stages=(StageRecord("stop", "done", 2.5), StageRecord("load", "done", 61.25)),
    cells=(Cell(1, output_tok_s=277.04, requests=RequestCounts(4, 0)), Cell(16)),
    outcome="measured",
    note="=HYPERLINK(1) | past the knee?",
)


@pytest.mark.parametrize("name", FORMATS)
def test_simulated_is_said_in_every_format(name: str) -> None:
    assert "simulated" in render([RECORD], name).lower()
    assert "SIMULATED" not in render([replace(RECORD, simulated=False)], name)


def test_csv_has_a_row_a_cell_and_no_formula() -> None:
    rows = list(csv.DictReader(io.StringIO(render([RECORD], "csv"))))
    assert len(rows) == 2
    assert tuple(rows[0]) == COLUMNS
    assert rows[0]["output_tok_s"] == "277.04"
    assert rows[1]["output_tok_s"] == ""
    assert rows[0]["stop_s"] == "2.5"
    assert not rows[0]["note"].startswith("=")


def test_markdown_rows_stay_whole() -> None:
    lines = [line for line in render([RECORD], "md").splitlines() if line.startswith("|")]
    widths = {line.replace("\\|", "").count("|") for line in lines}
    assert len(widths) == 2
    assert any("4/1/5" in line and "277.0" in line for line in lines)
    assert any("61.2" in line for line in lines)


def test_json_is_the_contract() -> None:
    assert json.loads(render([RECORD], "json"))[0]["cells"][1]["output_tok_s"] is None


def test_an_unknown_format_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="xlsx"):
        render([RECORD], "xlsx")


async def test_where_it_cannot_be_written_it_says_so(tmp_path: Path) -> None:
    path = await export_results([RECORD], "md", tmp_path / "deep", "qwen", SystemClock())
    assert path.read_text(encoding="utf-8").startswith("**SIMULATED**")
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkFailedError, match="cannot be written"):
        await export_results([RECORD], "md", tmp_path / "file", "qwen", SystemClock())
