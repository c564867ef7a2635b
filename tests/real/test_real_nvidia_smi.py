"""The rig's nvidia-smi over a made-up /proc; runs anywhere."""

from __future__ import annotations

from pathlib import Path

import nvidia_smi
import pytest


class Proc:
    """A folder laid out as /proc is, as far as nvidia_smi reads it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(
        self,
        pid: int,
        program: str,
        mib: int | None,
        *,
        devices: tuple[int, ...] = (),
        environ: bytes = b"",
        ticks: int = 0,
    ) -> None:
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "exe").symlink_to(program)
        for number, device in enumerate(devices):
            (folder / "fd" / str(number + 3)).symlink_to(f"/dev/nvidia{device}")
        (folder / "fd" / "0").symlink_to("/dev/null")
        (folder / "environ").write_bytes(environ)
        memory = "" if mib is None else f"VmRSS:\t{mib * 1024} kB\n"
        (folder / "status").write_text(f"Name:\tx\n{memory}Threads:\t1\n")
        before = " ".join(["S", *["0"] * 10])
        (folder / "stat").write_text(f"{pid} (a (b) c) {before} {ticks} 0 0\n")


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proc:
    (tmp_path / "sizes").write_text("2 4096\n")
    (tmp_path / "proc" / "sys").mkdir(parents=True)
    monkeypatch.setattr(nvidia_smi, "SIZES", tmp_path / "sizes")
    monkeypatch.setattr(nvidia_smi, "PROC", tmp_path / "proc")
    monkeypatch.setattr(nvidia_smi, "SAMPLE_S", 0.0)
    return Proc(tmp_path / "proc")


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert nvidia_smi.main(words) == 0
    return capsys.readouterr().out.splitlines()


USED = ("--query-gpu=index,memory.used", "--format=csv,noheader,nounits")
APPS = ("--query-compute-apps=pid,used_memory,gpu_uuid", "--format=csv,noheader")


def test_nothing_runs(proc: Proc, capsys: pytest.CaptureFixture[str]) -> None:
    proc.add(1, "/usr/lib/systemd/systemd", 10)
    assert ask(capsys, *USED) == ["0, 0", "1, 0"]
    assert ask(capsys, *APPS) == []


def test_an_engine_is_spread_over_all_gpus(proc: Proc, capsys: pytest.CaptureFixture[str]) -> None:
    proc.add(40, "/opt/llama/llama-server", 300)
    assert ask(capsys, *USED) == ["0, 150", "1, 150"]
    assert [row.split(", ")[:2] for row in ask(capsys, *APPS)] == [["40", "150 MiB"]] * 2


def test_an_engine_keeps_to_its_visible_devices(
    proc: Proc, capsys: pytest.CaptureFixture[str]
) -> None:
    proc.add(40, "/opt/llama/llama-server", 300, environ=b"A=1\0CUDA_VISIBLE_DEVICES=1\0")
    proc.add(41, "/opt/llama/llama-server", 300, environ=b"CUDA_VISIBLE_DEVICES=\0")
    assert ask(capsys, *USED) == ["0, 0", "1, 300"]


def test_another_program_holds_the_gpu_whose_device_it_has_open(
    proc: Proc, capsys: pytest.CaptureFixture[str]
) -> None:
    proc.add(50, "/usr/bin/python3", 200, devices=(0,))
    proc.add(51, "/usr/bin/python3", 200, devices=(7,))
    assert ask(capsys, *USED) == ["0, 200", "1, 0"]
    (row,) = ask(capsys, *APPS)
    assert row == f"50, 200 MiB, {nvidia_smi.gpu_uuid(0)}"


def test_a_replaced_binary_and_a_zombie(proc: Proc, capsys: pytest.CaptureFixture[str]) -> None:
    proc.add(40, "/opt/llama/llama-server (deleted)", 100)
    proc.add(41, "/opt/llama/llama-server", None)
    assert ask(capsys, *USED) == ["0, 50", "1, 50"]


def test_utilisation_is_processor_time_over_the_interval(proc: Proc) -> None:
    proc.add(40, "/opt/llama/llama-server", 100, ticks=1000)
    before = nvidia_smi.read()
    spent = nvidia_smi.TICKS // 2
    stat = proc.root / "40" / "stat"
    stat.write_text(stat.read_text().replace(" 1000 ", f" {1000 + spent} "))
    earlier = nvidia_smi.Reading(before.when - 1, before.total_mib, 2, before.held, before.busy)
    assert before.busy == (None, None)
    busy = nvidia_smi.read(earlier).busy[0]
    assert busy is not None
    assert 0 < busy <= 50


def test_what_nothing_can_tell_is_not_zero(proc: Proc, capsys: pytest.CaptureFixture[str]) -> None:
    row = ask(capsys, "--query-gpu=temperature.gpu,power.draw,pstate", "--format=csv,noheader")[0]
    assert row == "[N/A], [N/A], [N/A]"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--query-gpu=index,nonsense", "--format=csv"), 2, 'Field "nonsense" is not a valid'),
        (("--query-gpu=index",), 2, "--format"),
        (("--gpu-reset",), 2, "--gpu-reset"),
        (("--query-gpu=index", "--format=csv", "-i", "7"), 6, "No devices were found"),
    ],
)
def test_refusals_go_to_stdout_with_the_real_status(
    proc: Proc,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    status: int,
    said: str,
) -> None:
    assert nvidia_smi.main(words) == status
    assert said in capsys.readouterr().out


def test_units_and_header(proc: Proc, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--query-gpu=memory.total,name", "--format=csv,nounits", "--id=1")
    assert ask(capsys, *words) == ["memory.total [MiB], name", f"4096, {nvidia_smi.NAME}"]


def test_a_process_that_ends_while_it_is_looked_at(proc: Proc) -> None:
    (proc.root / "77").mkdir()
    (proc.root / "77" / "exe").symlink_to("/gone")
    assert nvidia_smi.read().held == ()
