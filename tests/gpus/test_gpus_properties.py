"""Damage of any kind: reading never raises and no number comes from nowhere."""

from __future__ import annotations

import re

import pytest
from gpus_helpers import CAPTURES, csv, gpu_values
from hypothesis import given
from hypothesis import strategies as st
from test_gpus_forms import NEW, TABLE, XML_GPU, long_form, xml

from specdash.core.gpu import Snapshot
from specdash.gpus.cells import read_cell
from specdash.gpus.parse import parse
from specdash.gpus.query import FIELDS
from specdash.gpus.reasons import reasons_of_mask
from specdash.gpus.rounds import Rounds

OUTPUTS = [
    csv(FIELDS, [gpu_values(i, used=500 * i + 7) for i in range(4)]),
    long_form(2, used=(4, 61200)).encode(),
    TABLE.encode(),
    xml(XML_GPU.format(bus="83", used="16959 MiB", **NEW)).encode(),
]
NUMBERS = ("memory_total_mib", "memory_used_mib", "utilization_percent", "power_draw_w")

damage = st.tuples(st.floats(0, 1), st.floats(0, 1), st.binary(max_size=12))


def damaged(data: bytes, steps: list[tuple[float, float, bytes]]) -> bytes:
    for start, length, put in steps:
        at = int(start * len(data))
        data = data[:at] + put + data[at + int(length**6 * len(data)) :]
    return data


def numbers_of(snapshot: Snapshot) -> set[float]:
    found = {getattr(gpu, name) for gpu in snapshot.gpus for name in NUMBERS}
    found |= {process.used_mib for process in snapshot.processes}
    return {float(number) for number in found if number is not None}


@given(st.sampled_from(OUTPUTS), st.lists(damage, min_size=1, max_size=4))
def test_damage_invents_no_number(output: bytes, steps: list[tuple[float, float, bytes]]) -> None:
    data = damaged(output, steps)
    snapshot = parse(data, source="s")
    text = data.decode("utf-8", "replace").replace("\x00", "").replace(",", ".")
    there = {float(n) for n in re.findall(r"\d+\.\d+|\d+", text) if len(n) < 12}
    there |= {float(n) for n in re.findall(r"\d+", text) if len(n) < 12}
    assert numbers_of(snapshot) <= there


@given(st.sampled_from(OUTPUTS), st.floats(0, 1))
def test_a_cut_leaves_true_numbers_or_none(output: bytes, where: float) -> None:
    whole = numbers_of(parse(output, source="s"))
    assert numbers_of(parse(output[: int(where * len(output))], source="s")) <= whole


@given(st.binary(max_size=400), st.none() | st.integers(-1, 300))
def test_any_bytes_give_a_snapshot(data: bytes, status: int | None) -> None:
    snapshot = parse(data, source="s", exit_status=status)
    assert snapshot.gpus or snapshot.processes or snapshot.problems


@given(st.permutations(FIELDS), st.integers(1, 8))
def test_every_column_order_reads_the_same(fields: list[str], count: int) -> None:
    rows = [gpu_values(i, used=11 * i, count=count) for i in range(count)]
    assert parse(csv(fields, rows), source="s").gpus == parse(csv(FIELDS, rows), source="s").gpus


@given(st.text(max_size=30), st.sampled_from(["mib", "percent", "watts", "mhz", "celsius", "pid"]))
def test_a_cell_is_a_number_only_where_it_looks_like_one(text: str, kind: str) -> None:
    cell = read_cell(text, kind)  # type: ignore[arg-type]
    if cell.value is not None:
        assert re.fullmatch(r'[\s"]*-?[0-9]+([.,][0-9]+)?\s*(MiB|MB|%|W|MHz|C)?[\s"]*', text)


@given(st.integers(0, 2**64 - 1))
def test_every_bit_of_the_mask_has_a_name(mask: int) -> None:
    names = reasons_of_mask(mask)
    assert len(names) == len(set(names)) == mask.bit_count()


@given(
    st.lists(st.sampled_from(OUTPUTS[0].decode().splitlines()) | st.text(max_size=60), max_size=40)
)
def test_a_stream_of_any_lines_never_raises(lines: list[str]) -> None:
    rounds = Rounds()
    for line in lines:
        parsed = rounds.feed(line)
        assert parsed is None or parsed.readings


@pytest.mark.parametrize("name", ["h200.txt", "h200_mig.txt", "rtx_4080_super.txt"])
def test_captures_cut_anywhere(name: str) -> None:
    data = (CAPTURES / name).read_bytes()
    for cut in range(0, len(data), 4099):
        parse(data[:cut], source="s")
