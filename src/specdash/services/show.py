"""What ``systemctl show`` says, as a status. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import get_args

from specdash.core.service import ServiceState, ServiceStatus

PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "MainPID",
    "ControlGroup",
    "Result",
    "ExecMainCode",
    "ExecMainStatus",
    "StateChangeTimestamp",
    "NRestarts",
    "InvocationID",
    "FragmentPath",
    "DropInPaths",
    "NeedDaemonReload",
    "TimeoutStopUSec",
    "ExecStart",
)

# CLD_EXITED, CLD_KILLED and CLD_DUMPED, as ExecMainCode gives them.
_EXITED, _KILLED, _DUMPED = 1, 2, 3
_STATES: frozenset[str] = frozenset(get_args(ServiceState))
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(y|month|w|d|h|min|ms|us|s)(?![a-z])")
_SECONDS = {
    "y": 31557600.0,
    "month": 2629800.0,
    "w": 604800.0,
    "d": 86400.0,
    "h": 3600.0,
    "min": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
}
_ARGV = re.compile(r"argv\[\]=(.*?) ; (?:ignore_errors|flags)=")


def parse_show(output: bytes) -> dict[str, str]:
    """The known properties of ``KEY=VALUE`` lines; anything else (a login banner) is skipped.

    A property that comes more than once (several ``ExecStart=``) has its values joined by
    newlines.
    """
    values: dict[str, str] = {}
    for line in output.decode("utf-8", "replace").splitlines():
        key, equals, value = line.partition("=")
        if equals and key in PROPERTIES:
            values[key] = f"{values[key]}\n{value}" if key in values else value
    return values


def status_of(unit: str, values: Mapping[str, str]) -> ServiceStatus:
    """The status behind the properties; what is missing stays unknown."""
    load = values.get("LoadState", "")
    return ServiceStatus(
        unit=unit,
        state=_state(load, values.get("ActiveState", "")),
        sub_state=load
        if load in ("masked", "bad-setting", "error")
        else values.get("SubState", ""),
        main_pid=_whole(values.get("MainPID")) or None,
        since=_timestamp(values.get("StateChangeTimestamp", "")),
        invocation=values.get("InvocationID", ""),
        restarts=_whole(values.get("NRestarts")),
        result=values.get("Result", ""),
        exit_status=_exit_status(values),
        needs_reload={"yes": True, "no": False}.get(values.get("NeedDaemonReload", "")),
        control_group=values.get("ControlGroup", ""),
        fragment_path=values.get("FragmentPath", ""),
        drop_in_paths=tuple(values.get("DropInPaths", "").split()),
        exec_start=_exec_start(values.get("ExecStart", "")),
        stop_timeout_s=seconds_of(values.get("TimeoutStopUSec", "")),
    )


def seconds_of(span: str) -> float | None:
    """``1min 30s`` in seconds; None for ``infinity`` and for what is no time span."""
    parts = _SPAN.findall(span)
    if not parts or _SPAN.sub("", span).strip():
        return None
    return float(sum(float(number) * _SECONDS[unit] for number, unit in parts))


def _state(load: str, active: str) -> ServiceState:
    # A unit whose file was deleted while it runs is not-found and active: it still runs.
    if load == "not-found" and active in ("", "inactive"):
        return "not-found"
    return active if active in _STATES else "unknown"  # type: ignore[return-value]


def _exit_status(values: Mapping[str, str]) -> int | None:
    """Of the last main process, as a shell gives it (128 + signal); None while it runs."""
    code = _whole(values.get("ExecMainCode"))
    status = _whole(values.get("ExecMainStatus"))
    if status is None:
        return None
    if code == _EXITED:
        return status
    return 128 + status if code in (_KILLED, _DUMPED) else None


def _exec_start(text: str) -> str:
    """The command lines out of ``{ path=... ; argv[]=... ; ... }``."""
    return "\n".join(_ARGV.findall(text)) or text


def _timestamp(text: str) -> str:
    return "" if text in ("n/a", "0") else text


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None
