"""Unit names, ``systemctl show`` and control groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.core.errors import UsageError
from specdash.core.service import ServiceStatus
from specdash.services.cgroup import pids_in
from specdash.services.names import unit_name
from specdash.services.show import PROPERTIES, parse_show, seconds_of, status_of

ACTIVE = b"""\
Welcome to gpu-service!
TimeoutStopUSec=1min 30s
MainPID=4242
NRestarts=0
ExecMainCode=0
ExecMainStatus=0
ExecStart={ path=/opt/venv/bin/python3 ; argv[]=/opt/venv/bin/python3 -m sglang.launch_server --speculative-num-steps 3 ; ignore_errors=no ; start_time=[Sun 2026-11-29 14:59:07 UTC] ; stop_time=[n/a] ; pid=4242 ; code=(null) ; status=0/0 }
Id=sglang.service
LoadState=loaded
ActiveState=active
SubState=running
FragmentPath=/etc/systemd/system/sglang.service
DropInPaths=/etc/systemd/system/sglang.service.d/10-a.conf /etc/systemd/system/sglang.service.d/20-b.conf
ControlGroup=/system.slice/sglang.service
InvocationID=5f2c6c3be4d84e9b8f3f1f0c5a5b7d11
NeedDaemonReload=yes
StateChangeTimestamp=Sun 2026-11-29 14:59:07 UTC
Result=success
Unknown=ignored
"""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("sglang", "sglang.service"),
        ("sglang.service", "sglang.service"),
        (" sglang ", "sglang.service"),
        ("sglang@qwen", "sglang@qwen.service"),
        ("sglang@qwen-122b.service", "sglang@qwen-122b.service"),
        ("my.engine:a_b-c\\x2dd", "my.engine:a_b-c\\x2dd.service"),
    ],
)
def test_names(text: str, name: str) -> None:
    assert unit_name(text) == name
    assert unit_name(name) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".service",
        "-rf",
        "--user",
        "a b",
        "a;b",
        "$(reboot)",
        "a\nb",
        "ünit",
        "/etc/systemd/system/sglang.service",
        "sglang@",
        "sglang@.service",
        "a@b@c",
        "sglang.socket",
        "x" * 260,
    ],
)
def test_no_names(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        unit_name(text)
    assert caught.value.remedy


@given(st.text(max_size=30))
def test_a_name_is_never_an_option_nor_a_path(text: str) -> None:
    try:
        name = unit_name(text)
    except UsageError:
        return
    assert name.endswith(".service")
    assert not name.startswith("-")
    assert not set(name) & set("/ \n;$`'\"")


def test_running_service() -> None:
    status = status_of("sglang.service", parse_show(ACTIVE))
    assert status == ServiceStatus(
        unit="sglang.service",
        state="active",
        sub_state="running",
        main_pid=4242,
        since="Sun 2026-11-29 14:59:07 UTC",
        invocation="5f2c6c3be4d84e9b8f3f1f0c5a5b7d11",
        restarts=0,
        result="success",
        exit_status=None,
        needs_reload=True,
        control_group="/system.slice/sglang.service",
        fragment_path="/etc/systemd/system/sglang.service",
        drop_in_paths=(
            "/etc/systemd/system/sglang.service.d/10-a.conf",
            "/etc/systemd/system/sglang.service.d/20-b.conf",
        ),
        exec_start="/opt/venv/bin/python3 -m sglang.launch_server --speculative-num-steps 3",
        stop_timeout_s=90.0,
    )


@pytest.mark.parametrize(
    ("code", "status", "shown"),
    [("1", "2", 2), ("2", "9", 137), ("3", "11", 139), ("0", "0", None)],
)
def test_exit_status_is_a_shells(code: str, status: str, shown: int | None) -> None:
    values = {"LoadState": "loaded", "ExecMainCode": code, "ExecMainStatus": status}
    assert status_of("a.service", values).exit_status == shown


@pytest.mark.parametrize(
    ("load", "active", "sub", "state", "sub_state"),
    [
        ("not-found", "inactive", "dead", "not-found", "dead"),
        ("not-found", "active", "running", "active", "running"),
        ("masked", "inactive", "dead", "inactive", "masked"),
        ("bad-setting", "inactive", "dead", "inactive", "bad-setting"),
        ("loaded", "activating", "auto-restart", "activating", "auto-restart"),
        ("loaded", "refreshing", "x", "unknown", "x"),
        ("loaded", "", "", "unknown", ""),
    ],
)
def test_states(load: str, active: str, sub: str, state: str, sub_state: str) -> None:
    status = status_of("a.service", {"LoadState": load, "ActiveState": active, "SubState": sub})
    assert (status.state, status.sub_state) == (state, sub_state)


def test_nothing_known_is_none_and_never_zero() -> None:
    status = status_of("a.service", {"MainPID": "0", "NRestarts": "[not set]"})
    assert (status.main_pid, status.restarts, status.needs_reload) == (None, None, None)
    assert (status.exit_status, status.stop_timeout_s) == (None, None)


@pytest.mark.parametrize(
    ("span", "seconds"),
    [
        ("1min 30s", 90.0),
        ("45s", 45.0),
        ("500ms", 0.5),
        ("1h 1min 1s", 3661.0),
        ("1d", 86400.0),
        ("infinity", None),
        ("", None),
        ("5 parsecs", None),
    ],
)
def test_time_spans(span: str, seconds: float | None) -> None:
    assert seconds_of(span) == seconds


@given(st.binary())
def test_any_show_output_is_read(output: bytes) -> None:
    values = parse_show(output)
    assert set(values) <= set(PROPERTIES)
    status_of("a.service", values)


V2 = b"""\
    1 0::/init.scope
 4242 0::/system.slice/sglang.service
 4243 0::/system.slice/sglang.service/worker
 5000 0::/system.slice/sglang.service2
 6000 -
   77 0::/user.slice/user-0.slice/session-1.scope
"""
V1 = b"""\
    1 12:cpu,cpuacct:/init.scope,1:name=systemd:/init.scope,0::/init.scope
 4242 12:cpu,cpuacct:/system.slice,11:pids:/system.slice/sglang.service,1:name=systemd:/system.slice/sglang.service,0::/system.slice/sglang.service
 5000 12:cpu,cpuacct:/system.slice,1:name=systemd:/system.slice/other.service
"""


def test_control_group_of_v2_with_what_is_below_it() -> None:
    assert pids_in(V2, "/system.slice/sglang.service") == (4242, 4243)


def test_control_group_of_v1() -> None:
    assert pids_in(V1, "/system.slice/sglang.service") == (4242,)


@pytest.mark.parametrize("group", ["", "/", "/system.slice", "/user.slice/session-1.scope"])
def test_a_group_that_holds_strangers_is_nobodys(group: str) -> None:
    assert pids_in(V2, group) == ()


@given(st.binary())
def test_any_cgroup_listing_is_read(listing: bytes) -> None:
    assert all(pid >= 0 for pid in pids_in(listing, "/system.slice/sglang.service"))
