"""``kill``, ``pkill`` and ``fuser`` of the box: only the box's own processes can be reached."""

from __future__ import annotations

import os
import re
import signal

from specdash.demo.machine import Proc
from specdash.demo.programs.call import Call
from specdash.demo.programs.ps import select

_DEVICE = re.compile(r"/dev/nvidia(\d+|\*|\[0-9\]\*?|ctl|-uvm)?")
_LIST = {"HUP": 1, "INT": 2, "QUIT": 3, "KILL": 9, "USR1": 10, "USR2": 12, "TERM": 15}


def signal_number(text: str) -> int | None:
    """A signal by number or name, with or without SIG."""
    if text.isdigit():
        return int(text) if int(text) <= 64 else None
    try:
        return int(signal.Signals["SIG" + text.upper().removeprefix("SIG")])
    except KeyError:
        return None


async def kill(call: Call) -> int:
    """Signal processes by pid; those outside the box do not exist for it."""
    rest = list(call.argv)
    number = int(signal.SIGTERM)
    if rest[:1] in (["-l"], ["-L"]):
        await call.out(" ".join(_LIST) + "\n")
        return 0
    if rest and rest[0] in ("-s", "--signal", "-n") and len(rest) > 1:
        chosen = signal_number(rest[1])
        rest = rest[2:]
    elif rest and re.fullmatch(r"-[A-Za-z0-9]+", rest[0]):
        chosen = signal_number(rest[0][1:])
        rest = rest[1:]
    else:
        chosen = number
    if chosen is None:
        return await call.fail(1, "kill: unknown signal")
    if rest[:1] == ["--"]:
        rest = rest[1:]
    if not rest:
        return await call.fail(1, "kill: not enough arguments")
    failed = False
    for word in rest:
        try:
            pid = int(word)
        except ValueError:
            failed = True
            await call.err(f"kill: failed to parse argument: '{word}'\n")
            continue
        problem = _send(call, pid, chosen)
        if problem:
            failed = True
            await call.err(f"kill: ({pid}): {problem}\n")
    return 1 if failed else 0


def _send(call: Call, pid: int, number: int) -> str:
    if pid == 1:
        return "Operation not permitted"
    inside = call.world.machine.get(abs(pid)) is not None or call.world.may_signal(abs(pid))
    if pid in (0, -1) or not inside:
        return "No such process"
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return "No such process"
    except PermissionError:
        return "Operation not permitted"
    return ""


async def pkill(call: Call) -> int:
    """``pkill``: signal what ``pgrep`` would list."""
    number = int(signal.SIGTERM)
    words = []
    for word in call.argv:
        chosen = signal_number(word[1:]) if re.fullmatch(r"-[A-Z0-9]+", word) else None
        if chosen is None:
            words.append(word)
        else:
            number = chosen
    found = select(
        Call(call.world, call.host, call.program, words, call.cwd, call.pid, call.output)
    )
    if found is None:
        return await call.fail(2, "pkill: only one pattern can be provided")
    for proc in found:
        _send(call, proc.pid, number)
    return 0 if found else 1


async def fuser(call: Call) -> int:
    """Who has GPU device files or a TCP port open. Names go to stderr, pids to stdout."""
    verbose = ending = False
    number = int(signal.SIGKILL)
    space = "file"
    names: list[str] = []
    rest = list(call.argv)
    while rest:
        word = rest.pop(0)
        if word in ("-n", "--namespace") and rest:
            space = rest.pop(0)
        elif word.startswith("-") and len(word) > 1:
            chosen = signal_number(word[1:]) if word[1:].isupper() else None
            number = chosen if chosen is not None else number
            if chosen is None:
                if set(word[1:]) - set("vkmaMsuiw46c"):
                    return await call.fail(1, f"{word}: unknown signal; fuser -l lists signals.")
                verbose = verbose or "v" in word
                ending = ending or "k" in word
        else:
            names.append(word)
    if not names:
        return await call.fail(1, "No process specification given")
    header_due = verbose
    found_any = False
    for name in names:
        holders = (
            _port_holders(call, name, space) if _is_port(name, space) else _file_holders(call, name)
        )
        if not holders:
            continue
        found_any = True
        if header_due:
            await call.err("                     USER        PID ACCESS COMMAND\n")
            header_due = False
        shown = f"{name}/tcp" if space == "tcp" else name
        await _show(call, shown, holders, verbose)
        if ending:
            for proc in holders:
                _send(call, proc.pid, number)
    return 0 if found_any else 1


def _is_port(name: str, space: str) -> bool:
    return space in ("tcp", "udp") or name.endswith(("/tcp", "/udp"))


def _port_holders(call: Call, name: str, space: str) -> list[Proc]:
    port = name.split("/")[0]
    if space == "udp" or name.endswith("/udp"):
        return []
    return [proc for number, proc in call.world.machine.listening() if str(number) == port]


def _file_holders(call: Call, name: str) -> list[Proc]:
    match = _DEVICE.fullmatch(name)
    if match is None:
        return []
    machine = call.world.machine
    which = match[1] or "*"
    gpus = [int(which)] if which.isdigit() else range(len(machine.gpus))
    seen: dict[int, Proc] = {}
    for gpu in gpus:
        if gpu < len(machine.gpus):
            seen.update((proc.pid, proc) for proc, _ in machine.holders(gpu))
    return list(seen.values())


async def _show(call: Call, name: str, holders: list[Proc], verbose: bool) -> None:
    await call.err(f"{name}:".ljust(21))
    if not verbose:
        for proc in holders:
            await call.out(f" {proc.pid}")
        await call.err("\n")
        return
    for position, proc in enumerate(holders):
        await call.err(f"{' ' * 21 if position else ''}{proc.user:<8} ")
        await call.out(f"{proc.pid:>6}")
        await call.err(f" F...m {proc.comm}\n")
