"""``systemctl`` of the box."""

from __future__ import annotations

from specdash.demo.programs.call import Call
from specdash.demo.programs.properties import missing, properties
from specdash.demo.programs.words import UnknownOptionError, Words, split
from specdash.demo.service import NoSuchUnitError, StartRefusedError

_OPTIONS = {
    "-p": ("property", True),
    "--property": ("property", True),
    "-P": ("only-value", True),
    "--value": ("value", False),
    "--no-pager": ("no-pager", False),
    "--no-block": ("no-block", False),
    "--no-legend": ("no-legend", False),
    "--legend": ("legend", True),
    "--plain": ("plain", False),
    "--full": ("full", False),
    "-l": ("full", False),
    "--all": ("all", False),
    "-a": ("all", False),
    "--quiet": ("quiet", False),
    "-q": ("quiet", False),
    "--system": ("system", False),
    "--user": ("user", False),
    "--no-ask-password": ("no-ask-password", False),
    "--type": ("type", True),
    "-t": ("type", True),
    "--state": ("state", True),
    "--lines": ("lines", True),
    "-n": ("lines", True),
    "--output": ("output", True),
    "-o": ("output", True),
    "--signal": ("signal", True),
    "-s": ("signal", True),
    "--kill-whom": ("kill-whom", True),
    "--kill-who": ("kill-whom", True),
    "--job-mode": ("job-mode", True),
    "--wait": ("wait", False),
    "--version": ("version", False),
}
_STATUS_EXITS = {"active": 0, "reloading": 0, "activating": 3, "deactivating": 3}


async def systemctl(call: Call) -> int:
    """Dispatch one verb."""
    try:
        words = split(call.argv, _OPTIONS)
    except UnknownOptionError as error:
        return await call.fail(1, f"systemctl: {error}")
    if words.has("version"):
        await call.out("systemd 252 (252.39-1~deb12u1)\n")
        return 0
    if words.has("user"):
        return await call.fail(1, "Failed to connect to bus: No medium found")
    verb, names = (words.operands[0], words.operands[1:]) if words.operands else ("list-units", [])
    handler = _VERBS.get(verb)
    if handler is None:
        return await call.fail(1, f"Unknown command verb {verb}.")
    return await handler(call, words, [_unit_name(name) for name in names])


def _unit_name(name: str) -> str:
    return name if "." in name.rsplit("/", 1)[-1] else f"{name}.service"


async def _show(call: Call, words: Words, names: list[str]) -> int:
    supervisor = call.world.supervisor
    wanted = words.listed("property") + words.listed("only-value")
    bare = words.has("value") or words.has("only-value")
    for position, name in enumerate(names):
        if position:
            await call.out("\n")
        try:
            values = properties(supervisor, supervisor.get(name))
        except NoSuchUnitError:
            values = missing(name)
        for key, value in values.items():
            if not wanted or key in wanted:
                await call.out(f"{value}\n" if bare else f"{key}={value}\n")
    return 0


async def _start(call: Call, words: Words, names: list[str]) -> int:
    supervisor = call.world.supervisor
    if not names:
        return await call.fail(1, "Too few arguments.")
    for name in names:
        try:
            service = supervisor.start(name)
        except NoSuchUnitError:
            return await call.fail(5, f"Failed to start {name}: Unit {name} not found.")
        except StartRefusedError as error:
            return await call.fail(1, str(error))
        if supervisor.needs_reload(service):
            await call.err(
                f"Warning: The unit file, source configuration file or drop-ins of {name} "
                "changed on disk. Run 'systemctl daemon-reload' to reload units.\n"
            )
        if not words.has("no-block"):
            await service.settled.wait()
            if service.active == "failed" and service.exec_status == 203:
                return await call.fail(
                    1,
                    f"Job for {name} failed because the control process exited with error code.\n"
                    f'See "systemctl status {name}" and "journalctl -xeu {name}" for details.',
                )
    return 0


async def _stop(call: Call, words: Words, names: list[str]) -> int:
    supervisor = call.world.supervisor
    if not names:
        return await call.fail(1, "Too few arguments.")
    for name in names:
        try:
            service = supervisor.stop(name)
        except NoSuchUnitError:
            return await call.fail(5, f"Failed to stop {name}: Unit {name} not loaded.")
        if not words.has("no-block"):
            await supervisor.settle(service)
    return 0


async def _restart(call: Call, words: Words, names: list[str]) -> int:
    for name in names:
        try:
            service = call.world.supervisor.stop(name)
        except NoSuchUnitError:
            return await call.fail(5, f"Failed to restart {name}: Unit {name} not found.")
        await call.world.supervisor.settle(service)
    return await _start(call, words, names)


async def _daemon_reload(call: Call, words: Words, names: list[str]) -> int:
    del words, names
    call.world.supervisor.reload()
    return 0


async def _reset_failed(call: Call, words: Words, names: list[str]) -> int:
    del words
    for name in names or call.world.supervisor.names():
        try:
            call.world.supervisor.reset_failed(name)
        except NoSuchUnitError:
            return await call.fail(
                1, f"Failed to reset failed state of unit {name}: Unit {name} not loaded."
            )
    return 0


async def _kill(call: Call, words: Words, names: list[str]) -> int:
    from specdash.demo.programs.signals import signal_number

    number = signal_number(words.last("signal", "TERM"))
    if number is None:
        return await call.fail(1, f"Failed to parse signal string {words.last('signal')}.")
    for name in names:
        try:
            call.world.supervisor.kill(name, number, words.last("kill-whom", "all"))
        except NoSuchUnitError:
            return await call.fail(1, f"Failed to kill unit {name}: Unit {name} not loaded.")
    return 0


async def _is_active(call: Call, words: Words, names: list[str]) -> int:
    exits = []
    for name in names:
        try:
            state = call.world.supervisor.get(name).active
        except NoSuchUnitError:
            state = "inactive"
        exits.append(0 if state in ("active", "reloading") else 3)
        if not words.has("quiet"):
            await call.out(f"{state}\n")
    return min(exits, default=3)


async def _is_failed(call: Call, words: Words, names: list[str]) -> int:
    failed = False
    for name in names:
        try:
            state = call.world.supervisor.get(name).active
        except NoSuchUnitError:
            state = "inactive"
        failed = failed or state == "failed"
        if not words.has("quiet"):
            await call.out(f"{state}\n")
    return 0 if failed else 1


async def _is_enabled(call: Call, words: Words, names: list[str]) -> int:
    del words
    known = call.world.supervisor.names()
    for name in names:
        if name not in known:
            return await call.fail(
                1, f"Failed to get unit file state for {name}: No such file or directory"
            )
        await call.out("enabled\n")
    return 0


async def _cat(call: Call, words: Words, names: list[str]) -> int:
    del words
    for name in names:
        try:
            fragment, dropins = call.world.supervisor.files(name)
        except NoSuchUnitError:
            return await call.fail(1, f"No files found for {name}.")
        for path in (fragment, *dropins):
            await call.out(f"# {path}\n".encode() + path.read_bytes())
    return 0


async def _status(call: Call, words: Words, names: list[str]) -> int:
    from specdash.demo.journal import render

    worst = 0
    supervisor = call.world.supervisor
    for name in names or supervisor.names():
        try:
            service = supervisor.get(name)
        except NoSuchUnitError:
            await call.err(f"Unit {name} could not be found.\n")
            worst = 4
            continue
        values = properties(supervisor, service)
        mark = {"active": "●", "failed": "×", "inactive": "○"}.get(service.active, "●")
        lines = [
            f"{mark} {supervisor.title(service)}",
            f"     Loaded: {values['LoadState']} ({values['FragmentPath']}; enabled)",
            f"     Active: {service.active} ({service.sub}) since {values['StateChangeTimestamp']}",
        ]
        if service.main_pid:
            lines.append(f"   Main PID: {service.main_pid}")
        lines.append(f"     CGroup: {values['ControlGroup']}")
        lines.extend(
            f"             ├─{proc.pid} {proc.title}" for proc in call.world.machine.of_unit(name)
        )
        if supervisor.needs_reload(service):
            await call.err(
                f"Warning: The unit file, source configuration file or drop-ins of {name} "
                "changed on disk. Run 'systemctl daemon-reload' to reload units.\n"
            )
        await call.out("\n".join(lines) + "\n\n")
        count = int(words.last("lines", "10") or 10)
        recent = [
            entry
            for entry in call.world.journal.after(0)
            if name in (entry.fields.get("_SYSTEMD_UNIT"), entry.fields.get("UNIT"))
        ]
        for entry in recent[-count:] if count else []:
            await call.out(render(entry, "short"))
        worst = max(worst, _STATUS_EXITS.get(service.active, 3))
    return worst


async def _list_units(call: Call, words: Words, names: list[str]) -> int:
    del names
    supervisor = call.world.supervisor
    if not words.has("no-legend") and words.last("legend") != "false":
        await call.out("  UNIT LOAD ACTIVE SUB DESCRIPTION\n")
    for name in supervisor.names():
        service = supervisor.get(name)
        if service.active == "inactive" and not words.has("all"):
            continue
        mark = "" if words.has("plain") else ("● " if service.active == "failed" else "  ")
        loaded = "bad-setting" if service.unit.bad else "loaded"
        await call.out(
            f"{mark}{name} {loaded} {service.active} {service.sub} "
            f"{service.unit.last('Unit', 'Description', name)}\n"
        )
    return 0


async def _list_unit_files(call: Call, words: Words, names: list[str]) -> int:
    del names
    if not words.has("no-legend") and words.last("legend") != "false":
        await call.out("UNIT FILE STATE PRESET\n")
    for name in call.world.supervisor.names():
        await call.out(f"{name} enabled enabled\n")
    return 0


async def _system_running(call: Call, words: Words, names: list[str]) -> int:
    del words, names
    await call.out("running\n")
    return 0


_VERBS = {
    "show": _show,
    "start": _start,
    "stop": _stop,
    "restart": _restart,
    "try-restart": _restart,
    "daemon-reload": _daemon_reload,
    "reset-failed": _reset_failed,
    "kill": _kill,
    "is-active": _is_active,
    "is-failed": _is_failed,
    "is-enabled": _is_enabled,
    "cat": _cat,
    "status": _status,
    "list-units": _list_units,
    "list-unit-files": _list_unit_files,
    "is-system-running": _system_running,
}
