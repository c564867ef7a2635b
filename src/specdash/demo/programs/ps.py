"""``ps`` and ``pgrep`` of the box: they know the box's processes and no others."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specdash.demo.machine import Machine, Proc
from specdash.demo.programs.call import Call

INIT = Proc(1, "/sbin/init", ppid=0, session=1)
"""What every ps shows first; it cannot be signalled."""


@dataclass(frozen=True, slots=True)
class Row:
    """A process with what the kernel says of it."""

    proc: Proc
    state: str
    ppid: int
    session: int

    @property
    def age_s(self) -> int:
        return max(0, int(time.time() - self.proc.started))


def rows(machine: Machine) -> list[Row]:
    """The init process and all of the box, oldest first."""
    init = Proc(1, INIT.title, ppid=0, session=1, started=machine.booted)
    return [Row(init, "Ss", 0, 1), *(_row(proc) for proc in machine.procs())]


def _row(proc: Proc) -> Row:
    try:
        stat = Path(f"/proc/{proc.pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Row(proc, "S", proc.ppid, proc.session or proc.pid)
    fields = stat.rpartition(")")[2].split()
    leader = "s" if fields[3] == str(proc.pid) else ""
    return Row(proc, fields[0] + leader, int(fields[1]), int(fields[3]))


def _clock(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    text = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    if days:
        return f"{days}-{text}"
    return text if rest >= 3600 else text[3:]


def _cgroup(row: Row) -> str:
    if row.proc.pid == 1:
        return "0::/init.scope"
    unit = row.proc.unit
    return f"0::/system.slice/{unit}" if unit else "0::/user.slice"


_COLUMNS: dict[str, tuple[str, bool, Callable[[Row], str]]] = {
    "pid": ("PID", True, lambda r: str(r.proc.pid)),
    "tgid": ("TGID", True, lambda r: str(r.proc.pid)),
    "ppid": ("PPID", True, lambda r: str(r.ppid)),
    "pgid": ("PGID", True, lambda r: str(r.session)),
    "pgrp": ("PGRP", True, lambda r: str(r.session)),
    "sess": ("SESS", True, lambda r: str(r.session)),
    "session": ("SESS", True, lambda r: str(r.session)),
    "sid": ("SID", True, lambda r: str(r.session)),
    "uid": ("UID", True, lambda r: str(r.proc.uid)),
    "euid": ("EUID", True, lambda r: str(r.proc.uid)),
    "gid": ("GID", True, lambda r: str(r.proc.uid)),
    "user": ("USER", False, lambda r: r.proc.user),
    "euser": ("EUSER", False, lambda r: r.proc.user),
    "ruser": ("RUSER", False, lambda r: r.proc.user),
    "uname": ("USER", False, lambda r: r.proc.user),
    "group": ("GROUP", False, lambda r: r.proc.user),
    "stat": ("STAT", False, lambda r: r.state),
    "state": ("S", False, lambda r: r.state[:1]),
    "s": ("S", False, lambda r: r.state[:1]),
    "etime": ("ELAPSED", True, lambda r: _clock(r.age_s)),
    "etimes": ("ELAPSED", True, lambda r: str(r.age_s)),
    "lstart": ("STARTED", True, lambda r: time.ctime(r.proc.started)),
    "start": ("STARTED", True, lambda r: time.strftime("%X", time.localtime(r.proc.started))),
    "stime": ("STIME", False, lambda r: time.strftime("%H:%M", time.localtime(r.proc.started))),
    "time": ("TIME", True, lambda r: "00:00:00"),
    "cputime": ("TIME", True, lambda r: "00:00:00"),
    "pcpu": ("%CPU", True, lambda r: "0.0"),
    "%cpu": ("%CPU", True, lambda r: "0.0"),
    "c": ("C", True, lambda r: "0"),
    "pmem": ("%MEM", True, lambda r: "0.1"),
    "%mem": ("%MEM", True, lambda r: "0.1"),
    "rss": ("RSS", True, lambda r: "18432"),
    "vsz": ("VSZ", True, lambda r: "91264"),
    "nlwp": ("NLWP", True, lambda r: "1"),
    "ni": ("NI", True, lambda r: "0"),
    "tty": ("TT", False, lambda r: "?"),
    "tt": ("TT", False, lambda r: "?"),
    "tname": ("TTY", False, lambda r: "?"),
    "wchan": ("WCHAN", False, lambda r: "-"),
    "comm": ("COMMAND", False, lambda r: r.proc.comm),
    "ucmd": ("CMD", False, lambda r: r.proc.comm),
    "args": ("COMMAND", False, lambda r: r.proc.title),
    "cmd": ("CMD", False, lambda r: r.proc.title),
    "command": ("COMMAND", False, lambda r: r.proc.title),
    "cgroup": ("CGROUP", False, _cgroup),
    "unit": ("UNIT", False, lambda r: r.proc.unit or "-"),
}
_FORMATS = {
    "": ["pid", "tname", "time", "ucmd"],
    "f": ["user", "pid", "ppid", "c", "stime", "tname", "time", "cmd"],
    "u": ["user", "pid", "%cpu", "%mem", "vsz", "rss", "tname", "stat", "stime", "time", "args"],
    "x": ["pid", "tname", "stat", "time", "args"],
}


@dataclass(slots=True)
class _Ask:
    columns: list[tuple[str, str | None, int | None]]
    everything: bool = False
    pids: set[int] | None = None
    ppids: set[int] | None = None
    users: set[str] | None = None
    names: set[str] | None = None
    headers: bool = True


class _BadWordsError(ValueError):
    pass


async def ps(call: Call) -> int:
    """List processes in any of the usual formats."""
    try:
        ask = _read(call.argv)
    except _BadWordsError as error:
        return await call.fail(1, f"error: {error}\n\nUsage:\n ps [options]")
    chosen = [row for row in rows(call.world.machine) if _wanted(row, ask)]
    cells = [
        [_COLUMNS[name][2](row)[: width or None] for name, _, width in ask.columns]
        for row in chosen
    ]
    heads = [_COLUMNS[n][0] if title is None else title for n, title, _ in ask.columns]
    if ask.headers and any(heads):
        cells.insert(0, heads)
    widths = [
        width or max([len(heads[at]), *(len(row[at]) for row in cells)], default=0)
        for at, (_, _, width) in enumerate(ask.columns)
    ]
    for row_cells in cells:
        parts = []
        for at, text in enumerate(row_cells):
            right = _COLUMNS[ask.columns[at][0]][1]
            last = at == len(row_cells) - 1
            parts.append(
                text.rjust(widths[at]) if right else text if last else text.ljust(widths[at])
            )
        await call.out(" ".join(parts) + "\n")
    return 0 if chosen else 1


def _wanted(row: Row, ask: _Ask) -> bool:
    picks = (
        (ask.pids, row.proc.pid),
        (ask.ppids, row.ppid),
        (ask.users, row.proc.user),
        (ask.names, row.proc.comm),
    )
    if ask.everything:
        return True
    return any(wanted is not None and value in wanted for wanted, value in picks)


def _read(argv: list[str]) -> _Ask:
    ask = _Ask([])
    style = ""
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word in ("-ww", "-w", "w", "ww", "--cols", "--width"):
            if word.startswith("--"):
                rest.pop(0)
        elif word in ("--no-headers", "--no-heading", "h"):
            ask.headers = False
        elif word.startswith("--"):
            name, equals, value = word.partition("=")
            if not equals:
                value = _value(word, rest)
            _long(name, value, ask)
        elif word.startswith("-"):
            style = _cluster(word, rest, ask, style)
        elif re.fullmatch(r"[0-9,]+", word):
            ask.pids = (ask.pids or set()) | _numbers(word)
        else:
            if set(word) - set("auxewfhj"):
                raise _BadWordsError("unsupported option (BSD syntax)")
            ask.everything = ask.everything or "x" in word or "a" in word
            style = "u" if "u" in word else "x"
    if not ask.columns:
        ask.columns = [(name, None, None) for name in _FORMATS[style]]
    return ask


def _cluster(word: str, rest: list[str], ask: _Ask, style: str) -> str:
    at = 1
    while at < len(word):
        letter = word[at]
        at += 1
        if letter in "eAd":
            ask.everything = True
        elif letter in "fFlj":
            style = "f"
        elif letter in "wHacTL":
            pass
        elif letter in "opqCuUG":
            value = word[at:] or _value(f"-{letter}", rest)
            if letter == "o":
                ask.columns.extend(_format(value))
            elif letter in "pq":
                ask.pids = (ask.pids or set()) | _numbers(value)
            elif letter == "C":
                ask.names = (ask.names or set()) | {n[:15] for n in value.split(",")}
            else:
                ask.users = (ask.users or set()) | set(value.split(","))
            break
        else:
            raise _BadWordsError("unsupported SysV option")
    return style


def _long(name: str, value: str, ask: _Ask) -> None:
    if name == "--pid":
        ask.pids = (ask.pids or set()) | _numbers(value)
    elif name == "--ppid":
        ask.ppids = (ask.ppids or set()) | _numbers(value)
    elif name in ("--user", "--User"):
        ask.users = (ask.users or set()) | set(value.split(","))
    elif name == "--format":
        ask.columns.extend(_format(value))
    elif name != "--sort":
        raise _BadWordsError("unknown gnu long option")


def _value(word: str, rest: list[str]) -> str:
    if not rest:
        raise _BadWordsError(f"option {word} needs a value")
    return rest.pop(0)


def _numbers(text: str) -> set[int]:
    try:
        return {int(part) for part in text.replace(",", " ").split()}
    except ValueError:
        raise _BadWordsError("process ID list syntax error") from None


def _format(text: str) -> list[tuple[str, str | None, int | None]]:
    """``pid=,args``: a title that is not empty reaches to the end of the word."""
    out: list[tuple[str, str | None, int | None]] = []
    rest = text
    while rest:
        match = re.match(r"[, ]*([^,= ]+)(=)?", rest)
        if match is None:
            break
        rest = rest[match.end() :]
        title: str | None = None
        if match[2]:
            title = ""
            if rest and not rest.startswith(","):
                title, rest = rest, ""
        name, _, width = match[1].partition(":")
        if name not in _COLUMNS:
            raise _BadWordsError(f'unknown user-defined format specifier "{match[1]}"')
        out.append((name, title, int(width) if width.isdigit() else None))
    return out


async def pgrep(call: Call) -> int:
    """``pgrep``: pids whose name (or with ``-f`` command line) matches."""
    found = select(call)
    if found is None:
        return await call.fail(2, "pgrep: only one pattern can be provided")
    for proc in found:
        if "-a" in call.argv:
            await call.out(f"{proc.pid} {proc.title}\n")
        elif any(word.startswith("-") and "l" in word for word in call.argv):
            await call.out(f"{proc.pid} {proc.comm}\n")
        else:
            await call.out(f"{proc.pid}\n")
    return 0 if found else 1


def select(call: Call) -> list[Proc] | None:
    """The processes that pgrep and pkill mean; None where the words make no sense."""
    patterns = [word for word in call.argv if not word.startswith("-")]
    letters = "".join(word[1:] for word in call.argv if re.fullmatch(r"-[a-z]+", word))
    if len(patterns) != 1:
        return None
    try:
        pattern = re.compile(patterns[0])
    except re.error:
        return None
    full, exact = "f" in letters, "x" in letters
    found = []
    for proc in call.world.machine.procs():
        text = proc.title if full else proc.comm
        if pattern.fullmatch(text) if exact else pattern.search(text):
            found.append(proc)
    return found
