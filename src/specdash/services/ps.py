"""What ``ps`` says of processes. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from specdash.core.service import Process

COLUMNS = "pid=,ppid=,sess=,uid=,user:32=,stat=,etimes=,lstart=,args="
"""What to ask of procps' ps, in the C locale: ``env LC_ALL=C ps -ww -e -o COLUMNS``."""

_LSTART = r"[A-Z][a-z]{2} +[A-Z][a-z]{2} +\d{1,2} +\d{2}:\d{2}:\d{2} +\d{4}"
_ROW = re.compile(
    r"^ *(?P<pid>\d+) +(?P<ppid>\d+) +(?P<session>-?\d+|-) +(?P<uid>-?\d+) +(?P<user>\S.*?) +"
    r"(?P<stat>[A-Z][^\s\d]{0,8}) +(?P<age>\d+|-) +(?P<started>" + _LSTART + r")(?: (?P<args>.*))?$"
)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Older procps rounds the start time anew at each call.
_JITTER_S = 1


def parse_processes(host: str, listing: bytes) -> list[Process]:
    """The rows of a listing with :data:`COLUMNS`; other lines (a banner) are skipped.

    The pids are those of the host's own namespace. ``started`` has single blanks.
    """
    rows: list[Process] = []
    # Not splitlines: an argument may hold a form feed or a Unicode line separator.
    for line in listing.decode("utf-8", "replace").split("\n"):
        found = _ROW.match(line.rstrip("\r"))
        if found is None:
            continue
        age = found["age"]
        session = found["session"]
        rows.append(
            Process(
                host=host,
                pid=int(found["pid"]),
                ppid=int(found["ppid"]),
                session=int(session) if session != "-" else 0,
                uid=int(found["uid"]),
                user=found["user"],
                state=found["stat"],
                started=" ".join(found["started"].split()),
                age_s=int(age) if age != "-" else None,
                command=found["args"] or "",
            )
        )
    return rows


def start_time(started: str) -> datetime | None:
    """``started`` as the host's own local time; only comparable on one host."""
    words = started.split()
    if len(words) != 5 or words[1] not in _MONTHS:
        return None
    try:
        day, year = int(words[2]), int(words[4])
        hour, minute, second = (int(part) for part in words[3].split(":"))
        return datetime(year, _MONTHS.index(words[1]) + 1, day, hour, minute, second)
    except ValueError:
        return None


def acceptable_starts(started: str) -> tuple[str, ...]:
    """The texts that ``ps`` may give for the start of the same process on another call."""
    time = start_time(started)
    if time is None:
        return (started,)
    return tuple(
        _text(time + timedelta(seconds=shift)) for shift in range(-_JITTER_S, _JITTER_S + 1)
    )


def same_process(one: Process, other: Process) -> bool:
    """Whether two listings show one process: the same pid, started at the same time."""
    return (one.host, one.pid) == (other.host, other.pid) and one.started in acceptable_starts(
        other.started
    )


def _text(time: datetime) -> str:
    # The C locale's names, whatever the locale of this program is.
    day, month = _DAYS[time.weekday()], _MONTHS[time.month - 1]
    return f"{day} {month} {time.day} {time:%H:%M:%S} {time.year}"
