"""The keys of a rig file as data: type, domain, and the sentence that says what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, get_args

from specdash.rig.schema import EngineKind, ServiceKind

Check = Callable[[Any], str | None]

_LONGEST_S = 30 * 86_400
"""What shells and timers of the hosts still take."""


@dataclass(frozen=True, slots=True)
class Field:
    """One key. ``check`` returns what is wrong with a value, or None."""

    check: Check
    allowed: str
    required: bool = False

    def fault(self, value: object) -> str | None:
        return self.check(value)


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return "must be text in quotes"
    if not value.strip() or any(ord(char) < 32 for char in value):
        return "is empty or holds control characters"
    return None


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be true or false, without quotes"


def _whole(least: int, most: int | None = None) -> Check:
    def check(value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return "must be a whole number, without quotes"
        if value < least:
            return f"must be {least} or more"
        return f"must be {most} or less" if most is not None and value > most else None

    return check


def _seconds(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "must be a number of seconds, without quotes"
    if not (value > 0 and math.isfinite(value)):
        return "must be more than 0"
    return f"must be {_LONGEST_S} or less" if value > _LONGEST_S else None


def _one_of(*allowed: str) -> Check:
    def check(value: Any) -> str | None:
        if not isinstance(value, str):
            return "must be text in quotes"
        return None if value in allowed else f"is {value!r}, which is none of those allowed"

    return check


def _list_of(item: Check, *, least: int = 0) -> Check:
    def check(value: Any) -> str | None:
        if not isinstance(value, list):
            return "must be a list in [ ]"
        if len(value) < least:
            return f"needs at least {least} item"
        if len({repr(entry) for entry in value}) != len(value):
            return "names something twice"
        for entry in value:
            if (fault := item(entry)) is not None:
                return f"has an item that {fault}"
        return None

    return check


_TEXT = Field(_text, "text in quotes")
_FLAG = Field(_flag, "true or false")
_NEEDED = Field(_text, "text in quotes", required=True)
_SECONDS = Field(_seconds, "a number of seconds above 0")
_ENGINES: tuple[str, ...] = get_args(EngineKind)
_SUPERVISORS: tuple[str, ...] = get_args(ServiceKind)

ANY_HOST = "hosts.*"
"""The table name under which the keys of every ``[hosts.NAME]`` stand."""

NEEDED_TABLES = ("service", "config", "engine")
"""Tables without which nothing can be tuned; the others have defaults or may be left out."""

TABLES: Mapping[str, Mapping[str, Field]] = MappingProxyType(
    {
        ANY_HOST: {"ssh": _TEXT, "local": _FLAG, "via": _TEXT, "enter": _TEXT, "sudo": _FLAG},
        "service": {
            "host": _NEEDED,
            "kind": Field(_one_of(*_SUPERVISORS), ", ".join(_SUPERVISORS), required=True),
            "unit": _NEEDED,
        },
        "config": {"host": _NEEDED, "path": _NEEDED, "source": _TEXT, "service": _TEXT},
        "engine": {
            "kind": Field(_one_of(*_ENGINES), ", ".join(_ENGINES), required=True),
            "url": Field(_text, "http://HOST:PORT", required=True),
            "tunnel": _TEXT,
            "model": _TEXT,
            "api_key_env": _TEXT,
        },
        "gpus": {
            "host": _NEEDED,
            "uuids": Field(_list_of(_text, least=1), "a list of GPU UUIDs"),
            "indices": Field(_list_of(_whole(0), least=1), "a list of GPU indices, 0 or more"),
            "idle_mib": Field(_whole(0), "a whole number of MiB"),
        },
        "clean": {
            "hosts": Field(_list_of(_text), "a list of host names of this file"),
            "force_free": Field(_list_of(_text), "a list of process names"),
        },
        "safety": {"protected": _FLAG, "read_only": _FLAG},
        "bench": {
            "concurrency": Field(
                _list_of(_whole(1, 100_000), least=1),
                "a list of whole numbers, 1 or more, none twice",
            ),
            "prompts": Field(_text, "a built-in kind or a file"),
            "output_tokens": Field(_whole(1, 1_000_000), "a whole number, 1 or more"),
            "budget_s": _SECONDS,
        },
        "limits": {"stop_s": _SECONDS, "grace_s": _SECONDS, "free_s": _SECONDS, "load_s": _SECONDS},
    }
)
