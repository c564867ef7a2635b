"""The columns of nvidia-smi's CSV: which field of ours each one is, as data.

Names and aliases as ``--help-query-gpu`` and ``--help-query-compute-apps`` print them (drivers
340 to 610).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from specdash.gpus.cells import UNIT_KINDS, Kind
from specdash.gpus.reasons import reason_name

Form = Literal["gpus", "apps", "other"]


@dataclass(frozen=True, slots=True)
class Column:
    """``target``: a field of Gpu or GpuProcess, ``reason:NAME``, or "" for one we do not use.

    Of several columns with one target the one with the lowest ``rank`` counts.
    """

    name: str
    target: str = ""
    kind: Kind = "text"
    rank: int = 0
    unit: bool = False


_GPU: dict[str, tuple[str, Kind, int]] = {
    "timestamp": ("timestamp", "time", 0),
    "count": ("count", "count", 0),
    "index": ("index", "index", 0),
    "uuid": ("uuid", "uuid", 0),
    "gpu_uuid": ("uuid", "uuid", 0),
    "pci.bus_id": ("bus", "bus", 0),
    "gpu_bus_id": ("bus", "bus", 0),
    "name": ("name", "text", 0),
    "gpu_name": ("name", "text", 0),
    "memory.total": ("memory_total_mib", "mib", 0),
    "memory.used": ("memory_used_mib", "mib", 0),
    "memory.reserved": ("memory_reserved_mib", "mib", 0),
    "memory.free": ("", "mib", 0),
    "utilization.gpu": ("utilization_percent", "percent", 0),
    "utilization.memory": ("", "percent", 0),
    "temperature.gpu": ("temperature_c", "celsius", 0),
    "power.draw": ("power_draw_w", "watts", 0),
    "power.draw.average": ("power_draw_w", "watts", 1),
    "gpu.power.draw.average": ("power_draw_w", "watts", 1),
    "power.draw.instant": ("power_draw_w", "watts", 2),
    "gpu.power.draw.instant": ("power_draw_w", "watts", 2),
    "power.limit": ("power_limit_w", "watts", 0),
    "gpu.power.requested_limit": ("power_limit_w", "watts", 0),
    "enforced.power.limit": ("power_limit_w", "watts", 1),
    "gpu.power.current_limit": ("power_limit_w", "watts", 1),
    "clocks.current.sm": ("sm_clock_mhz", "mhz", 0),
    "clocks.sm": ("sm_clock_mhz", "mhz", 0),
    "clocks.current.graphics": ("", "mhz", 0),
    "clocks.current.memory": ("", "mhz", 0),
    "pstate": ("pstate", "pstate", 0),
    "clocks_event_reasons.active": ("throttle_reasons", "mask", 0),
    "clocks_throttle_reasons.active": ("throttle_reasons", "mask", 0),
    "mig.mode.current": ("mig", "switch", 0),
}
_APPS: dict[str, tuple[str, Kind, int]] = {
    "timestamp": ("timestamp", "time", 0),
    "gpu_name": ("", "text", 0),
    "gpu_bus_id": ("bus", "bus", 0),
    "gpu_serial": ("", "text", 0),
    "gpu_uuid": ("uuid", "uuid", 0),
    "pid": ("pid", "pid", 0),
    "process_name": ("name", "text", 0),
    "name": ("name", "text", 0),
    "used_gpu_memory": ("used_mib", "mib", 0),
    "used_memory": ("used_mib", "mib", 0),
}
_APPS_ONLY = frozenset({"pid", "process_name", "used_gpu_memory", "used_memory"})
_OTHER = re.compile(
    r"retired_pages\.(address|timestamp|cause)|(gpu|mem)_util(ization)?|max_memory_usage"
)
_PREFIXES = (
    "accounting.", "addressing_mode", "clocks", "compute_", "count", "display_", "driver_",
    "ecc.", "encoder.", "enforced.", "fan.", "gpu", "inforom.", "memory.", "mig.", "module.",
    "pci", "persistence_mode", "power", "serial", "temperature.", "utilization.", "vbios_",
)  # fmt: skip
_PART = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)(?: ?\[(?P<unit>[^\[\]]{1,6})\])?"
)


@dataclass(frozen=True, slots=True)
class Header:
    """A CSV header understood: its columns and how its rows are separated."""

    form: Form
    columns: tuple[Column, ...]
    separator: str = ", "


def read_header(line: str, *, first: bool = False, after: bool = False) -> Header | None:
    """The header on this line, if it is one.

    A single bare word ("name") counts only where nothing stands before it (``first``). ``after``
    another header every name must have the look of a field: it may be a piece of that header.
    """
    text = line.strip()
    separator = ", " if ", " in text else ","
    parts = [_PART.fullmatch(part.strip().strip('"')) for part in text.split(separator)]
    if any(part is None for part in parts):
        return None
    names = [(part["name"], part["unit"] is not None) for part in parts if part is not None]
    if len(names) == 1 and not _alone_is_header(*names[0], first=first):
        return None
    if line[:1].isspace() or not _mostly_fields(
        [name.lower() for name, _ in names], all_of_them=after
    ):
        return None
    return header_of(tuple(name for name, _ in names), separator=separator)


def header_of(names: tuple[str, ...], *, separator: str = ", ") -> Header:
    """The header of a list of field names, as given to ``--query-gpu`` or ``--query-compute-apps``."""
    bare = [name.lower() for name in names]
    if any(_OTHER.fullmatch(name) for name in bare):
        form: Form = "other"
    elif _APPS_ONLY & set(bare):
        form = "apps"
    else:
        form = "gpus"
    table = _APPS if form == "apps" else _GPU
    return Header(form, tuple(_column(name, table) for name in bare), separator)


def _column(name: str, table: dict[str, tuple[str, Kind, int]]) -> Column:
    if name in table:
        target, kind, rank = table[name]
        return Column(name, target, kind, rank, unit=kind in UNIT_KINDS)
    head, _, tail = name.partition(".")
    reason = reason_name(tail) if head.startswith(("clocks_event", "clocks_throttle")) else None
    if reason and head.endswith("reasons"):
        return Column(name, f"reason:{reason}", "active")
    return Column(name)


def _known(name: str) -> bool:
    return name in _GPU or name in _APPS


def _mostly_fields(names: list[str], *, all_of_them: bool) -> bool:
    """At least one name is a field we know, and most (or all) have the look of one."""
    like = sum(1 for name in names if _known(name) or name.startswith(_PREFIXES) or "." in name)
    return any(map(_known, names)) and (
        like == len(names) if all_of_them else like * 2 >= len(names)
    )


def _alone_is_header(name: str, has_unit: bool, *, first: bool) -> bool:
    kind = (_GPU.get(name.lower()) or _APPS.get(name.lower()) or ("", "text", 0))[1]
    if kind in UNIT_KINDS:
        return has_unit
    return first and _known(name.lower())
