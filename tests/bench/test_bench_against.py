"""Two runs side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specdash.bench.against import compare, differs, read_earlier
from specdash.core.errors import WorkFailedError
from specdash.core.records import Cell

WORK = {"prompts": "mixed", "output_tokens": 256, "temperature": 0.0, "ignore_eos": True}


def cell(concurrency: int, rate: float | None, half: float | None = 2.0) -> Cell:
    if rate is None or half is None:
        return Cell(concurrency, output_tok_s=rate)
    return Cell(
        concurrency, output_tok_s=rate, output_tok_s_low=rate - half, output_tok_s_high=rate + half
    )


def written(tmp_path: Path, cells: list[Cell], **more: object) -> str:
    file = tmp_path / "earlier.json"
    body = {"url": "u", "model": "m", "engine": None, "workload": WORK}
    body |= {"cells": [c.to_json() for c in cells], **more}
    file.write_text(json.dumps(body), "utf-8")
    return str(file)


def test_better_worse_same_and_unknown(tmp_path: Path) -> None:
    before = [cell(1, 100), cell(4, 100), cell(16, 100), cell(32, 100, None), cell(64, None)]
    earlier = read_earlier(written(tmp_path, before))
    after = [cell(1, 110), cell(4, 90), cell(16, 101), cell(32, 200), cell(64, 1), cell(128, 9)]
    changes = compare(earlier, after)
    verdicts = ["better", "worse", "same", "unknown", "unknown", "unknown"]
    assert [change.verdict for change in changes] == verdicts
    first = changes[0].to_json()
    assert first["difference"] == 10
    assert first["difference_percent"] == pytest.approx(10)
    assert first["low"] == pytest.approx(10 - 8**0.5)
    assert changes[5].to_json()["difference"] is None


def test_other_work_is_said(tmp_path: Path) -> None:
    earlier = read_earlier(written(tmp_path, [cell(1, 100)]))
    assert differs(earlier, "m", WORK) == ()
    assert differs(earlier, "n", {**WORK, "output_tokens": 64}) == ("model", "output_tokens")


@pytest.mark.parametrize(
    "raw", ["", "[]", "7", "{}", '{"cells": 3}', '{"cells": [{"concurrency": 0}]}', "[" * 100_000]
)
def test_files_that_are_no_bench_document(tmp_path: Path, raw: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(raw, "utf-8")
    with pytest.raises(WorkFailedError):
        read_earlier(str(file))
    with pytest.raises(WorkFailedError):
        read_earlier(str(tmp_path / "missing.json"))
    with pytest.raises(WorkFailedError):
        read_earlier(str(tmp_path))
