"""Where a key stands in a TOML file: tomllib gives values without places."""

from __future__ import annotations

import re

_HEADER = re.compile(r"^\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?$")
_KEY = re.compile(r"^\s*([A-Za-z0-9_\-\"'.]+?)\s*=")


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Map each table and key path of ``text`` to its line number, counted from 1."""
    places: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _path(header[1])
            places.setdefault(table, number)
        elif key := _KEY.match(line):
            path = table + _path(key[1])
            for length in range(len(table) + 1, len(path) + 1):
                places.setdefault(path[:length], number)
    return places


def _path(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
