"""One snapshot over a host: fields negotiated, lost GPUs worked around, holders with users."""

from __future__ import annotations

import pytest
from gpus_helpers import FakeHost, Reply, asked_fields, csv, gpu_values

from specdash.gpus import query
from specdash.gpus.once import snapshot
from specdash.hosts.protocol import LinkLostError

APPS = (
    b"gpu_uuid, pid, used_gpu_memory [MiB], process_name\n"
    b"GPU-00000001-1111-2222-3333-444444444444, 812, 61200 MiB, sglang::scheduler_TP0\n"
    b"GPU-00000001-1111-2222-3333-444444444444, 813, 300 MiB, /usr/bin/python3\n"
    b"GPU-00000001-1111-2222-3333-444444444444, 814, [N/A], other\n"
)


def is_query(argv: tuple[str, ...]) -> bool:
    return any(word.startswith("--query-gpu=") for word in argv)


def is_apps(argv: tuple[str, ...]) -> bool:
    return any(word.startswith("--query-compute-apps=") for word in argv)


def four_gpus(argv: tuple[str, ...]) -> Reply:
    if is_query(argv):
        return csv(asked_fields(argv), [gpu_values(i, used=i * 100) for i in range(4)])
    if is_apps(argv):
        return APPS
    assert argv[0] == "ps"
    return b"  812 root     sglang::schedul\n  813 alice    pt_main_thread\n  814 bob      nginx\n"


async def test_gpus_and_holders() -> None:
    host = FakeHost(four_gpus)
    taken = await snapshot(host)
    assert taken.source == "box"
    assert [gpu.memory_used_mib for gpu in taken.gpus] == [0, 100, 200, 300]
    assert [(p.pid, p.user, p.used_mib) for p in taken.processes] == [
        (812, "root", 61200),
        (813, "alice", 300),
        (814, None, None),  # ps knows another program under this pid
    ]
    assert taken.problems == ()
    assert all(isinstance(argv, tuple) for argv in host.ran)


@pytest.mark.parametrize("old", [
    {"clocks_event_reasons.active"},
    {"clocks_event_reasons.active", "memory.reserved"},
    {"clocks_event_reasons.active", "clocks_throttle_reasons.active", "mig.mode.current", "memory.reserved"},
])  # fmt: skip
async def test_a_refused_field_is_replaced_or_left_out(old: set[str]) -> None:
    def driver(argv: tuple[str, ...]) -> Reply:
        if not is_query(argv):
            return b""
        bad = [name for name in asked_fields(argv) if name in old]
        if bad:
            return 2, f'Field "{bad[0]}" is not a valid field to query.\n'.encode()
        return csv(asked_fields(argv), [gpu_values(0, used=7, count=1)])

    taken = await snapshot(FakeHost(driver))
    assert [gpu.memory_used_mib for gpu in taken.gpus] == [7]
    assert taken.problems == ()
    known = "clocks_throttle_reasons.active" not in old
    assert taken.gpus[0].throttle_reasons == (("gpu_idle",) if known else ())


async def test_a_refusal_without_a_name_tries_shorter_lists() -> None:
    def driver(argv: tuple[str, ...]) -> Reply:
        if is_query(argv) and len(asked_fields(argv)) > 6:
            return (
                2,
                b"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n",
            )
        return csv(asked_fields(argv), [gpu_values(0, used=7)]) if is_query(argv) else b""

    assert (await snapshot(FakeHost(driver))).gpus[0].memory_used_mib == 7


async def test_no_command_anywhere() -> None:
    host = FakeHost(lambda argv: (127, b""))
    taken = await snapshot(host)
    assert taken.gpus == ()
    assert [problem.code for problem in taken.problems] == ["no-command"]
    assert [argv[0] for argv in host.ran] == list(query.PROGRAMS)


async def test_wsl_has_it_off_the_path() -> None:
    def driver(argv: tuple[str, ...]) -> Reply:
        return (127, b"") if argv[0] == "nvidia-smi" else four_gpus(argv)

    taken = await snapshot(FakeHost(driver))
    assert len(taken.gpus) == 4
    assert len(taken.processes) == 3


async def test_a_lost_gpu_does_not_hide_the_others() -> None:
    def driver(argv: tuple[str, ...]) -> Reply:
        if argv[0] == "ls":
            return b"0000:01:00.0\n0000:02:00.0\n0000:c1:00.0\n"
        if is_query(argv) and "-i" not in argv:
            return (
                255,
                b"Unable to determine the device handle for GPU0000:02:00.0: Unknown Error\n",
            )
        if is_query(argv):
            assert argv[argv.index("-i") + 1] == "00000000:01:00.0,00000000:C1:00.0"
            return csv(asked_fields(argv), [gpu_values(0, used=5), gpu_values(2, used=6)])
        return b""

    taken = await snapshot(FakeHost(driver))
    assert [(gpu.index, gpu.state, gpu.memory_used_mib) for gpu in taken.gpus] == [
        (0, "ok", 5),
        (2, "ok", 6),
        (None, "lost", None),
    ]
    assert [problem.code for problem in taken.problems] == ["gpu-lost"]


async def test_no_devices_asks_for_no_holders() -> None:
    host = FakeHost(lambda argv: (6, b"No devices were found\n"))
    taken = await snapshot(host)
    assert (taken.gpus, [problem.code for problem in taken.problems]) == ((), ["no-devices"])
    assert len(host.ran) == 1


async def test_an_unreachable_host_is_raised() -> None:
    with pytest.raises(LinkLostError):
        await snapshot(FakeHost(lambda argv: LinkLostError("gone")))


def test_the_last_field_can_be_told_when_it_is_cut() -> None:
    assert query.FIELDS[-1] == "pstate"
    assert query.gpus_argv(loop_ms=500, unbuffered=True)[:3] == ("stdbuf", "-oL", "nvidia-smi")


def test_fewer_fields_ends() -> None:
    fields: tuple[str, ...] | None = query.FIELDS
    seen = set()
    while fields is not None:
        assert fields not in seen
        seen.add(fields)
        fields = query.fewer_fields(fields, ())
    assert ("name", "memory.total", "memory.used") in seen
