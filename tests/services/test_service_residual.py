"""Whose a process is that is left after a stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from specdash.core.gpu import GpuProcess
from specdash.core.service import Process
from specdash.services.residual import OldRun, Residuals, classify, remember, state_note


def _process(pid: int, command: str = "bash", **changes: Any) -> Process:
    base = Process(
        host="svc",
        pid=pid,
        ppid=1,
        session=pid,
        uid=998,
        user="sglang",
        state="S",
        started="Sun Nov 29 12:00:10 2026",
        age_s=3590,
        command=command,
    )
    return replace(base, **changes)


MAIN = _process(100, "python3 -m sglang.launch_server", started="Sun Nov 29 12:00:00 2026", age_s=3600)  # fmt: skip
SCHEDULER = _process(101, "sglang::scheduler_TP0", ppid=100, session=100)
DETACHED = _process(102, "sglang::detokenizer", ppid=101, session=102)
LOGIN = _process(50, "-bash", started="Sun Nov 29 09:00:00 2026")
BEFORE = [LOGIN, MAIN, SCHEDULER, DETACHED]
ORPHAN = replace(SCHEDULER, ppid=1)


def _old() -> OldRun:
    old = remember("svc", 100, BEFORE)
    assert old is not None
    return old


def _judge(processes: Sequence[Process], **facts: Any) -> Residuals:
    return classify(
        processes,
        service_host="svc",
        is_engine=lambda command: command.startswith(("sglang::", "python3 -m sglang")),
        **facts,
    )


def test_the_family_is_known_again_after_it_lost_its_parent() -> None:
    detached = replace(DETACHED, ppid=1)
    child = _process(200, "nvcc", ppid=102, session=200, started="Sun Nov 29 13:30:00 2026")
    left = _judge([LOGIN, ORPHAN, detached, child], old=_old())
    assert {process.pid for process in left.ours} == {101, 102, 200}
    assert left.foreign == ()
    assert all(process.why for process in left.ours)


def test_the_session_of_the_main_process_is_ours() -> None:
    late = _process(300, "helper", session=100, started="Sun Nov 29 12:30:00 2026")
    assert [process.pid for process in _judge([late], old=_old()).ours] == [300]


def test_a_session_number_that_came_round_again_is_not_ours() -> None:
    older = _process(300, "helper", session=100, started="Sun Nov 29 11:00:00 2026")
    assert _judge([older], old=_old()) == Residuals()


def test_a_main_process_in_a_login_session_does_not_make_the_login_ours() -> None:
    shell = _process(50, "-bash", session=50)
    main = replace(MAIN, session=50, ppid=50)
    old = remember("svc", 100, [shell, main])
    other = _process(51, "vim", session=50, ppid=50, started="Sun Nov 29 12:10:00 2026")
    assert _judge([shell, other], old=old).ours == ()


def test_the_control_group_is_ours_without_any_name() -> None:
    left = _judge([_process(400, "anything")], control_group=(400,))
    assert [process.why for process in left.ours] == ["in the unit's control group"]


def test_the_control_group_counts_on_its_own_host_only() -> None:
    assert _judge([_process(400, "anything", host="node")], control_group=(400,)).ours == ()


def test_an_engine_in_a_listed_container_is_ours_and_nothing_else_there() -> None:
    engine = _process(7, "sglang::scheduler", host="ct", uid=0)
    other = _process(8, "postgres", host="ct", uid=0)
    left = _judge([engine, other], clean_hosts=("ct",))
    assert [process.pid for process in left.ours] == [7]
    assert left.foreign == ()
    assert [process.pid for process in _judge([engine]).foreign] == [7]


def test_same_user_name_and_time_on_the_gpus_is_probably_ours() -> None:
    stray = _process(500, "sglang::scheduler_TP1", started="Sun Nov 29 12:20:00 2026")
    gpus = (GpuProcess("GPU-a", 500, "x", used_mib=1000), GpuProcess("GPU-b", 500, "x", used_mib=500))  # fmt: skip
    left = _judge([stray], old=_old(), gpu_host="svc", gpu_processes=gpus)
    assert [(process.pid, process.gpu_mib) for process in left.probable] == [(500, 1500)]
    assert "GPUs" in left.probable[0].why


def test_on_the_port_counts_as_on_the_gpus() -> None:
    stray = _process(500, "sglang::scheduler_TP1", started="Sun Nov 29 12:20:00 2026")
    left = _judge([stray], old=_old(), port_holders={"svc": (500,)})
    assert [process.pid for process in left.probable] == [500]


def test_each_missing_tie_makes_it_foreign() -> None:
    stray = _process(500, "sglang::scheduler_TP1", started="Sun Nov 29 12:20:00 2026")
    gpus = (GpuProcess("GPU-a", 500, "x"),)
    facts: dict[str, Any] = {"old": _old(), "gpu_host": "svc", "gpu_processes": gpus}
    for other in (
        replace(stray, uid=1000),
        replace(stray, started="Sun Nov 29 11:00:00 2026"),
        replace(stray, started="Sun Nov 29 13:10:00 2026"),
        replace(stray, started="unreadable"),
        replace(stray, command="python3 train.py"),
    ):
        left = _judge([other], **facts)
        assert [process.pid for process in left.foreign] == [500]
        assert left.ours == left.probable == ()
    without_old = _judge([stray], gpu_host="svc", gpu_processes=gpus)
    assert [process.pid for process in without_old.foreign] == [500]


def test_an_engine_off_the_rigs_gpus_is_foreign() -> None:
    other = _process(600, "sglang::scheduler", started="Sun Nov 29 12:20:00 2026")
    assert [process.pid for process in _judge([other], old=_old()).foreign] == [600]


def test_everything_else_on_the_host_is_left_out() -> None:
    assert _judge([LOGIN, _process(60, "nginx")], old=_old()) == Residuals()


def test_holders_that_no_host_lists_are_unseen() -> None:
    rows = (GpuProcess("GPU-a", 9999, "[Not Found]"), GpuProcess("GPU-a", None, "x"))
    left = _judge([LOGIN], gpu_host="svc", gpu_processes=rows)
    assert left.unseen == rows


def test_unknown_memory_stays_unknown() -> None:
    rows = (GpuProcess("GPU-a", 700, "x", used_mib=5), GpuProcess("GPU-b", 700, "x"))
    (process,) = _judge([_process(700)], gpu_host="svc", gpu_processes=rows).foreign
    assert process.gpu_mib is None


def test_a_pid_that_was_given_again_is_not_the_family() -> None:
    reused = replace(ORPHAN, started="Sun Nov 29 14:00:00 2026", command="nginx", session=101)
    assert _judge([reused], old=_old()) == Residuals()


def test_start_times_that_bend_by_a_second_are_the_same_process() -> None:
    bent = replace(ORPHAN, started="Sun Nov 29 12:00:11 2026", session=101)
    assert [process.pid for process in _judge([bent], old=_old()).ours] == [101]


def test_ignored_processes_are_not_judged() -> None:
    assert _judge([ORPHAN], old=_old(), ignore={("svc", 101, ORPHAN.started)}) == Residuals()


def test_nothing_to_remember() -> None:
    assert remember("svc", None, BEFORE) is None
    assert remember("svc", 4711, BEFORE) is None
    assert remember("node", 100, BEFORE) is None


def test_states_that_no_signal_ends_are_named() -> None:
    assert "zombie" in state_note(_process(1, state="Zl"))
    assert "rebooted" in state_note(_process(1, state="D+"))
    assert state_note(_process(1, state="Ssl")) == ""


_ANY = st.builds(
    _process,
    st.integers(1, 12),
    st.sampled_from(["bash", "sglang::scheduler", "python3 -m sglang.launch_server"]),
    host=st.sampled_from(["svc", "ct"]),
    ppid=st.integers(0, 12),
    session=st.integers(0, 12),
    uid=st.sampled_from([0, 998]),
    started=st.sampled_from(["Sun Nov 29 12:00:00 2026", "Sun Nov 29 11:00:00 2026", "?"]),
)


@given(
    before=st.lists(_ANY, max_size=8),
    after=st.lists(_ANY, max_size=8),
    main=st.integers(1, 12),
    group=st.sets(st.integers(1, 12), max_size=3),
)
def test_any_process_is_judged_once_and_init_never(
    before: list[Process], after: list[Process], main: int, group: set[int]
) -> None:
    gpus = (GpuProcess("GPU-a", 5, "x"),)
    left = _judge(
        after,
        old=remember("svc", main, before),
        control_group=group,
        clean_hosts=("ct",),
        gpu_host="svc",
        gpu_processes=gpus,
    )
    judged = [*left.ours, *left.probable, *left.foreign]
    assert len(judged) <= len(after)
    assert all(process.pid > 1 and process.why for process in judged)
    assert all(process.host == "svc" for process in left.probable)
