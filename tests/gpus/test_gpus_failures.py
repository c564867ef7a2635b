"""What nvidia-smi says when it fails becomes a problem with a remedy."""

from __future__ import annotations

import pytest
from gpus_helpers import csv, gpu_values

from specdash.gpus.parse import parse, read_output
from specdash.gpus.query import FIELDS

SAID = [
    (
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
        "that the latest NVIDIA driver is installed and running."),
        9,
        "no-driver",
    ),
    (
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161",
        18,
        "driver-mismatch",
    ),
    ("Failed to initialize NVML: Unknown Error", 255, "no-driver"),
    ("Failed to initialize NVML: Insufficient Permissions", 4, "no-driver"),
    ("Failed to initialize NVML: GPU access blocked by the operating system", 17, "no-driver"),
    ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", 12, "no-driver"),
    ("No devices were found  ", 6, "no-devices"),
    ("No devices found.", 6, "no-devices"),
    ("Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error", 255, "gpu-lost"),
    ("Unable to determine the device handle for GPU0000:65:00.0: Unknown Error", 255, "gpu-lost"),
    ("Unable to determine the device handle for GPU 000:BA:80.0: Not Found", 255, "gpu-lost"),
    (
        ("Unable to determine the device handle for GPU 0000:0B:00.0: GPU is lost.  Reboot the "
        "system to recover this GPU"),
        15,
        "gpu-lost",
    ),
    ('Field "clocks_event_reasons.active" is not a valid field to query.', 2, "field-refused"),
    ("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.", 2, "field-refused"),
    ("bash: line 1: nvidia-smi: command not found", 127, "no-command"),
    ("sh: 1: nvidia-smi: not found", 127, "no-command"),
    ("env: 'nvidia-smi': No such file or directory", 127, "no-command"),
    ("stdbuf: failed to run command 'nvidia-smi': No such file or directory", 127, "no-command"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "status", "code"), SAID)
@pytest.mark.parametrize("known_status", [True, False])
def test_sentences(text: str, status: int, code: str, known_status: bool) -> None:
    snapshot = parse(text.encode(), source="s", exit_status=status if known_status else None)
    assert [problem.code for problem in snapshot.problems] == [code]
    assert snapshot.problems[0].message
    assert snapshot.problems[0].remedy
    assert all(gpu.state == "lost" and gpu.memory_used_mib is None for gpu in snapshot.gpus)


def test_the_mismatch_names_the_library() -> None:
    (problem,) = parse(SAID[1][0].encode(), source="s").problems
    assert "535.161" in problem.message


def test_a_refused_field_is_named() -> None:
    assert read_output(SAID[12][0].encode()).refused == ["clocks_event_reasons.active"]


@pytest.mark.parametrize("text", [SAID[8][0], SAID[11][0]])
def test_a_lost_gpu_after_its_rows_is_lost_and_the_others_stand(text: str) -> None:
    rows = csv(FIELDS, [gpu_values(10, used=5), gpu_values(11, used=6)])
    snapshot = parse(rows + text.encode() + b"\n", source="s")
    first, second = snapshot.gpus
    assert (first.index, first.state, first.memory_used_mib) == (10, "lost", None)
    assert (second.state, second.memory_used_mib) == ("ok", 6)
    assert first.name is not None


def test_a_gpu_that_came_back_is_not_lost() -> None:
    data = SAID[8][0].encode() + b"\n" + csv(FIELDS, [gpu_values(10, used=5)])
    (gpu,) = parse(data, source="s").gpus
    assert (gpu.state, gpu.memory_used_mib) == ("ok", 5)


@pytest.mark.parametrize(
    ("status", "code"), [(9, "no-driver"), (18, "driver-mismatch"), (6, "no-devices"), (127, "no-command")]
)  # fmt: skip
def test_a_silent_failure_is_told_by_its_status(status: int, code: str) -> None:
    assert [p.code for p in parse(b"", source="s", exit_status=status).problems] == [code]


def test_the_infor_rom_warning_comes_with_valid_rows() -> None:
    data = (
        csv(FIELDS, [gpu_values(0, used=5)])
        + b"WARNING: infoROM is corrupted at gpu 0000:84:00.0\n"
    )
    snapshot = parse(data, source="s", exit_status=14)
    assert snapshot.problems == ()
    assert snapshot.gpus[0].memory_used_mib == 5


@pytest.mark.parametrize(
    "data", [b"", b"\n \n", b"hello\nworld\n", b"\x00\xff\xfe\x80", b"<html>\n</html>"]
)
def test_other_text_is_garbled(data: bytes) -> None:
    snapshot = parse(data, source="s")
    assert snapshot.gpus == ()
    assert [problem.code for problem in snapshot.problems] == ["garbled"]
