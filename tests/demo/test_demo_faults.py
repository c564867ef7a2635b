"""Each named fault does to a plain client what its name says."""

from __future__ import annotations

import asyncio

import aiohttp
import asyncssh
import pytest
from conftest import UNIT, OpenRig, Rig

from specdash.demo.faults import Fault, FaultSwitch, parse_faults

pytestmark = pytest.mark.timeout(90)


def test_faults_are_known_by_name() -> None:
    assert parse_faults(["stop-hangs", "generate-500"]) == {Fault.STOP_HANGS, Fault.GENERATE_500}
    with pytest.raises(ValueError, match=r"no fault is called 'stop'.*stop-hangs"):
        parse_faults(["stop"])


async def _log(rig: Rig) -> str:
    return (await rig.sh(f"journalctl --no-pager -o cat -u {UNIT}")).out


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault.OOM_ON_LOAD, "Capture cuda graph failed: CUDA out of memory"),
        (Fault.NOT_ENOUGH_MEMORY, "Please try to increase --mem-fraction-static"),
        (Fault.CRASH_ON_LOAD, "SafetensorError"),
    ],
)
async def test_a_failing_load_loops_and_gives_up(
    open_rig: OpenRig, fault: Fault, text: str
) -> None:
    async with open_rig(faults=(fault,), speed=20.0) as rig:

        async def restarted() -> bool:
            return int((await rig.show("NRestarts"))["NRestarts"]) >= 1

        await rig.until(restarted, "a restart of its own")
        log = await _log(rig)
        assert text in log
        assert "Received sigquit from a child process" in log
        assert "Main process exited, code=exited, status=1/FAILURE" in log
        assert (await rig.sh(f"systemctl stop {UNIT}")).status == 0
        assert (await rig.show("ActiveState"))["ActiveState"] == "inactive"

        async def freed() -> bool:
            return max(await rig.used()) < 100

        await rig.until(freed, "nothing is left behind")


async def test_a_wrong_flag_exits_like_argparse(open_rig: OpenRig) -> None:
    async with open_rig(stopped=True) as rig:
        path = rig.box.rig.config.path
        await rig.sh(
            f"sed -i 's/--enable-metrics/--enable-metrics --no-such-flag/;s/^Restart=.*//' {path}"
        )
        await rig.sh(f"systemctl daemon-reload; systemctl start {UNIT}")
        await rig.state("failed")
        assert (await rig.show("Result", "ExecMainStatus")) == {
            "Result": "exit-code",
            "ExecMainStatus": "2",
        }
        assert "error: unrecognized arguments: --no-such-flag" in await _log(rig)


async def test_never_ready_and_a_stalled_load(open_rig: OpenRig) -> None:
    async with open_rig(faults=(Fault.NEVER_READY,)) as rig:

        async def answers() -> bool:
            return (await rig.get("/v1/models"))[0] == 200

        await rig.until(answers, "the port is open")
        assert (await rig.get("/health"))[0] == 503
        rig.box.set_faults(Fault.LOAD_STALLS)
        await rig.sh(f"systemctl restart {UNIT}")

        async def stalled() -> bool:
            return min(await rig.used()) > 10_000

        await rig.until(stalled, "weights began to load")
        assert (await rig.get("/health"))[0] is None
        rig.box.set_faults()
        await rig.ready()


async def test_stop_hangs_until_it_is_killed(open_rig: OpenRig) -> None:
    async with open_rig(faults=(Fault.STOP_HANGS,)) as rig:
        await rig.ready()
        await rig.sh(f"systemctl stop --no-block {UNIT}")
        await rig.state("deactivating")
        assert (await rig.show("SubState"))["SubState"] == "stop-sigterm"
        await rig.state("failed")
        assert (await rig.show("Result"))["Result"] == "timeout"
        assert "timed out. Killing." in await _log(rig)


async def test_a_stubborn_orphan_needs_sigkill_and_blocks_the_next_load(
    open_rig: OpenRig,
) -> None:
    async with open_rig(faults=(Fault.STUBBORN_ORPHAN,)) as rig:
        await rig.ready()
        await rig.sh(f"systemctl stop {UNIT}")
        pid = (await rig.sh("pgrep -f scheduler_TP0")).out.strip()
        assert (await rig.sh(f"env kill -s TERM {pid}")).status == 0
        await rig.sh(f"systemctl start {UNIT}")

        async def refused() -> bool:
            return "torch.OutOfMemoryError: CUDA out of memory" in await _log(rig)

        await rig.until(refused, "the next load finds GPU 0 full")
        await rig.sh(f"systemctl stop {UNIT}")
        assert (await rig.sh(f"ps -o args= -p {pid}")).out == "sglang::scheduler_TP0\n"
        assert (await rig.sh(f"env kill -s KILL {pid}")).status == 0

        async def gone() -> bool:
            return (await rig.sh(f"ps -p {pid}")).status == 1

        await rig.until(gone, "the orphan is dead")


async def test_memory_that_is_not_given_back(open_rig: OpenRig) -> None:
    async with open_rig(faults=(Fault.MEMORY_STUCK,)) as rig:
        await rig.ready()
        await rig.sh(f"systemctl stop {UNIT}")
        assert min(await rig.used()) > 80_000
        apps = "nvidia-smi --query-compute-apps=pid --format=csv,noheader"
        assert (await rig.sh(apps, on="node")).out == ""
        rig.box.set_faults()

        async def freed() -> bool:
            return max(await rig.used()) < 100

        await rig.until(freed, "the memory came back")


async def test_a_foreign_holder(open_rig: OpenRig) -> None:
    async with open_rig(stopped=True, faults=(Fault.FOREIGN_HOLDER,)) as rig:

        async def held() -> bool:
            return (await rig.used())[1] > 20_000

        await rig.until(held, "somebody holds GPU 1")
        apps = await rig.sh(
            "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv,noheader",
            on="node",
        )
        pid, name, used = apps.out.strip().split(", ")
        assert (name, used) == ("python3", "20480 MiB")
        who = await rig.sh(f"ps -o user=,args= -p {pid}", on="node")
        assert who.out.split() == ["alice", "python3", "train.py", "--resume", "latest"]
        rig.box.set_faults()

        async def freed() -> bool:
            return (await rig.used())[1] < 100

        await rig.until(freed, "the job ended")


@pytest.mark.parametrize(
    ("fault", "status", "text"),
    [
        (Fault.DRIVER_MISMATCH, 18, "Driver/library version mismatch"),
        (Fault.GPU_LOST, 255, "Unable to determine the device handle"),
        (Fault.NO_LOOP, 1, "Invalid combination"),
    ],
)
async def test_nvidia_smi_failures(open_rig: OpenRig, fault: Fault, status: int, text: str) -> None:
    async with open_rig(stopped=True, faults=(fault,)) as rig:
        command = "nvidia-smi --query-gpu=index --format=csv -lms 100"
        ran = await asyncio.wait_for(rig.sh(command, on="node"), 20)
        assert ran.status == status
        assert text in ran.out
        assert ran.err == ""


ASK = {"text": "hello", "stream": True, "sampling_params": {"max_new_tokens": 64}}


async def test_the_endpoint_fails_in_its_ways(open_rig: OpenRig) -> None:
    async with open_rig() as rig:
        await rig.ready()
        url = rig.box.rig.engine.url + "/generate"

        rig.box.set_faults(Fault.GENERATE_500)
        assert (await rig.post("/generate", ASK))[0] == 500

        rig.box.set_faults(Fault.GENERATE_HANGS)
        short = aiohttp.ClientTimeout(total=0.3)
        with pytest.raises(TimeoutError):
            await rig.http.post(url, json=ASK, timeout=short)

        rig.box.set_faults(Fault.STREAM_CUT)
        with pytest.raises(aiohttp.ClientPayloadError):
            async with rig.http.post(url, json=ASK) as reply:
                await reply.read()

        rig.box.set_faults(Fault.STREAM_STALLS)
        with pytest.raises(TimeoutError):
            async with rig.http.post(url, json=ASK, timeout=short) as reply:
                await reply.read()

        rig.box.set_faults(Fault.BROKEN_SSE)
        async with rig.http.post(url, json=ASK) as reply:
            first = await reply.content.readuntil(b"nothing of value")
        assert b"unfinished" in first

        rig.box.set_faults(Fault.NO_USAGE)
        async with rig.http.post(url, json=ASK) as reply:
            assert b"completion_tokens" not in await reply.read()

        rig.box.set_faults()

        async def idle() -> bool:
            text = (await rig.get("/metrics"))[1]
            assert isinstance(text, bytes)
            return b'num_running_reqs{model_name="qwen3.5-122b-a10b"} 0.0' in text

        await rig.until(idle, "a client that left is not served on")
        assert (await rig.post("/generate", {**ASK, "stream": False}))[0] == 200


async def test_the_engine_ignores_the_depth(open_rig: OpenRig) -> None:
    async with open_rig(steps=5, faults=(Fault.IGNORES_DEPTH,)) as rig:
        await rig.ready()
        info = (await rig.get("/server_info"))[1]
        assert isinstance(info, dict)
        assert info["speculative_num_steps"] == 3


async def test_a_unit_that_does_not_parse(open_rig: OpenRig) -> None:
    async with open_rig(stopped=True) as rig:
        rig.box.set_faults(Fault.UNIT_PARSE_ERROR)
        await rig.sh("systemctl daemon-reload")
        assert (await rig.show("LoadState"))["LoadState"] == "bad-setting"
        ran = await rig.sh(f"systemctl start {UNIT}")
        assert ran.status == 1
        assert "bad unit file setting" in ran.err


async def test_a_config_that_cannot_be_written(open_rig: OpenRig) -> None:
    async with open_rig(stopped=True) as rig:
        if rig.box.isolation != "namespace":
            pytest.skip("needs mounts of its own")
        path = rig.box.rig.config.path
        for fault, text in (
            (Fault.CONFIG_READ_ONLY, "Read-only file system"),
            (Fault.CONFIG_DISK_FULL, "No space left on device"),
        ):
            rig.box.set_faults(fault)
            command = f"head -c 9000 /dev/zero >> {path}.new"

            async def fails(command: str = command, text: str = text) -> bool:
                return text in (await rig.sh(command)).err

            await rig.until(fails, text)
            assert "ExecStart" in (await rig.sh(f"cat {path}")).out
        rig.box.set_faults()

        async def works() -> bool:
            return (await rig.sh(f"touch {path}.new && rm {path}.new")).status == 0

        await rig.until(works, "the directory can be written again")


async def test_the_link_drops(open_rig: OpenRig) -> None:
    async with open_rig(stopped=True) as rig:
        rig.box.set_faults(Fault.LINK_DROPS)
        cut = await asyncio.wait_for(rig.svc.run("sleep 60"), 20)
        assert cut.exit_status is None
        rig.box.set_faults()

        async def back() -> bool:
            try:
                async with asyncssh.connect("svc", config=[str(rig.box.ssh_config)]) as again:
                    return (await again.run("true")).exit_status == 0
            except (asyncssh.Error, OSError):
                return False

        await rig.until(back, "the link is back")


def test_the_switch_passes_over_unknown_names(tmp_path: object) -> None:
    from pathlib import Path

    root = Path(str(tmp_path))
    switch = FaultSwitch(root)
    assert switch.now() == frozenset()
    (root / "faults").write_text("stop-hangs\nwhatever\n", encoding="utf-8")
    assert switch.now() == {Fault.STOP_HANGS}
