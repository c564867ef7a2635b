"""Query CSV: any column order, units or not, damage, tokens."""

from __future__ import annotations

import random

import pytest
from gpus_helpers import csv, gpu_values, header_line, row_line

from specdash.core.gpu import Gpu, Snapshot
from specdash.gpus.parse import parse
from specdash.gpus.query import FIELDS

ORDER = ("index", "name", "memory.total", "memory.used", "utilization.gpu", "power.draw")


def read(text: str | bytes, **options: object) -> Snapshot:
    data = text.encode() if isinstance(text, str) else text
    return parse(data, source="s", **options)  # type: ignore[arg-type]


def codes(snapshot: Snapshot) -> list[str]:
    return [problem.code for problem in snapshot.problems]


def test_columns_in_any_order_read_the_same() -> None:
    rows = [gpu_values(i, used=1000 * i) for i in range(8)]
    expected = read(csv(FIELDS, rows)).gpus
    assert [gpu.memory_used_mib for gpu in expected] == [1000 * i for i in range(8)]
    shuffled = list(FIELDS)
    for seed in range(20):
        random.Random(seed).shuffle(shuffled)
        assert read(csv(shuffled, rows)).gpus == expected


def test_without_units_and_with_bare_commas() -> None:
    text = "index,memory.used [MiB],memory.total [MiB],power.draw [W]\n0,12,97887,39.17\n1,0,97887,40\n"
    first, second = read(text).gpus
    assert (first.memory_used_mib, first.memory_total_mib, first.power_draw_w) == (12, 97887, 39.17)
    assert (second.memory_used_mib, second.power_draw_w) == (0, 40.0)


def test_without_a_header_nothing_is_guessed() -> None:
    snapshot = read("0, NVIDIA H200, 143771 MiB, 32362 MiB\n")
    assert snapshot.gpus == ()
    assert codes(snapshot) == ["garbled"]


def test_without_a_header_the_fields_can_be_named() -> None:
    fields = ["index", "name", "memory.total", "memory.used"]
    (gpu,) = read("0, NVIDIA H200, 143771, 32362\n", fields=fields).gpus
    assert (gpu.memory_total_mib, gpu.memory_used_mib) == (143771, 32362)


def test_the_command_line_kept_with_the_output_names_the_columns() -> None:
    text = (
        "$ nvidia-smi --query-gpu=index,memory.used,memory.total --format=csv,noheader\n"
        "0, 32362 MiB, 143771 MiB\n1, 0 MiB, 143771 MiB\n"
    )
    assert [gpu.memory_used_mib for gpu in read(text).gpus] == [32362, 0]


@pytest.mark.parametrize(
    "token",
    [
        "[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[Insufficient Permissions]",
        "[Requested functionality has been deprecated]", "[Function Not Found]", "", "ERR!",
        "Unknown Error", "[Something new]",
    ],
)  # fmt: skip
def test_tokens_are_unknown_and_never_zero(token: str) -> None:
    text = f"{header_line(ORDER)}\n0, NVIDIA GB10, {token}, {token}, 4 %, {token}\n"
    (gpu,) = read(text).gpus
    assert (gpu.memory_total_mib, gpu.memory_used_mib, gpu.power_draw_w) == (None, None, None)
    assert gpu.utilization_percent == 4
    assert gpu.state == "ok"


def test_a_gpu_that_tells_nothing_is_unknown() -> None:
    (gpu,) = read(f"{header_line(ORDER)}\n0, NVIDIA A100, [N/A], [N/A], [N/A], [N/A]\n").gpus
    assert gpu.state == "unknown"


def test_one_lost_gpu_among_others() -> None:
    lost = dict.fromkeys(ORDER, "[GPU is lost]") | {"index": "1"}
    rows = [gpu_values(0, used=5), lost, gpu_values(2, used=7)]
    snapshot = read(csv(ORDER, rows))
    assert [gpu.state for gpu in snapshot.gpus] == ["ok", "lost", "ok"]
    assert [gpu.memory_used_mib for gpu in snapshot.gpus] == [5, None, 7]
    assert codes(snapshot) == ["gpu-lost"]


def test_a_gpu_that_requires_a_reset_is_not_ok() -> None:
    row = gpu_values(0) | {"memory.used": "[GPU requires reset]"}
    snapshot = read(csv(ORDER, [row]))
    assert snapshot.gpus[0].state == "unknown"
    assert codes(snapshot) == ["gpu-lost"]


def test_loop_output_keeps_the_newest_row_of_each_gpu() -> None:
    rounds = [gpu_values(i, used=100 * turn + i) for turn in range(5) for i in range(4)]
    gpus = read(csv(FIELDS, rounds)).gpus
    assert [gpu.memory_used_mib for gpu in gpus] == [400, 401, 402, 403]


def test_a_stale_number_does_not_outlive_an_unknown() -> None:
    rows = [gpu_values(0, used=500), gpu_values(0) | {"memory.used": "[Unknown Error]"}]
    assert read(csv(FIELDS, rows)).gpus[0].memory_used_mib is None


def test_a_gpu_that_later_rounds_no_longer_list_is_lost() -> None:
    rounds = [gpu_values(i, used=9) for i in range(3)]
    rounds += [gpu_values(i, used=9) for _ in range(2) for i in (0, 2)]
    snapshot = read(csv(FIELDS, rounds))
    assert [(gpu.index, gpu.state) for gpu in snapshot.gpus] == [(0, "ok"), (1, "lost"), (2, "ok")]
    assert snapshot.gpus[1].memory_used_mib is None
    assert codes(snapshot) == ["gpu-lost"]


def test_loop_output_without_ids_is_one_gpu_by_its_timestamps() -> None:
    text = "timestamp, utilization.gpu [%], temperature.gpu\n" + "".join(
        f"2025/11/24 14:08:{50 + i}.751, {i} %, 38\n" for i in range(5)
    )
    assert [gpu.utilization_percent for gpu in read(text).gpus] == [4]


def test_masked_uuids_do_not_fold_gpus_into_one() -> None:
    rows = [
        gpu_values(i, used=i) | {"uuid": "GPU-00000000-0000-0000-0000-000000000000"}
        for i in range(3)
    ]
    assert [
        gpu.memory_used_mib for gpu in read(csv(("index", "uuid", "memory.used"), rows)).gpus
    ] == [0, 1, 2]


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_half_line_invents_no_number(cut: int) -> None:
    whole = csv(ORDER, [gpu_values(0, used=11), gpu_values(1, used=97000)])
    snapshot = read(whole[:-cut])
    assert snapshot.gpus[0].memory_used_mib == 11
    for gpu in snapshot.gpus[1:]:
        assert gpu.memory_used_mib in (None, 97000)
        assert gpu.memory_total_mib in (None, 97887)
        assert gpu.power_draw_w in (None, 39.17)


def test_the_last_number_of_a_cut_line_without_units_is_not_believed() -> None:
    text = "index, memory.total [MiB], memory.used [MiB]\n0, 97887, 512\n1, 97887, 9"
    first, second = read(text).gpus
    assert (first.memory_used_mib, second.memory_used_mib) == (512, None)


def test_interleaved_text_and_a_banner_leave_the_rows_alone() -> None:
    lines = csv(FIELDS, [gpu_values(i, used=i) for i in range(3)]).decode().splitlines()
    noise = "WARNING: infoROM is corrupted at gpu 0000:65:00.0"
    text = "\n".join(
        ["Welcome to node7", "", lines[0], noise, *lines[1:3], "channel 3: open failed", lines[3]]
    )
    snapshot = read(text + "\n")
    assert [gpu.memory_used_mib for gpu in snapshot.gpus] == [0, 1, 2]
    assert snapshot.problems == ()


def test_a_row_split_by_other_text_is_left_out_and_said() -> None:
    lines = csv(FIELDS, [gpu_values(i, used=77) for i in range(2)]).decode().splitlines()
    text = "\n".join([lines[0], lines[1], lines[2][:90] + "kex_exchange: x", lines[2][90:]]) + "\n"
    snapshot = read(text)
    assert [gpu.index for gpu in snapshot.gpus] == [0]
    assert codes(snapshot) == ["garbled"]


@pytest.mark.parametrize("separator", [", ", ","])
def test_decimal_commas(separator: str) -> None:
    names = ("index", "power.draw [W]", "memory.used [MiB]", "power.limit [W]")
    text = (
        separator.join(names) + "\n" + separator.join(("0", "77,71 W", "12 MiB", "700,00 W")) + "\n"
    )
    (gpu,) = read(text).gpus
    assert (gpu.power_draw_w, gpu.memory_used_mib, gpu.power_limit_w) == (77.71, 12, 700.0)


def test_two_rows_run_together_are_not_read_as_one() -> None:
    first, second = (row_line(ORDER, gpu_values(i, used=i + 5)) for i in range(2))
    snapshot = read(f"{header_line(ORDER)}\n{first}{second}\n")
    assert snapshot.gpus == ()
    assert codes(snapshot) == ["garbled"]


def test_power_draw_wins_over_the_instant_value_and_the_limit_over_the_enforced_one() -> None:
    text = (
        "index, power.draw.instant [W], enforced.power.limit [W], power.draw [W], power.limit [W]\n"
        "0, 90.00 W, 500.00 W, 80.00 W, 600.00 W\n"
    )
    (gpu,) = read(text).gpus
    assert (gpu.power_draw_w, gpu.power_limit_w) == (80.0, 600.0)


def test_single_throttle_columns_stand_in_for_the_mask() -> None:
    text = (
        "index, clocks_throttle_reasons.sw_power_cap, clocks_throttle_reasons.hw_thermal_slowdown, "
        "clocks_throttle_reasons.gpu_idle\n0, Active, Active, Not Active\n"
    )
    assert read(text).gpus[0].throttle_reasons == ("sw_power_cap", "hw_thermal_slowdown")


def test_free_total_and_memory_utilisation_are_not_taken_for_what_they_are_not() -> None:
    text = (
        "index, memory.free [MiB], memory.total [MiB], utilization.memory [%], temperature.memory\n"
        "0, 90000 MiB, 97887 MiB, 23 %, 55\n"
    )
    assert read(text).gpus == (Gpu(index=0, memory_total_mib=97887, state="unknown"),)


@pytest.mark.parametrize("name", ["name", "gpu_name"])
def test_a_single_column(name: str) -> None:
    snapshot = read(f"{name}\nNVIDIA H200\nNVIDIA H200\n")
    assert [gpu.name for gpu in snapshot.gpus] == ["NVIDIA H200", "NVIDIA H200"]


def test_names_cannot_style_a_terminal_nor_carry_secrets() -> None:
    text = (
        "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
        "GPU-1, 7, \x1b[31mserver --api-key hunter2hunter2, 5 MiB\n"
    )
    (process,) = read(text).processes
    assert process.name is not None
    assert "\x1b" not in process.name
    assert "hunter2" not in process.name


def test_process_rows_are_read_from_the_outside_in() -> None:
    text = (
        "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
        "GPU-1, 7, python serve.py a, b,c, 12 MiB, 61200 MiB\n"
    )
    (process,) = read(text).processes
    assert (process.gpu_uuid, process.pid, process.used_mib) == ("GPU-1", 7, 61200)
    assert process.name == "python serve.py a, b,c, 12 MiB"


def test_processes_whose_memory_the_driver_hides() -> None:
    text = (
        "timestamp, gpu_name, gpu_bus_id, gpu_serial, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
        "2026/06/22 23:04:18.593, NVIDIA GeForce RTX 2080 SUPER, 00000000:0C:00.0, [N/A], GPU-9, 2056, "
        "C:\\Windows\\System32\\dwm.exe, [N/A]\n"
        "2026/06/22 23:04:18.593, NVIDIA GeForce RTX 2080 SUPER, 00000000:0C:00.0, [N/A], GPU-9, "
        "[Not Supported], [Insufficient Permissions], [N/A]\n"
    )
    first, second = read(text).processes
    assert (first.pid, first.name, first.used_mib) == (2056, "C:\\Windows\\System32\\dwm.exe", None)
    assert (second.pid, second.name, second.used_mib) == (None, None, None)


def test_a_process_that_ended_is_not_kept_from_an_earlier_round() -> None:
    text = (
        "gpu_uuid, pid, used_gpu_memory [MiB], process_name\n"
        "GPU-1, 7, 5 MiB, a\nGPU-1, 8, 6 MiB, b\nGPU-1, 8, 7 MiB, b\n"
    )
    assert [(p.pid, p.used_mib) for p in read(text).processes] == [(8, 7)]
