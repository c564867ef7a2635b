"""What real machines printed, read in every form."""

from __future__ import annotations

import pytest
from gpus_helpers import capture, section

from specdash.core.gpu import Gpu
from specdash.gpus.parse import parse

UUID = "GPU-00000000-0000-0000-0000-000000000000"

H200_LOADED = Gpu(
    index=0,
    uuid=UUID,
    name="NVIDIA H200",
    memory_total_mib=143771,
    memory_used_mib=32362,
    memory_reserved_mib=614,
    utilization_percent=100,
    temperature_c=52,
    power_draw_w=627.40,
    power_limit_w=700.0,
    sm_clock_mhz=1980,
    pstate="P0",
    throttle_reasons=(),
    mig=False,
)


def test_query_csv_of_a_loaded_h200_with_every_field_the_driver_knows() -> None:
    snapshot = parse(section("h200.txt", "load :: query-gpu"), source="s")
    assert snapshot.gpus == (H200_LOADED,)
    assert snapshot.problems == ()


def test_idle_h200_reports_its_real_zero_and_the_idle_reason() -> None:
    (gpu,) = parse(section("h200.txt", "idle :: query-gpu"), source="s").gpus
    assert (gpu.memory_used_mib, gpu.utilization_percent) == (0, 0)
    assert gpu.throttle_reasons == ("gpu_idle",)
    assert gpu.state == "ok"


def test_long_form_of_a_loaded_h200() -> None:
    snapshot = parse(section("h200.txt", "load :: query ("), source="s")
    (gpu,) = snapshot.gpus
    assert gpu.to_json() == {**H200_LOADED.to_json(), "power_draw_w": 627.32}
    assert [(p.pid, p.name, p.used_mib, p.gpu_uuid) for p in snapshot.processes] == [
        (10291, "/root/tools/memhog", 2566, UUID),
        (10293, "/root/tools/memhog", 1542, UUID),
        (10309, "./gpu_burn", 28234, UUID),
    ]


def test_table_of_a_loaded_h200() -> None:
    snapshot = parse(section("h200.txt", "load :: nvidia-smi"), source="s")
    (gpu,) = snapshot.gpus
    assert gpu == Gpu(
        index=0,
        name="NVIDIA H200",
        memory_total_mib=143771,
        memory_used_mib=32362,
        utilization_percent=100,
        temperature_c=52,
        power_draw_w=628.0,
        power_limit_w=700.0,
        pstate="P0",
        mig=False,
    )
    assert [p.used_mib for p in snapshot.processes] == [2566, 1542, 28234]


def test_compute_apps_join_their_gpu() -> None:
    snapshot = parse(section("h200.txt", "load :: query-compute"), source="s")
    assert snapshot.gpus == ()
    assert snapshot.problems == ()
    assert [p.pid for p in snapshot.processes] == [10291, 10293, 10309]
    assert {p.gpu_uuid for p in snapshot.processes} == {UUID}


def test_compute_apps_header_alone_is_no_problem() -> None:
    snapshot = parse(section("h200.txt", "idle :: query-compute"), source="s")
    assert (snapshot.gpus, snapshot.processes, snapshot.problems) == ((), (), ())


@pytest.mark.parametrize("form", ["query-gpu", "query (", "nvidia-smi"])
def test_mig_has_no_utilisation_and_the_memory_of_the_parent(form: str) -> None:
    (gpu,) = parse(section("h200_mig.txt", f"load :: {form}"), source="s").gpus
    assert gpu.mig is True
    assert gpu.utilization_percent is None
    assert (gpu.memory_used_mib, gpu.memory_total_mib) == (16959, 143771)
    assert gpu.state == "ok"


def test_a_whole_file_of_several_forms_is_one_gpu_and_the_newest_counts() -> None:
    snapshot = parse(capture("h200.txt"), source="s")
    assert snapshot.gpus == (H200_LOADED,)
    assert len(snapshot.processes) == 3
    assert snapshot.problems == ()


def test_desktop_keeps_the_full_name_beside_the_shortened_one() -> None:
    snapshot = parse(capture("rtx_4080_super.txt"), source="s")
    (gpu,) = snapshot.gpus
    assert gpu.name == "NVIDIA GeForce RTX 4080 SUPER"
    assert gpu.mig is None
    assert {p.pid for p in snapshot.processes} == {2165, 2496, 2620, 2954, 3527, 5021, 5022}


def test_instances_in_a_listing_are_not_gpus() -> None:
    (gpu,) = parse(section("h200_mig.txt", "capabilities :: list"), source="s").gpus
    assert (gpu.index, gpu.uuid, gpu.name, gpu.state) == (0, UUID, "NVIDIA H200", "unknown")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_windows_line_ends_and_byte_order_marks(encoding: str) -> None:
    text = section("h200.txt", "load :: query-gpu").decode().replace("\n", "\r\n")
    assert parse(text.encode(encoding), source="s").gpus == (H200_LOADED,)
