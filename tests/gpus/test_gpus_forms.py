"""The long form, the table and XML: old and new drivers, several documents, damage."""

from __future__ import annotations

import pytest
from gpus_helpers import section

from specdash.core.gpu import Snapshot
from specdash.gpus.parse import parse


def read(text: str | bytes) -> Snapshot:
    return parse(text.encode() if isinstance(text, str) else text, source="s")


def long_form(count: int, *, used: tuple[int, ...], listed: tuple[int, ...] | None = None) -> str:
    """``-q`` of RTX PRO 6000 cards, with the keys drivers 470 to 525 print."""
    lines = ["", "==============NVSMI LOG==============", "", f"Attached GPUs : {count}"]
    for at in listed if listed is not None else range(count):
        lines += [
            f"GPU 00000000:{at + 1:02X}:00.0",
            "    Product Name                          : NVIDIA RTX PRO 6000 Blackwell",
            f"    GPU UUID                              : GPU-{at:08x}-0000",
            "    Minor Number                          : 7",
            "    Fan Speed                             : N/A",
            "    Performance State                     : P8",
            "    Clocks Throttle Reasons",
            "        Idle                              : Not Active",
            "        SW Power Cap                      : Active",
            "        HW Slowdown                       : Not Active",
            "            HW Thermal Slowdown           : Active",
            "    FB Memory Usage",
            "        Total                             : 97887 MiB",
            "        Reserved                          : 636 MiB",
            f"        Used                              : {used[at]} MiB",
            "        Free                              : 1 MiB",
            "    BAR1 Memory Usage",
            "        Total                             : 131072 MiB",
            "        Used                              : 777 MiB",
            "    Utilization",
            "        Gpu                               : 5 %",
            "        Memory                            : 9 %",
            "    Temperature",
            "        GPU Current Temp                  : 26 C",
            "        GPU Max Operating Temp            : 90 C",
            "    Power Readings",
            "        Power Management                  : Supported",
            "        Power Draw                        : 39.17 W",
            "        Power Limit                       : 600.00 W",
            "        Enforced Power Limit              : 550.00 W",
            "    Clocks",
            "        Graphics                          : 300 MHz",
            "        SM                                : 180 MHz",
            "    Max Clocks",
            "        SM                                : 2430 MHz",
            "    Processes",
            "        Process ID                        : 812",
            "            Type                          : C",
            "            Name                          : sglang::scheduler_TP0, a: b",
            "            Used GPU Memory               : 61200 MiB",
        ]
    return "\n".join(lines) + "\n"


def test_keys_of_older_drivers() -> None:
    first, second = read(long_form(2, used=(4, 61200))).gpus
    assert (first.index, second.index) == (0, 1)
    assert (first.memory_used_mib, second.memory_used_mib) == (4, 61200)
    assert (second.power_draw_w, second.power_limit_w) == (39.17, 600.0)
    assert (second.utilization_percent, second.temperature_c, second.sm_clock_mhz) == (5, 26, 180)
    assert second.throttle_reasons == ("sw_power_cap", "hw_thermal_slowdown")


def test_a_process_of_the_long_form_keeps_its_whole_name() -> None:
    (process,) = read(long_form(1, used=(4,))).processes
    assert (process.pid, process.name, process.used_mib, process.gpu_uuid) == (
        812,
        "sglang::scheduler_TP0, a: b",
        61200,
        "GPU-00000000-0000",
    )


def test_the_place_in_the_list_is_no_index_where_gpus_are_left_out() -> None:
    (gpu,) = read(long_form(8, used=(0,) * 8, listed=(3,))).gpus
    assert (gpu.index, gpu.uuid) == (None, "GPU-00000003-0000")


def test_the_newest_of_several_documents_counts() -> None:
    text = long_form(1, used=(4,)) + long_form(1, used=(9,)).replace("812", "900")
    snapshot = read(text)
    assert [gpu.memory_used_mib for gpu in snapshot.gpus] == [9]
    assert [process.pid for process in snapshot.processes] == [900]


@pytest.mark.parametrize("gone", ["    FB Memory Usage", "    BAR1 Memory Usage"])
def test_a_lost_section_line_does_not_lend_numbers_to_another_section(gone: str) -> None:
    lines = long_form(1, used=(4,)).splitlines()
    lines.remove(gone)
    (gpu,) = read("\n".join(lines)).gpus
    assert gpu.memory_total_mib in (None, 97887)
    assert gpu.memory_used_mib in (None, 4)


def test_a_lost_gpu_line_starts_a_gpu_all_the_same() -> None:
    lines = long_form(2, used=(4, 61200)).splitlines()
    lines.remove("GPU 00000000:02:00.0")
    snapshot = read("\n".join(lines) + "\n")
    assert [gpu.memory_used_mib for gpu in snapshot.gpus] == [4, 61200]
    assert [gpu.index for gpu in snapshot.gpus] == [None, None]
    assert [problem.code for problem in snapshot.problems] == ["garbled"]


def test_interleaved_errors_do_not_end_the_long_form() -> None:
    lines = long_form(1, used=(4,)).splitlines()
    lines.insert(16, "WARNING: something else")
    (gpu,) = read("\n".join(lines)).gpus
    assert (gpu.memory_total_mib, gpu.memory_used_mib) == (97887, 4)


TABLE = """\
Thu Jun  4 10:00:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 610.57.04              KMD Version: 610.57.04     CUDA UMD Version: 13.3     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA GB10                    On  |   0000000F:01:00.0 Off |                  N/A |
| N/A   43C    P0             12W /  N/A  | Not Supported          |      4%      Default |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA L40S                    Off |   00000000:65:00.0 Off |                    0 |
|ERR!  ERR!  ERR!            ERR! /  ERR! |       6MiB /  46068MiB |    ERR!      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
|   2  Tesla V100-SXM2...  Off  | 00000000:AF:00.0 Off |                    0 |
| N/A   31C    P0    40W / 300W |      0MiB / 32480MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+

+-----------------------------------------------------------------------------+
| Processes:                                                       GPU Memory |
|  GPU       PID   Type   Process name                             Usage      |
|=============================================================================|
|    2      4711      C   python3 serve.py                          1000MiB |
|    0   N/A  N/A  2505781      C   sglang::scheduler_DP0_TP0_EP0         100998MiB |
+-----------------------------------------------------------------------------+
"""


def test_tables_of_several_drivers() -> None:
    snapshot = read(TABLE)
    unified, broken, old = snapshot.gpus
    assert (unified.memory_used_mib, unified.memory_total_mib) == (None, None)
    assert (unified.temperature_c, unified.utilization_percent) == (43, 4)
    assert (unified.power_draw_w, unified.power_limit_w) == (12.0, None)
    assert (broken.memory_used_mib, broken.memory_total_mib) == (6, 46068)
    assert (broken.temperature_c, broken.power_draw_w, broken.utilization_percent) == (None,) * 3
    assert (old.index, old.memory_used_mib, old.power_limit_w, old.pstate) == (2, 0, 300.0, "P0")
    assert [(p.pid, p.used_mib) for p in snapshot.processes] == [(4711, 1000), (2505781, 100998)]


def test_the_second_line_of_a_gpu_is_never_given_to_another() -> None:
    lines = TABLE.splitlines()
    first_of_one = next(i for i, line in enumerate(lines) if "L40S" in line)
    del lines[first_of_one - 2 : first_of_one + 1]  # the numbers of 0, the rule, the name of 1
    snapshot = read("\n".join(lines) + "\n")
    assert [gpu.index for gpu in snapshot.gpus] == [0, 2] or snapshot.gpus[
        0
    ].memory_used_mib is None


@pytest.mark.parametrize("drop", range(7, 15))
def test_a_table_without_one_line_invents_nothing(drop: int) -> None:
    lines = TABLE.splitlines()
    del lines[drop]
    for gpu in read("\n".join(lines) + "\n").gpus:
        assert gpu.memory_used_mib in {None, {0: None, 1: 6, 2: 0}[gpu.index or 0]}


XML_GPU = """\
\t<gpu id="00000000:{bus}:00.0">
\t\t<product_name>NVIDIA H200 &amp; Co</product_name>
\t\t<mig_mode>
\t\t\t<current_mig>Enabled</current_mig>
\t\t</mig_mode>
\t\t<mig_devices>
\t\t\t<mig_device>
\t\t\t\t<fb_memory_usage><total>71424 MiB</total><used>16925 MiB</used></fb_memory_usage>
\t\t\t</mig_device>
\t\t</mig_devices>
\t\t<uuid>GPU-{bus}</uuid>
\t\t<minor_number>5</minor_number>
\t\t<pci><pci_bus_id>00000000:{bus}:00.0</pci_bus_id></pci>
\t\t<performance_state>P0</performance_state>
\t\t<{reasons}s>
\t\t\t<{reasons}_gpu_idle>Not Active</{reasons}_gpu_idle>
\t\t\t<{reasons}_hw_power_brake_slowdown>Active</{reasons}_hw_power_brake_slowdown>
\t\t</{reasons}s>
\t\t<fb_memory_usage>
\t\t\t<total>143771 MiB</total>
\t\t\t<reserved>614 MiB</reserved>
\t\t\t<used>{used}</used>
\t\t</fb_memory_usage>
\t\t<bar1_memory_usage><total>262144 MiB</total><used>999 MiB</used></bar1_memory_usage>
\t\t<utilization><gpu_util>7 %</gpu_util><memory_util>3 %</memory_util></utilization>
\t\t<temperature><gpu_temp>36 C</gpu_temp></temperature>
\t\t<{power}><{draw}>295.01 W</{draw}><{limit}>700.00 W</{limit}></{power}>
\t\t<module_power_readings><average_power_draw>999.00 W</average_power_draw></module_power_readings>
\t\t<clocks><sm_clock>1980 MHz</sm_clock></clocks>
\t\t<max_clocks><sm_clock>2500 MHz</sm_clock></max_clocks>
\t\t<processes>
\t\t\t<process_info>
\t\t\t\t<pid>12249</pid><process_name>/opt/a&lt;b, c</process_name><used_memory>2194 MiB</used_memory>
\t\t\t</process_info>
\t\t\t<process_info><pid>2</pid><process_name>x</process_name><used_memory>N/A</used_memory></process_info>
\t\t</processes>
\t</gpu>
"""
OLD = {
    "reasons": "clocks_throttle_reason",
    "power": "power_readings",
    "draw": "power_draw",
    "limit": "power_limit",
}
NEW = {
    "reasons": "clocks_event_reason",
    "power": "gpu_power_readings",
    "draw": "average_power_draw",
    "limit": "current_power_limit",
}


def xml(*gpus: str) -> str:
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
        f"<nvidia_smi_log>\n\t<attached_gpus>{len(gpus)}</attached_gpus>\n"
        + "".join(gpus)
        + "</nvidia_smi_log>\n"
    )


@pytest.mark.parametrize("words", [OLD, NEW], ids=["old", "new"])
def test_xml_of_old_and_new_drivers(words: dict[str, str]) -> None:
    snapshot = read(xml(XML_GPU.format(bus="83", used="16959 MiB", **words)))
    (gpu,) = snapshot.gpus
    assert (gpu.index, gpu.uuid, gpu.name) == (0, "GPU-83", "NVIDIA H200 & Co")
    assert (gpu.memory_total_mib, gpu.memory_reserved_mib, gpu.memory_used_mib) == (
        143771,
        614,
        16959,
    )
    assert (gpu.power_draw_w, gpu.power_limit_w, gpu.sm_clock_mhz) == (295.01, 700.0, 1980)
    assert (gpu.utilization_percent, gpu.temperature_c, gpu.pstate) == (7, 36, "P0")
    assert gpu.throttle_reasons == ("hw_power_brake_slowdown",)
    assert gpu.mig is True
    assert [(p.pid, p.name, p.used_mib, p.gpu_uuid) for p in snapshot.processes] == [
        (12249, "/opt/a<b, c", 2194, "GPU-83"),
        (2, "x", None, "GPU-83"),
    ]


def test_concatenated_xml_documents_end_with_the_newest() -> None:
    documents = [
        xml(*(XML_GPU.format(bus=b, used=f"{n} MiB", **NEW) for b in ("01", "02"))) for n in (1, 2)
    ]
    snapshot = read("".join(documents))
    assert [(gpu.index, gpu.memory_used_mib) for gpu in snapshot.gpus] == [(0, 2), (1, 2)]
    assert len(snapshot.processes) == 4


@pytest.mark.parametrize("cut", range(40, 2400, 59))
def test_a_cut_xml_document_gives_only_what_it_closed(cut: int) -> None:
    whole = xml(XML_GPU.format(bus="83", used="16959 MiB", **NEW))
    for gpu in read(whole[:-cut]).gpus:
        assert gpu.memory_used_mib in (None, 16959)
        assert gpu.memory_total_mib in (None, 143771)
        assert gpu.power_draw_w in (None, 295.01)


def test_a_document_cut_by_the_next_one_does_not_mix() -> None:
    first = xml(XML_GPU.format(bus="01", used="111 MiB", **NEW))
    second = xml(XML_GPU.format(bus="02", used="222 MiB", **NEW))
    cut = first[: first.index("111 MiB") + 2]
    snapshot = read(cut + "\n" + second)
    by_uuid = {gpu.uuid: gpu.memory_used_mib for gpu in snapshot.gpus}
    assert by_uuid == {"GPU-01": None, "GPU-02": 222}


def test_xml_entities_are_neither_defined_nor_fetched() -> None:
    bomb = '<!ENTITY a "aaaaaaaaaa"><!ENTITY b SYSTEM "file:///etc/passwd">'
    text = xml(XML_GPU.format(bus="83", used="&b;", **NEW)).replace(
        'v12.dtd">', f'v12.dtd" [{bomb}]>'
    )
    for gpu in read(text).gpus:
        assert gpu.memory_used_mib is None


def test_unified_memory_in_xml() -> None:
    (gpu,) = read(
        xml(XML_GPU.format(bus="0F", used="N/A", **NEW).replace("143771 MiB", "N/A"))
    ).gpus
    assert (gpu.memory_used_mib, gpu.memory_total_mib, gpu.state) == (None, None, "ok")


def test_forms_one_after_another_are_one_gpu() -> None:
    text = (
        section("h200.txt", "load :: nvidia-smi")
        + section("h200.txt", "load :: query-compute")
        + section("h200.txt", "load :: query (")
        + section("h200.txt", "load :: query-gpu")
    )
    snapshot = read(text)
    assert [(gpu.index, gpu.memory_used_mib, gpu.power_draw_w) for gpu in snapshot.gpus] == [
        (0, 32362, 627.4)
    ]
    assert len(snapshot.processes) == 3
