"""What ``systemctl show`` says of a unit."""

from __future__ import annotations

import time

from specdash.demo.service import NoSuchUnitError, Service
from specdash.demo.supervisor import Supervisor


def properties(supervisor: Supervisor, service: Service) -> dict[str, str]:
    """What ``systemctl show`` says of a service, in systemd's own spelling."""
    unit = service.unit
    fragment, dropins = supervisor.directory / service.name, ""
    try:
        dropins = " ".join(str(path) for path in supervisor.files(service.name)[1])
    except NoSuchUnitError:
        dropins = ""
    group = supervisor.control_group(service)
    members = len(supervisor.members(service, "all"))
    command = unit.last("Service", "ExecStart")
    return {
        "Type": unit.last("Service", "Type", "simple"),
        "Restart": unit.last("Service", "Restart", "no"),
        "RestartUSec": _span(unit.seconds("RestartSec", 0.1)),
        "TimeoutStartUSec": _span(unit.seconds("TimeoutStartSec", 90.0)),
        "TimeoutStopUSec": _span(unit.seconds("TimeoutStopSec", 90.0)),
        "MainPID": str(service.main_pid),
        "NRestarts": str(service.restarts),
        "Result": service.result,
        "ExecMainStartTimestamp": _stamp(service.started_at),
        "ExecMainCode": str(service.exec_code),
        "ExecMainStatus": str(service.exec_status),
        "ExecMainPID": str(service.main_pid),
        "ExecStart": (
            f"{{ path={command.split(' ')[0].lstrip('@-:+!')} ; argv[]={command} ; "
            f"ignore_errors=no ; start_time=[{_stamp(service.started_at) or 'n/a'}] ; "
            f"stop_time=[n/a] ; pid={service.main_pid} ; code=(null) ; status=0/0 }}"
        )
        if command
        else "",
        "ControlGroup": group,
        "TasksCurrent": str(members * 9) if members else "[not set]",
        "MemoryCurrent": "[not set]",
        "Environment": " ".join(unit.all("Service", "Environment")),
        "EnvironmentFiles": " ".join(
            f"{name.lstrip('-')} (ignore_errors={'yes' if name.startswith('-') else 'no'})"
            for name in unit.all("Service", "EnvironmentFile")
        ),
        "KillMode": unit.last("Service", "KillMode", "control-group"),
        "KillSignal": "15",
        "User": unit.last("Service", "User"),
        "WorkingDirectory": unit.last("Service", "WorkingDirectory"),
        "StatusText": "",
        "Id": service.name,
        "Names": service.name,
        "Description": unit.last("Unit", "Description", service.name),
        "LoadState": "bad-setting" if unit.bad else "loaded",
        "ActiveState": service.active,
        "SubState": service.sub,
        "FragmentPath": str(fragment),
        "DropInPaths": dropins,
        "UnitFileState": "enabled",
        "UnitFilePreset": "enabled",
        "StateChangeTimestamp": _stamp(service.changed_at),
        "StateChangeTimestampMonotonic": _micros(service.changed_at),
        "ActiveEnterTimestamp": _stamp(service.active_at),
        "ActiveEnterTimestampMonotonic": _micros(service.active_at),
        "InactiveEnterTimestampMonotonic": _micros(
            service.changed_at if service.active in ("inactive", "failed") else 0
        ),
        "ExecMainStartTimestampMonotonic": _micros(service.started_at),
        "NeedDaemonReload": "yes" if supervisor.needs_reload(service) else "no",
        "InvocationID": service.invocation,
        "CanStart": "yes",
        "CanStop": "yes",
    }


def missing(name: str) -> dict[str, str]:
    """The same for a unit that has no file."""
    return {
        "Restart": "no",
        "MainPID": "0",
        "NRestarts": "0",
        "Result": "success",
        "ExecMainCode": "0",
        "ExecMainStatus": "0",
        "ControlGroup": "",
        "Id": name,
        "Names": name,
        "Description": name,
        "LoadState": "not-found",
        "ActiveState": "inactive",
        "SubState": "dead",
        "FragmentPath": "",
        "DropInPaths": "",
        "UnitFileState": "",
        "StateChangeTimestamp": "",
        "NeedDaemonReload": "no",
        "InvocationID": "",
        "LoadError": f'org.freedesktop.systemd1.NoSuchUnit "Unit {name} not found."',
    }


def _stamp(wall: float) -> str:
    return time.strftime("%a %Y-%m-%d %H:%M:%S %Z", time.localtime(wall)) if wall else ""


def _micros(wall: float) -> str:
    return str(int(wall * 1e6)) if wall else "0"


def _span(seconds: float) -> str:
    if seconds == float("inf"):
        return "infinity"
    minutes, rest = divmod(seconds, 60)
    parts = [f"{int(minutes)}min"] if minutes else []
    if rest >= 1 and rest == int(rest):
        parts.append(f"{int(rest)}s")
    elif rest:
        parts.append(f"{int(rest * 1000)}ms" if rest < 1 else f"{rest:g}s")
    return " ".join(parts) or "0"
