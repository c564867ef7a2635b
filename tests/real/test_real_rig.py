"""The main job on the real rig, through the product's own command line.

Nothing here is simulated but the GPUs, whose memory is the resident memory of real processes.
No figure is asserted: the machine may be busy. What runs, what is held and what is written is.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rig_up import GPUS, PORT, UNIT, UNIT_PATH, RealRig

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("real-rig"), pytest.mark.timeout(180)]

SPECDASH = [sys.executable, "-c", "from specdash.cli.main import main; main()"]


@dataclass
class Ended:
    """One run of the command line: exit status, its one JSON document, its messages."""

    status: int
    document: dict[str, Any]
    messages: str

    @property
    def stages(self) -> dict[str, dict[str, Any]]:
        return {stage["name"]: stage for stage in self.document["stages"]}


@dataclass
class Cockpit:
    """specdash with directories of its own, on the rig with short cells."""

    rig: RealRig
    rig_file: Path
    env: dict[str, str]

    def argv(self, verb: tuple[str, ...], *words: str) -> list[str]:
        ssh = str(self.rig.machine.ssh_config)
        return [*SPECDASH, *verb, str(self.rig_file), "-F", ssh, *words]

    def run(self, *verb: str, words: tuple[str, ...] = ()) -> Ended:
        done = subprocess.run(
            self.argv(verb, "--json", *words),
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=150,
        )
        assert done.stdout, done.stderr
        return Ended(done.returncode, json.loads(done.stdout), done.stderr)

    def cycle(self, steps: int, *words: str) -> Ended:
        asked = ("--steps", str(steps), "--yes", "--concurrency", "1", *words)
        return self.run("cycle", words=asked)


@pytest.fixture
def rig(real_rig: RealRig) -> Iterator[RealRig]:
    """The rig as it was at first, and put back to that."""
    if real_rig.show("ActiveState") != "active" or real_rig.unit() != real_rig.unit_text:
        real_rig.reset()
    yield real_rig
    if real_rig.show("ActiveState") != "active" or real_rig.unit() != real_rig.unit_text:
        real_rig.reset()


@pytest.fixture
def cockpit(rig: RealRig, tmp_path: Path) -> Cockpit:
    text = rig.rig_file.read_text()
    text = re.sub(r"(?m)^budget_s = .*$", "budget_s = 2", text)
    text = re.sub(r"(?m)^output_tokens = .*$", "output_tokens = 32", text)
    rig_file = tmp_path / "real.toml"
    rig_file.write_text(text)
    env = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
    env["HOME"] = str(tmp_path)
    return Cockpit(rig, rig_file, env)


def used_mib(rig: RealRig) -> list[int]:
    rows = rig.machine.ssh(
        "nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"
    ).split()
    return [int(row) for row in rows]


def holders(rig: RealRig) -> set[int]:
    rows = rig.machine.ssh(
        "nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader,nounits"
    ).split()
    return {int(row) for row in rows}


def running_depth(rig: RealRig) -> int:
    """The depth in the command line of the process that runs now; 0 where it has none."""
    pid = rig.show("MainPID")
    words = rig.machine.ssh("cat", f"/proc/{pid}/cmdline").split("\0")
    if "--spec-draft-n-max" not in words:
        return 0
    return int(words[words.index("--spec-draft-n-max") + 1])


def alive(rig: RealRig, pid: int) -> bool:
    return bool(rig.machine.ssh("ps", "-o", "pid=", "-p", str(pid), check=False).strip())


def test_the_machine_is_real(rig: RealRig) -> None:
    assert rig.machine.ssh("cat", "/proc/1/comm").strip() == "systemd"
    assert rig.machine.ssh("systemctl", "is-system-running", check=False).strip() == "running"
    assert holders(rig) == {int(rig.show("MainPID"))}
    assert min(used_mib(rig)) > 100
    rig.machine.ssh("systemctl", "stop", UNIT)
    assert used_mib(rig) == [0] * GPUS
    assert holders(rig) == set()


def test_rig_check_finds_everything_in_order(cockpit: Cockpit) -> None:
    ended = cockpit.run("rig", "check")
    assert ended.status == 0, ended.messages
    assert all(check["ok"] for check in ended.document["checks"])
    assert len(ended.document["checks"]) >= 4


def test_plan_shows_and_touches_nothing(cockpit: Cockpit) -> None:
    rig = cockpit.rig
    invocation = rig.show("InvocationID")
    folder = rig.machine.ssh("ls", "-la", "--time-style=full-iso", "/etc/systemd/system")
    ended = cockpit.run("plan", words=("--steps", "4"))
    assert ended.status == 0, ended.messages
    assert ended.document["refusals"] == []
    commands = [argv for stage in ended.document["stages"] for argv in stage["commands"]]
    assert any(argv[:2] == ["systemctl", "stop"] for argv in commands)
    writes = [write for stage in ended.document["stages"] for write in stage["writes"]]
    assert [write["path"] for write in writes] == [UNIT_PATH]
    assert "--spec-draft-n-max 2\n" in writes[0]["diff"]
    assert "--spec-draft-n-max 4\n" in writes[0]["diff"]
    assert rig.show("InvocationID") == invocation
    assert rig.machine.ssh("ls", "-la", "--time-style=full-iso", "/etc/systemd/system") == folder


def test_one_depth_after_another(cockpit: Cockpit) -> None:
    """Each cycle: a new start, the asked depth in the process that runs, one line of the file
    changed, memory seen empty in between, tokens counted, drafts accepted within the depth."""
    rig = cockpit.rig
    invocations = [rig.show("InvocationID")]
    for depth in (4, 1, 8, 0, 2):
        ended = cockpit.cycle(depth)
        assert ended.status == 0, ended.messages
        body = ended.document
        assert body["outcome"] == "measured"
        assert body["simulated"] is False
        assert body["candidate"]["num_steps"] == depth
        assert body["resolved"]["enabled"] is (depth > 0)
        assert body["resolved"]["num_steps"] == depth
        assert all(stage["state"] == "done" for stage in body["stages"])
        assert body["gpu"]["idle_mib"] == [0] * GPUS
        assert min(body["gpu"]["peak_mib"]) > 100
        (cell,) = body["cells"]
        assert cell["requests"]["ok"] > 0
        assert cell["requests"]["failed"] == 0
        assert cell["output_tok_s"] > 0
        if depth > 0:
            assert 1 < cell["accept_length"] <= depth + 1
        assert running_depth(rig) == depth
        invocations.append(rig.show("InvocationID"))
    assert len(set(invocations)) == len(invocations)
    # 2 is where it began: after five edits not one byte differs.
    assert rig.unit() == rig.unit_text


def test_measure_only_restarts_nothing(cockpit: Cockpit) -> None:
    rig = cockpit.rig
    invocation, pid = rig.show("InvocationID"), rig.show("MainPID")
    ended = cockpit.run("cycle", words=("--measure-only", "--concurrency", "1,4"))
    assert ended.status == 0, ended.messages
    assert [cell["concurrency"] for cell in ended.document["cells"]] == [1, 4]
    assert all("not-fresh" in cell["flags"] for cell in ended.document["cells"])
    assert (rig.show("InvocationID"), rig.show("MainPID")) == (invocation, pid)


def test_without_a_yes_nothing_runs(cockpit: Cockpit) -> None:
    invocation = cockpit.rig.show("InvocationID")
    ended = cockpit.run("cycle", words=("--steps", "4"))
    assert ended.status == 4
    assert ended.document["error"]["code"]
    assert cockpit.rig.show("InvocationID") == invocation
    assert cockpit.rig.unit() == cockpit.rig.unit_text


ORPHANING = """\
#!/bin/sh
# A launch script as found in the field: the engine is its child, so that KillMode=process ends
# only the script and leaves the engine, its port and its memory.
/opt/llama/llama-server "$@" &
wait
"""


def test_an_orphan_of_the_service_is_reaped(cockpit: Cockpit) -> None:
    rig = cockpit.rig
    script = "/usr/local/bin/llama-server"
    rig.machine.ssh(f"cat > {script} && chmod 755 {script}", stdin=ORPHANING)
    text = rig.unit_text.replace("ExecStart=/opt/llama/llama-server", f"ExecStart={script}")
    rig.put_unit(text.replace("TimeoutStopSec=15", "TimeoutStopSec=15\nKillMode=process"))
    rig.machine.ssh("systemctl", "restart", UNIT)
    rig.wait_ready()
    (orphan,) = holders(rig)
    assert orphan != int(rig.show("MainPID"))
    ended = cockpit.cycle(4)
    assert ended.status == 0, ended.messages
    assert ended.document["outcome"] == "measured"
    assert not alive(rig, orphan)
    assert orphan not in holders(rig)
    log = rig.machine.ssh("journalctl", "-u", UNIT, "--no-pager")
    assert "remains running after unit stopped" in log, "systemd left no orphan to reap"


HOLDER = """\
import time
device = open("/dev/nvidia0")
kept = bytearray(300 << 20)
time.sleep(600)
"""


@pytest.fixture
def holder(rig: RealRig) -> Iterator[int]:
    """Somebody else's program that holds memory of GPU 0; its pid."""
    python = rig.machine.ssh("head", "-1", "/usr/bin/nvidia-smi").removeprefix("#!").split()[0]
    rig.machine.ssh("cat > /var/tmp/train.py", stdin=HOLDER)
    run = ("systemd-run", "--quiet", "--unit=training.service")
    rig.machine.ssh(*run, python, "-IS", "/var/tmp/train.py")
    pid = int(rig.machine.ssh("systemctl", "show", "--value", "-p", "MainPID", "training"))
    try:
        for _ in range(100):
            if pid in holders(rig) and used_mib(rig)[0] > 400:
                break
        else:
            pytest.fail(f"the holder holds nothing: {rig.machine.ssh('nvidia-smi')}")
        yield pid
    finally:
        rig.machine.ssh("systemctl", "stop", "training", check=False)


def test_a_foreign_holder_is_named_and_left_alone(cockpit: Cockpit, holder: int) -> None:
    rig = cockpit.rig
    rig_text = cockpit.rig_file.read_text()
    # The idle level is given, so that the holder's memory counts as not free.
    cockpit.rig_file.write_text(
        rig_text.replace('[gpus]\nhost = "svc"', '[gpus]\nhost = "svc"\nidle_mib = 50').replace(
            "free_s = 20", "free_s = 3"
        )
    )
    ended = cockpit.cycle(4)
    assert ended.status in (1, 4), ended.messages
    assert ended.document["outcome"] in ("failed", "refused")
    said = json.dumps(ended.document) + ended.messages
    assert str(holder) in said
    assert alive(rig, holder)
    assert rig.unit() == rig.unit_text
    assert ended.document["end_state"]


def test_a_broken_candidate_puts_the_old_config_back(cockpit: Cockpit) -> None:
    """The draft's file turns out to be damaged when the engine loads it."""
    rig = cockpit.rig
    assert cockpit.cycle(0).status == 0
    healthy = rig.unit()
    rig.machine.ssh("head -c 100000 /models/draft.gguf > /var/tmp/damaged.gguf")
    rig.machine.ssh("mount", "--bind", "/var/tmp/damaged.gguf", "/models/draft.gguf")
    try:
        ended = cockpit.cycle(4)
        assert ended.status == 1, ended.messages
        assert ended.document["outcome"] == "failed"
        assert ended.document["failure"]["stage"] in ("start", "load")
        assert "draft" in json.dumps(ended.document["failure"]["evidence"])
        assert rig.unit() == healthy
        assert rig.show("ActiveState") == "active"
        assert running_depth(rig) == 0
    finally:
        rig.machine.ssh("umount", "/models/draft.gguf")


def test_ctrl_c_while_it_starts_leaves_a_named_state(cockpit: Cockpit) -> None:
    rig = cockpit.rig
    slow = rig.unit_text.replace("[Service]\n", "[Service]\nExecStartPre=/bin/sleep 5\n")
    rig.put_unit(slow)
    running = subprocess.Popen(
        cockpit.argv(("cycle",), "--jsonl", "--steps", "4", "--yes", "--concurrency", "1"),
        env=cockpit.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout is not None
        for line in running.stdout:
            event = json.loads(line)
            if event["event"] == "stage_started" and event["stage"] in ("start", "load"):
                break
        else:
            pytest.fail("it ended before it started the service")
        running.send_signal(signal.SIGINT)
        rest, messages = running.communicate(timeout=120)
    finally:
        running.kill()
    assert running.returncode == 130, messages
    events = [json.loads(line) for line in rest.splitlines()]
    (ended,) = [event for event in events if event["event"] == "cycle_ended"]
    record = ended["record"]
    assert record["outcome"] == "cancelled"
    assert record["end_state"]
    assert rig.unit() == slow, "the last good config is back"
    state = rig.show("ActiveState")
    assert ("running" in record["end_state"]) == (state in ("active", "activating"))
    assert rig.machine.ssh("fuser", "-n", "tcp", str(PORT), check=False).split() == (
        [rig.show("MainPID")] if state == "active" else []
    )
