"""The box from the outside, with plain SSH and HTTP clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest
from conftest import UNIT, OpenRig, Rig

from specdash.demo.box import BoxFailedError, start_box
from specdash.demo.faults import Fault
from specdash.rig.load import load_rig

pytestmark = pytest.mark.timeout(90)


async def test_the_rig_file_says_what_the_rig_says(open_rig: OpenRig) -> None:
    async with open_rig(stopped=True) as rig:
        assert load_rig(rig.box.rig_path) == rig.box.rig
        assert rig.box.rig.simulated
        root = rig.box.root
    assert not root.exists()


async def test_the_rig_is_found_serving_whatever_the_speed(open_rig: OpenRig) -> None:
    async with open_rig(speed=1.0, steps=0) as rig:
        assert (await rig.get("/health"))[0] == 200
        info = (await rig.get("/server_info"))[1]
        assert isinstance(info, dict)
        assert info["speculative_algorithm"] is None


async def test_a_whole_restart_by_hand(open_rig: OpenRig) -> None:
    async with open_rig() as rig:
        await rig.ready()
        before = await rig.show("InvocationID", "MainPID", "NeedDaemonReload", "ControlGroup")
        assert before["NeedDaemonReload"] == "no"
        assert before["ControlGroup"] == f"/system.slice/{UNIT}"
        assert min(await rig.used()) > 80_000

        assert (await rig.sh(f"systemctl stop {UNIT}")).status == 0
        assert (await rig.sh(f"systemctl is-active {UNIT}")).out == "inactive\n"
        stopped = await rig.show("MainPID", "ControlGroup", "Result")
        assert stopped == {"MainPID": "0", "ControlGroup": "", "Result": "success"}
        port = rig.box.rig.engine.url.rsplit(":", 1)[-1]
        assert (await rig.sh(f"fuser -n tcp {port}")).status == 1

        async def freed() -> bool:
            return max(await rig.used()) < 100

        await rig.until(freed, "memory released")

        await rig.edit(("--speculative-num-steps", "4"), ("--speculative-num-draft-tokens", "5"))
        assert (await rig.show("NeedDaemonReload"))["NeedDaemonReload"] == "yes"
        warned = await rig.sh(f"systemctl start {UNIT}")
        assert "daemon-reload" in warned.err
        await rig.ready()
        # What was loaded before the edit is what runs.
        assert await _steps(rig) == 1

        await rig.sh(f"systemctl daemon-reload && systemctl restart {UNIT}")
        await rig.ready()
        assert await _steps(rig) == 4
        after = await rig.show("InvocationID", "MainPID", "NeedDaemonReload")
        assert after["NeedDaemonReload"] == "no"
        assert after["InvocationID"] != before["InvocationID"]
        assert after["MainPID"] != before["MainPID"]


async def _steps(rig: Rig) -> object:
    info = (await rig.get("/server_info"))[1]
    assert isinstance(info, dict)
    return info["speculative_num_steps"]


async def test_the_journal_tells_one_run_from_another(open_rig: OpenRig) -> None:
    async with open_rig() as rig:
        await rig.ready()
        first = (await rig.show("InvocationID"))["InvocationID"]
        await rig.sh(f"systemctl restart {UNIT}")
        await rig.ready()
        second = (await rig.show("InvocationID"))["InvocationID"]
        ran = await rig.sh(
            "journalctl --no-pager --all -o json --output-fields=MESSAGE -n 500 "
            f"_SYSTEMD_INVOCATION_ID={second} + INVOCATION_ID={second}"
        )
        messages = [json.loads(line)["MESSAGE"] for line in ran.out.splitlines()]
        texts = [m if isinstance(m, str) else bytes(m).decode() for m in messages]
        assert sum("ready to roll" in text for text in texts) == 1
        assert any(isinstance(message, list) for message in messages)  # progress bars
        assert any(text.startswith("Started ") for text in texts)
        both = await rig.sh(f"journalctl --no-pager -o cat -u {UNIT}")
        assert both.out.count("ready to roll") == 2
        assert "SIMULATED" in both.out
        assert first != second


async def test_following_the_journal_starts_now_and_ends_with_its_reader(
    open_rig: OpenRig,
) -> None:
    async with open_rig() as rig:
        await rig.ready()
        process = await rig.svc.create_process(f"journalctl -f -n 0 -o cat -u {UNIT}")
        reading = asyncio.create_task(process.stdout.readline())
        while not reading.done():
            await rig.post("/generate", {"text": "hi", "sampling_params": {"max_new_tokens": 4}})
        assert "Prefill batch" in reading.result()
        process.close()


async def test_gpu_stream_and_compute_processes(open_rig: OpenRig) -> None:
    async with open_rig() as rig:
        await rig.ready()
        command = "nvidia-smi --query-gpu=index,uuid,memory.used --format=csv,noheader -lms 50"
        async with rig.node.create_process(command) as process:
            rows = [await process.stdout.readline() for _ in range(12)]
        assert [row.split(",")[0] for row in rows] == ["0", "1", "2", "3"] * 3
        apps = await rig.sh(
            "nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv,noheader",
            on="node",
        )
        holders = [line.split(", ") for line in apps.out.splitlines()]
        assert [holder[2] for holder in holders] == [f"sglang::scheduler_TP{n}" for n in range(4)]
        assert [holder[0] for holder in holders] == [row.split(", ")[1] for row in rows[:4]]
        listed = await rig.sh("ps -ww -e -o pid=,args=")
        assert all(f"{holder[1]} {holder[2]}" in listed.out for holder in holders)
        # Inside the container nvidia-smi shows the GPUs and hides the processes.
        inside = "nvidia-smi --query-compute-apps=pid --format=csv,noheader"
        assert (await rig.sh(inside)).out == ""
        refused = await rig.sh("nvidia-smi --query-gpu=name,colour --format=csv", on="node")
        assert refused.status == 2
        assert refused.out.startswith('Field "colour" is not a valid field to query.')


async def test_pct_passes_argv_without_a_shell_and_keeps_the_status(open_rig: OpenRig) -> None:
    async with open_rig(stopped=True) as rig:
        ran = await rig.sh("pct exec 129 -- printf '<%s>' 'a b' '$HOME' '*'", on="node")
        assert (ran.status, ran.out) == (0, "<a b><$HOME><*>")
        assert (await rig.sh("pct exec 129 -- sh -c 'exit 9'", on="node")).status == 9
        piped = await rig.sh("pct exec 129 -- cat", on="node", stdin="through\n")
        assert piped.out == "through\n"
        assert (await rig.sh(f"pct exec 129 -- systemctl is-active {UNIT}", on="node")).status == 3
        wrong = await rig.sh("pct exec 999 -- true", on="node")
        assert wrong.status == 2
        assert "does not exist" in wrong.err
        assert (await rig.sh("pct exec 129 -- nosuch", on="node")).status == 127
        assert (await rig.sh("pct status 129")).status == 127  # only the node has it


async def test_the_end_of_input_and_of_the_channel_reach_the_command(open_rig: OpenRig) -> None:
    async with open_rig(stopped=True) as rig:
        assert (await rig.sh("cat | wc -c", stdin="12345")).out.strip() == "5"
        mark = rig.box.root / "home/ended"
        process = await rig.svc.create_process(f"cat >/dev/null; echo yes >{mark}")
        process.channel.close()
        await rig.until(mark.exists, "the command saw the end of its stdin")


async def test_openssh_accepts_the_config(open_rig: OpenRig) -> None:
    async with open_rig(stopped=True) as rig:
        argv = ["ssh", "-F", str(rig.box.ssh_config), "-o", "BatchMode=yes", "svc", "echo", "hi"]
        try:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except FileNotFoundError:
            pytest.skip("no OpenSSH client on this machine")
        out, err = await process.communicate()
        assert out == b"hi\n", err


async def test_forwards_reach_the_engine_and_nothing_else(open_rig: OpenRig) -> None:
    async with open_rig() as rig:
        await rig.ready()
        port = int(rig.box.rig.engine.url.rsplit(":", 1)[-1])
        reader, writer = await rig.svc.open_connection("127.0.0.1", port, encoding=None)
        writer.write(b"GET /health HTTP/1.0\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        other = rig.svc.get_extra_info("peername")[1]
        with pytest.raises(asyncssh.ChannelOpenError):
            await rig.svc.open_connection("127.0.0.1", other)


async def test_a_strange_key_is_refused(open_rig: OpenRig) -> None:
    async with open_rig(stopped=True) as rig:
        with pytest.raises(asyncssh.PermissionDenied):
            await asyncssh.connect(
                "svc",
                config=[str(rig.box.ssh_config)],
                client_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            )


async def test_the_box_dies_with_its_parent() -> None:
    script = (
        "import asyncio, json, sys\n"
        "from specdash.demo.box import start_box\n"
        "async def main():\n"
        "    box = await start_box(speed=1000)\n"
        "    print(json.dumps([str(box.root), box._process.pid]), flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    root, pid = json.loads(await process.stdout.readline())
    process.kill()
    await process.wait()
    for _ in range(500):
        if not _left(pid, root):
            break
        await asyncio.sleep(0.02)
    assert not _left(pid, root)


def _left(pid: int, root: str) -> bool:
    if Path(root).exists():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_box_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/tmp")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(BoxFailedError):
        await start_box(isolation="shims")
    with pytest.raises(ValueError, match="speed"):
        await start_box(speed=0)


@pytest.mark.parametrize("isolation", ["namespace", "shims"])
async def test_nothing_outside_can_be_seen_or_signalled(open_rig: OpenRig, isolation: str) -> None:
    with _decoy() as decoy:
        try:
            opened = open_rig(isolation=isolation)
            rig = await opened.__aenter__()
        except BoxFailedError:
            pytest.skip("no namespaces on this machine")
        try:
            await rig.ready()
            await _tries_everything(rig, decoy.pid, deep=isolation == "namespace")
        finally:
            await opened.__aexit__(None, None, None)
        assert decoy.poll() is None


@contextlib.contextmanager
def _decoy() -> Iterator[subprocess.Popen[bytes]]:
    """A process outside that every careless pattern would hit."""
    argv = ["sglang::scheduler", "-c", "while :; do read line || exit; done"]
    with subprocess.Popen(argv, executable="/bin/sh", stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


async def _tries_everything(rig: Rig, pid: int, *, deep: bool) -> None:
    for on in ("svc", "node"):
        for command in (
            "ps -ef",
            "ps aux",
            "ps -e -o pid=,args=",
            "pgrep -af sglang",
            "nvidia-smi",
            "nvidia-smi --query-compute-apps=pid,name --format=csv",
            "fuser -v /dev/nvidia0",
            *(["/bin/ps -ef", "cat /proc/[0-9]*/cmdline"] if deep else []),
        ):
            ran = await rig.sh(command, on=on)
            words = (ran.out + ran.err).replace("\0", " ").split()
            # "sglang::scheduler" without a rank is the decoy.
            assert "sglang::scheduler" not in words, command
            assert str(pid) not in words, command
        for command in (
            f"env kill -KILL {pid}",
            "pkill -KILL -f 'while :; do read line'",
            "fuser -k -KILL /dev/nvidia9",
            f"env kill -KILL -{pid}",
            *([f"kill -KILL {pid}", f"/bin/kill -KILL {pid}"] if deep else []),
        ):
            ran = await rig.sh(command, on=on)
            assert ran.status != 0, command
    # Its own it can end.
    listed = (await rig.sh("pgrep -x sglang::detoken")).out.split()
    assert len(listed) == 1
    assert (await rig.sh(f"env kill -s TERM {listed[0]}")).status == 0


async def test_signals_reach_only_what_still_lives(open_rig: OpenRig) -> None:
    async with open_rig(faults=(Fault.ORPHAN_SCHEDULER,)) as rig:
        await rig.ready()
        await rig.sh(f"systemctl stop {UNIT}")
        left = (await rig.sh("ps -ww -e -o pid=,cgroup=,args=")).out.splitlines()
        orphans = [line.split() for line in left if "scheduler_TP0" in line]
        assert len(orphans) == 1
        assert orphans[0][1] == "0::/user.slice"
        assert (await rig.show("ControlGroup"))["ControlGroup"] == ""
        used = await rig.used()
        assert used[0] > 80_000
        pid = orphans[0][0]
        started = (await rig.sh(f"env LC_ALL=C ps -o lstart= -p {pid}")).out.strip()
        assert started in (await rig.sh("ps -e -o lstart=,pid=")).out
        assert (await rig.sh(f"env kill -s TERM {pid}")).status == 0

        async def freed() -> bool:
            return max(await rig.used()) < 100

        await rig.until(freed, "the orphan's memory came back")
        assert (await rig.sh(f"env kill -s TERM {pid}")).status == 1
        assert (await rig.sh(f"ps -o lstart= -p {pid}")).status == 1
        assert signal.SIGTERM == 15
