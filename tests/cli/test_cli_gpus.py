"""``specdash gpus``: documents, exit codes, and what a word names."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from specdash.cli.main import run
from specdash.cli.ssh_names import is_ssh_host
from specdash.cli.verbs import gpus
from specdash.core.errors import UnreachableError
from specdash.hosts.protocol import Completed
from specdash.rig.schema import HostSpec

CAPTURE = Path(__file__).parents[1] / "gpus" / "captures" / "h200.txt"
HEAD = "index, uuid, name, memory.total [MiB], memory.used [MiB]\n"
ROW = "0, GPU-1, NVIDIA H200, 143771 MiB, 9 MiB\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def saved(tmp_path: Path) -> Any:
    def write(text: str | bytes) -> str:
        path = tmp_path / "smi.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


class Host:
    """A host with one GPU, or with what ``error`` or ``stdout`` says."""

    def __init__(self, stdout: bytes = (HEAD + ROW).encode(), status: int = 0) -> None:
        self.name = "box"
        self.stdout, self.status = stdout, status
        self.error: Exception | None = None

    async def run(
        self, argv: Sequence[str], *, timeout_s: float = 30.0, stdin: bytes | None = None
    ) -> Completed:
        if self.error is not None:
            raise self.error
        query = any(word.startswith("--query-gpu=") for word in argv)
        status, stdout = (self.status, self.stdout) if query else (127, b"")
        return Completed(self.name, tuple(argv), status, stdout, b"", 0.01)

    @asynccontextmanager
    async def lines(self, argv: Sequence[str]) -> AsyncIterator[AsyncIterator[bytes]]:
        async def none() -> AsyncIterator[bytes]:
            for line in self.stdout.splitlines():
                yield line

        yield none()


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> tuple[Host, list[tuple[str, HostSpec]]]:
    host, asked = Host(), []

    @asynccontextmanager
    async def fake(
        name: str, specs: dict[str, HostSpec], ssh_config: object, out: object
    ) -> AsyncIterator[Host]:
        asked.append((name, specs[name]))
        yield host

    monkeypatch.setattr(gpus, "_connected", fake)
    return host, asked


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_a_saved_output_as_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gpus", "--from", str(CAPTURE), "--json"]) == 0
    body = document(capsys)
    assert sorted(body) == ["gpus", "problems", "processes", "source"]
    (gpu,) = body["gpus"]
    assert gpu["memory_used_mib"] == 32362
    assert gpu["mig"] is False
    assert sorted(gpu) == sorted(
        ["index", "uuid", "name", "memory_total_mib", "memory_used_mib", "memory_reserved_mib",
         "utilization_percent", "temperature_c", "power_draw_w", "power_limit_w", "sm_clock_mhz",
         "pstate", "throttle_reasons", "mig", "state"]
    )  # fmt: skip
    assert sorted(body["processes"][0]) == ["gpu_uuid", "name", "pid", "used_mib", "user"]


def test_for_people_unknown_is_not_zero(saved: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(
        "index, name, memory.total [MiB], memory.used [MiB], pstate\n0, GB10, [N/A], [N/A], P0\n"
    )
    assert run(["gpus", "--from", path]) == 0
    text = capsys.readouterr().out
    assert "n/a/n/a" in text
    assert "GB10" in text


def test_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((HEAD + ROW).encode())))
    assert run(["gpus", "--from", "-", "--json"]) == 0
    assert document(capsys)["gpus"][0]["memory_used_mib"] == 9


def test_no_devices_is_an_answer(saved: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gpus", "--from", saved("No devices were found\n"), "--json"]) == 0
    body = document(capsys)
    assert (body["gpus"], [p["code"] for p in body["problems"]]) == ([], ["no-devices"])
    assert "error" not in body


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "garbled"),
        ("hello\n", "garbled"),
        (b"\x00\xff\x9b31m\xfe", "garbled"),
        ("0, NVIDIA H200, 143771 MiB, 9 MiB\n", "garbled"),
        (HEAD, "garbled"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", "driver-mismatch"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "no-driver"),
        ("Unable to determine the device handle for GPU0000:17:00.0: Unknown Error\n", "gpu-lost"),
    ],
)  # fmt: skip
def test_nothing_readable(
    saved: Any, capsys: pytest.CaptureFixture[str], text: str | bytes, code: str
) -> None:
    assert run(["gpus", "--from", saved(text), "--json"]) == 1
    body = document(capsys)
    assert body["error"]["code"] == code
    assert body["error"]["remedy"]
    assert body["problems"][0]["code"] == code
    assert all(gpu["memory_used_mib"] is None for gpu in body["gpus"])


def test_fields_name_the_columns(saved: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved("0, 9 MiB, 143771 MiB\n")
    words = ["gpus", "--from", path, "--fields", "index,memory.used,memory.total", "--json"]
    assert run(words) == 0
    assert document(capsys)["gpus"][0]["memory_used_mib"] == 9


@pytest.mark.parametrize("name", ["nothing.txt", "."])
def test_a_file_that_cannot_be_read(
    home: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert run(["gpus", "--from", str(home / name), "--json"]) == 1
    body = document(capsys)
    assert body["error"]["code"] == "unreadable"
    assert body["gpus"] == []


@pytest.mark.parametrize(
    "words",
    [
        ["--from", "x", "host"],
        ["--from", "x", "--watch"],
        ["--fields", "index"],
        ["--count", "3"],
        ["--watch", "--json"],
        ["--watch", "--interval-ms", "0"],
        ["--watch", "--interval-ms", "soon"],
        ["--watch", "--count", "0", "--json"],
        ["--from"],
        ["a", "b"],
        ["--bogus"],
        ["nonsense"],
        ["-F", "/nowhere/config", "root@h"],
        ["broken.toml"],
    ],
)
def test_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gpus", *words, *([] if "--json" in words else ["--json"])]) == 2
    assert document(capsys)["error"]["message"]


def test_this_machine_without_a_word(connected: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gpus", "--json"]) == 0
    assert document(capsys)["source"] == "local"
    assert connected[1] == [("local", HostSpec("local", local=True))]


def test_user_at_host_and_aliases(
    connected: Any, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text("Include more\nHost *\n  User x\n")
    (home / ".ssh" / "more").write_text('Host "node" gpu-*\n  HostName 10.0.0.1\n')
    for word in ("root@10.0.0.9", "node", "gpu-7"):
        assert run(["gpus", word, "--json"]) == 0
        assert document(capsys)["source"] == word
        assert connected[1][-1] == (word, HostSpec(word, ssh=word))
    assert run(["gpus", "nod", "--json"]) == 2
    assert "'node'" in document(capsys)["error"]["remedy"]


def test_a_rig_names_the_host_of_its_gpus(
    connected: Any, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rigs = home / ".config" / "specdash" / "rigs"
    rigs.mkdir(parents=True)
    (rigs / "big.toml").write_text(
        '[hosts.svc]\nssh = "root@svc"\n[hosts.node]\nssh = "root@node"\n'
        '[service]\nhost = "svc"\nkind = "systemd"\nunit = "sglang.service"\n'
        '[config]\nhost = "svc"\npath = "/etc/systemd/system/sglang.service"\n'
        '[engine]\nkind = "sglang"\nurl = "http://svc:30000"\n[gpus]\nhost = "node"\n'
    )
    for word in ("big", str(rigs / "big.toml")):
        assert run(["gpus", word, "--json"]) == 0
        capsys.readouterr()
        assert connected[1][-1] == ("node", HostSpec("node", ssh="root@node"))


def test_an_unreachable_host(connected: Any, capsys: pytest.CaptureFixture[str]) -> None:
    connected[0].error = UnreachableError("root@h: connection refused", remedy="Is sshd up?")
    assert run(["gpus", "root@h", "--json"]) == 3
    body = document(capsys)
    assert body["error"]["code"] == "unreachable"
    assert (body["source"], body["gpus"], body["processes"], body["problems"]) == (
        "root@h",
        [],
        [],
        [],
    )


def test_a_host_without_the_command(connected: Any, capsys: pytest.CaptureFixture[str]) -> None:
    connected[0].stdout, connected[0].status = b"", 127
    assert run(["gpus", "root@h", "--json"]) == 1
    assert document(capsys)["error"]["code"] == "no-command"
    assert run(["gpus", "root@h", "--watch", "--jsonl"]) == 1


def test_watch_prints_an_event_a_line(connected: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["gpus", "root@h", "--watch", "--jsonl", "--count", "2", "--interval-ms", "100"]) == 0
    )
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["gpus_sampled"] * 2
    assert all(isinstance(line["t"], float) for line in lines)
    assert lines[1]["snapshot"]["gpus"][0]["memory_used_mib"] == 9
    assert lines[1]["snapshot"]["source"] == "root@h"


def test_watch_with_a_count_is_one_document(
    connected: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["gpus", "root@h", "--watch", "--json", "--count", "1"]) == 0
    assert document(capsys)["gpus"][0]["memory_used_mib"] == 9


@pytest.mark.parametrize(
    ("word", "is_host"),
    [
        ("root@10.0.0.1", True),
        ("root@h:2222", True),
        ("a.b-c@gpu.lan", True),
        ("-oProxyCommand=x@h", False),
        ("root@-oProxyCommand", False),
        ("a b@h", False),
        ("host", False),
        ("@h", False),
        ("", False),
    ],
)
def test_words_that_may_be_hosts(word: str, is_host: bool) -> None:
    assert is_ssh_host(word, ()) is is_host
