"""The box's journal: entries, matching and the output forms of journalctl."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

BOOT_ID = "5bd0c1f6a3f14c0c9c2f3a8e6d1b7c42"
MACHINE_ID = "0d6f4c1b2a9e4d58a7b3c2e1f0a9b8c7"
LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One journal entry. ``message`` is raw, without its line end."""

    number: int
    wall: float
    message: bytes
    pid: int
    identifier: str
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def cursor(self) -> str:
        return f"s={MACHINE_ID};i={self.number:x};b={BOOT_ID}"

    def values(self) -> dict[str, str | list[int]]:
        """All fields as ``-o json`` shows them: what is not printable text is a list of bytes."""
        micros = f"{int(self.wall * 1e6)}"
        return {
            "__CURSOR": self.cursor,
            "__REALTIME_TIMESTAMP": micros,
            "__MONOTONIC_TIMESTAMP": f"{self.number * 1000}",
            "_BOOT_ID": BOOT_ID,
            "_MACHINE_ID": MACHINE_ID,
            "_PID": str(self.pid),
            "SYSLOG_IDENTIFIER": self.identifier,
            "PRIORITY": "6",
            **self.fields,
            "MESSAGE": _json_message(self.message),
        }


def _json_message(message: bytes) -> str | list[int]:
    try:
        text = message.decode("utf-8")
    except UnicodeDecodeError:
        return list(message)
    return text if all(c in "\t\n" or c.isprintable() for c in text) else list(message)


class Journal:
    """Appends, remembers and wakes followers."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._entries: list[Entry] = []
        self._count = 0
        self._more = asyncio.Event()

    def write(self, message: bytes, *, pid: int, identifier: str, **fields: str) -> None:
        """Append one entry and wake the followers."""
        self._count += 1
        self._entries.append(
            Entry(
                self._count,
                time.time(),
                message.rstrip(),
                pid,
                identifier,
                {"_HOSTNAME": self.host, **fields},
            )
        )
        if len(self._entries) > LIMIT:
            del self._entries[: LIMIT // 10]
        self._more.set()
        self._more = asyncio.Event()

    def after(self, number: int) -> list[Entry]:
        """Entries with a greater number."""
        if not self._entries or self._entries[-1].number <= number:
            return []
        first = max(0, number + 1 - self._entries[0].number)
        return self._entries[first:]

    @property
    def last(self) -> int:
        """The number of the newest entry."""
        return self._count

    async def wait_beyond(self, number: int) -> None:
        """Return when there is an entry after ``number``."""
        while self._count <= number:
            await self._more.wait()


@dataclass(frozen=True, slots=True)
class Match:
    """An OR of ANDs of (field, value), as journalctl combines ``-u``, ``A=B`` and ``+``."""

    terms: tuple[tuple[tuple[str, str], ...], ...] = ()

    def __call__(self, entry: Entry) -> bool:
        if not self.terms:
            return True
        values = {"_PID": str(entry.pid), "SYSLOG_IDENTIFIER": entry.identifier, **entry.fields}
        return any(_all_fields(term, values) for term in self.terms)


def _all_fields(term: Sequence[tuple[str, str]], values: dict[str, str]) -> bool:
    """Different fields must all match; several values of one field are alternatives."""
    wanted: dict[str, set[str]] = {}
    for name, value in term:
        wanted.setdefault(name, set()).add(value)
    return all(values.get(name) in allowed for name, allowed in wanted.items())


def render(entry: Entry, form: str, only: Sequence[str] = ()) -> bytes:
    """One entry in an output form (``cat``, ``json``, ``short`` and its relatives)."""
    if form == "cat":
        return entry.message + b"\n"
    if form.startswith("json"):
        values = entry.values()
        if only:
            values = {k: v for k, v in values.items() if k in only or k.startswith("__")}
            values["_BOOT_ID"] = BOOT_ID
        return json.dumps(values).encode() + b"\n"
    shown = _json_message(entry.message)
    text = f"[{len(shown)}B blob data]" if isinstance(shown, list) else shown
    local = time.localtime(entry.wall)
    if form in ("short-iso", "short-iso-precise"):
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z", local)
    elif form == "short-unix":
        stamp = f"{entry.wall:.6f}"
    else:
        stamp = time.strftime("%b %d %H:%M:%S", local)
    host = entry.fields.get("_HOSTNAME", "")
    return f"{stamp} {host} {entry.identifier}[{entry.pid}]: {text}\n".encode()
