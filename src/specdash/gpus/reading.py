"""What one place in an output says about one GPU, and how several places become one snapshot.

A field that is absent was not asked; a field that is None was asked and is unknown. The newest
reading of a GPU overwrites what it asked, so that a stale number never outlives an ``[N/A]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specdash.core.gpu import Gpu, GpuProcess
from specdash.gpus.cells import Fault, Value

MEASURED = (
    "memory_used_mib",
    "utilization_percent",
    "temperature_c",
    "power_draw_w",
    "sm_clock_mhz",
    "pstate",
)
"""The fields of a Gpu that are readings; the others describe it."""
_MOST_GPUS = 1024
_STATIC = ("name", "memory_total_mib", "memory_reserved_mib", "power_limit_w", "mig")


@dataclass(frozen=True, slots=True)
class Reading:
    """One GPU in one place. ``values`` maps fields of :class:`Gpu` to what was read."""

    index: int | None = None
    uuid: str | None = None
    bus: str | None = None
    values: Mapping[str, Value | None] = field(default_factory=dict)
    fault: Fault = ""

    @property
    def identified(self) -> bool:
        return self.index is not None or self.uuid is not None or self.bus is not None


@dataclass(frozen=True, slots=True)
class Holder:
    """A process in one place; it names its GPU by uuid, bus id or index."""

    pid: int | None
    name: str | None
    used_mib: int | None
    uuid: str | None = None
    bus: str | None = None
    index: int | None = None


def merge(readings: Iterable[Reading]) -> list[Reading]:
    """One reading a GPU, in order of first appearance; the newest values count."""
    merged: list[Reading] = []
    places: dict[tuple[str, object], list[int]] = {}
    for new in readings:
        near = sorted({at for one in _ids(new) for at in places.get(one, ())})
        at = next((at for at in near if same_gpu(merged[at], new)), None)
        if at is not None:
            merged[at] = _over(merged[at], new)
        elif len(merged) < _MOST_GPUS:
            at = len(merged)
            merged.append(_settled(new))
        else:
            continue
        for one in _ids(merged[at]):
            known = places.setdefault(one, [])
            if at not in known:
                known.append(at)
    return _without_doubles(merged)


def gpu_of(reading: Reading) -> Gpu:
    """The reading as a value of the contract."""
    values: dict[str, Any] = {k: v for k, v in reading.values.items() if v is not None}
    if reading.fault == "lost":
        return Gpu(
            index=reading.index,
            uuid=reading.uuid,
            state="lost",
            **{k: v for k, v in values.items() if k in _STATIC},
        )
    read = any(values.get(name) is not None for name in MEASURED)
    state: Any = "ok" if read and not reading.fault else "unknown"
    return Gpu(index=reading.index, uuid=reading.uuid, state=state, **values)


def processes_of(holders: Sequence[Holder], readings: Sequence[Reading]) -> list[GpuProcess]:
    """Holders with the uuid of their GPU, where the readings tell it; one a GPU and pid."""
    found: dict[tuple[str | None, int | None, str | None], GpuProcess] = {}
    for holder in holders:
        uuid = holder.uuid or _uuid_of(holder, readings)
        place = uuid or holder.bus or (None if holder.index is None else str(holder.index))
        key = (place, holder.pid, None if holder.pid is not None else holder.name)
        old = found.get(key)
        name = holder.name
        if old is not None and (name is None or "..." in name):
            name = old.name or name
        used = holder.used_mib
        if used is None and old is not None:
            used = old.used_mib
        found[key] = GpuProcess(gpu_uuid=uuid, pid=holder.pid, name=name, used_mib=used)
    return list(found.values())


def _uuid_of(holder: Holder, readings: Sequence[Reading]) -> str | None:
    for reading in readings:
        if holder.bus is not None and reading.bus == holder.bus:
            return reading.uuid
        if holder.bus is None and holder.index is not None and reading.index == holder.index:
            return reading.uuid
    return None


def same_gpu(a: Reading, b: Reading) -> bool:
    """Whether all ids that both give agree, and there is one."""
    pairs = ((a.uuid, b.uuid), (a.bus, b.bus), (a.index, b.index))
    known = [(x, y) for x, y in pairs if x is not None and y is not None]
    return bool(known) and all(x == y for x, y in known)


def _ids(reading: Reading) -> list[tuple[str, object]]:
    ids = (("uuid", reading.uuid), ("bus", reading.bus), ("index", reading.index))
    return [(kind, value) for kind, value in ids if value is not None]


def _settled(reading: Reading) -> Reading:
    if reading.fault != "lost":
        return reading
    kept = {k: v for k, v in reading.values.items() if k in _STATIC}
    return replace(reading, values=kept)


def _over(old: Reading, new: Reading) -> Reading:
    base = dict(old.values)
    if new.fault == "lost" or old.fault == "lost":
        base = {k: v for k, v in base.items() if k in _STATIC}
    for key, value in new.values.items():
        if key == "name" and base.get("name") is not None and _is_shortened(value):
            continue
        base[key] = value
    return _settled(
        Reading(
            index=old.index if new.index is None else new.index,
            uuid=new.uuid or old.uuid,
            bus=new.bus or old.bus,
            values=base,
            fault=new.fault,
        )
    )


def _is_shortened(name: Value | None) -> bool:
    return name is None or (isinstance(name, str) and name.endswith("..."))


def _without_doubles(merged: list[Reading]) -> list[Reading]:
    """A lost GPU known by its bus id alone may be one of those that give no bus id."""
    nameless = [r for r in merged if r.bus is None and r.identified]
    if not nameless:
        return merged
    return [
        r
        for r in merged
        if not (r.fault == "lost" and r.index is None and r.uuid is None and r.bus is not None)
    ]
