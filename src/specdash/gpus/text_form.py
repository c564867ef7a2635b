"""The long form, ``nvidia-smi -q``: an indented tree of sections and ``key : value`` lines.

Keys moved between drivers (304 to 610); only those under the right section count, and a key that
comes twice in one section means that a line between was lost, so that section is not believed.
So does a colon that stands in another column than the others.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from specdash.gpus.cells import Fault, Kind, Value, clean_name, normal_bus, read_cell
from specdash.gpus.reading import Holder, Reading
from specdash.gpus.reasons import in_order, reason_name

START = re.compile(r"=+\s*NVSMI LOG\s*=+")
_GPU = re.compile(r"GPU ((?:[0-9A-Fa-f]{1,8}:)?[0-9A-Fa-f]{1,2}:[0-9A-Fa-f]{1,2}\.[0-7])\s*$")
_TOP = re.compile(r"(Timestamp|Driver Version|KMD Version|CUDA (UMD )?Version|Attached GPUs)\s*: ")
_ATTACHED = re.compile(r"Attached GPUs\s*: ([0-9]{1,4})\s*$")

# (section, key) -> field, kind, rank; the lowest rank wins.
_FIELDS: dict[tuple[str, str], tuple[str, Kind, int]] = {
    ("", "product name"): ("name", "text", 0),
    ("", "gpu uuid"): ("uuid", "uuid", 0),
    ("", "performance state"): ("pstate", "pstate", 0),
    ("pci", "bus id"): ("bus", "bus", 0),
    ("mig mode", "current"): ("mig", "switch", 0),
    ("fb memory usage", "total"): ("memory_total_mib", "mib", 0),
    ("fb memory usage", "reserved"): ("memory_reserved_mib", "mib", 0),
    ("fb memory usage", "used"): ("memory_used_mib", "mib", 0),
    ("memory usage", "total"): ("memory_total_mib", "mib", 1),
    ("memory usage", "used"): ("memory_used_mib", "mib", 1),
    ("utilization", "gpu"): ("utilization_percent", "percent", 0),
    ("temperature", "gpu current temp"): ("temperature_c", "celsius", 0),
    ("temperature", "gpu"): ("temperature_c", "celsius", 1),
    ("clocks", "sm"): ("sm_clock_mhz", "mhz", 0),
    **{
        (section, key): (target, "watts", rank)
        for section in ("gpu power readings", "power readings")
        for key, target, rank in (
            ("power draw", "power_draw_w", 0),
            ("average power draw", "power_draw_w", 1),
            ("instantaneous power draw", "power_draw_w", 2),
            ("power limit", "power_limit_w", 0),
            ("requested power limit", "power_limit_w", 1),
            ("current power limit", "power_limit_w", 2),
            ("enforced power limit", "power_limit_w", 3),
        )
    },
}
_UNITS: dict[str, str] = {"mib": "M", "percent": "%", "celsius": "C", "watts": "W", "mhz": "M"}
_REASONS = frozenset({"clocks throttle reasons", "clocks event reasons"})


@dataclass(slots=True)
class GpuTree:
    """The lines of one GPU, as they come."""

    bus: str | None
    values: dict[str, Value | None] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    reasons: set[str] | None = None
    seen: set[tuple[str, str]] = field(default_factory=set)
    poisoned: set[str] = field(default_factory=set)
    uuid: str | None = None
    fault: Fault = ""
    holders: list[dict[str, Value | None]] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def put(self, section: str, key: str, text: str, *, place: int = 0, cut: bool = False) -> None:
        """One leaf directly under ``section`` of this GPU; ``place`` is where its colon stands."""
        if section in self.poisoned:
            return
        if (section, key) in self.seen:
            self.doubt(section)
            return
        self.seen.add((section, key))
        if section.startswith(tuple(_REASONS)):
            self._reason(section, key, text)
            return
        known = _FIELDS.get((section, key))
        if known is None:
            return
        target, kind, rank = known
        cell = read_cell(text, kind)
        if cell.fault and self.fault != "lost":
            self.fault = cell.fault
        trusted = not cell.garbage and (kind not in _UNITS or cell.value is None or cell.unit)
        value = cell.value if trusted and not (cut and not cell.unit) else None
        if target == "uuid":
            self.uuid = value if isinstance(value, str) else self.uuid
        elif target == "bus":
            self.bus = self.bus or (value if isinstance(value, str) else None)
        elif self._wins(target, value, rank):
            self.values[target] = value
            self.ranks[target] = rank
            self.places[target] = place

    def trusted(self, place: int | None) -> dict[str, Value | None]:
        """The values whose colon stands where the document has its colons."""
        return {
            target: value if self.places[target] in (0, place) else None
            for target, value in self.values.items()
        }

    def process(self, key: str, text: str) -> None:
        """One leaf of the process list; a pid starts the next process."""
        match key:
            case "process id":
                self.holders.append({"pid": read_cell(text, "pid").value})
            case "name" if self.holders:
                self.holders[-1].setdefault("name", clean_name(text))
            case "used gpu memory" | "used memory" if self.holders:
                cell = read_cell(text, "mib")
                self.holders[-1].setdefault("used", cell.value if cell.unit else None)

    def doubt(self, section: str) -> None:
        """Two sections run into one: which numbers belong to it is not known."""
        self.poisoned.add(section)
        for (where, _), (target, _, _) in _FIELDS.items():
            if where == section and where and target in self.values:
                self.values[target] = None

    def _reason(self, section: str, key: str, text: str) -> None:
        name = reason_name(key)
        value = read_cell(text, "active").value
        if section not in _REASONS and not any(
            section == f"{head}/{key_above}"
            for head in _REASONS
            for key_above in ("hw slowdown", "hw power brake slowdown")
        ):
            return
        if name is None or value is None:
            return
        self.reasons = self.reasons if self.reasons is not None else set()
        if value is True:
            self.reasons.add(name)

    def _wins(self, target: str, value: Value | None, rank: int) -> bool:
        if self.values.get(target) is None:
            return value is not None or target not in self.values
        return value is not None and rank < self.ranks[target]


@dataclass(slots=True)
class TextBlock:
    """One document of ``-q``."""

    gpus: list[GpuTree] = field(default_factory=list)
    attached: int | None = None
    damaged: bool = False
    _stack: list[tuple[int, str]] = field(default_factory=list)
    _last: tuple[str, str] = ("", "")
    _places: Counter[int] = field(default_factory=Counter)

    def feed(self, line: str, *, ended: bool = True) -> bool:
        """Take a line of the document; False for a line that is none of it."""
        if START.search(line):
            return True
        gpu = _GPU.fullmatch(line)
        if gpu is not None:
            self.gpus.append(GpuTree(bus=normal_bus(gpu[1])))
            self._stack = []
            return True
        attached = _ATTACHED.fullmatch(line)
        if attached is not None and ended:
            self.attached = int(attached[1])
        if not line.startswith(" "):
            return _TOP.match(line) is not None
        indent = len(line) - len(line.lstrip(" "))
        head, colon, value = line.partition(":")
        key = head.strip().lower()
        if not key or not self.gpus:
            return False
        while self._stack and self._stack[-1][0] >= indent:
            self._stack.pop()
        if colon:
            # Keys are padded to one width; another width is two lines run together.
            place = len(head) if head.endswith("  ") else 0
            self._leaf(indent, key, value.strip(), place=place, cut=not ended)
        elif "  " in key and len(self._stack) == 1:
            self.gpus[-1].doubt(self._stack[0][1])  # a leaf that lost its colon, and what more?
            self.damaged = True
        self._stack.append((indent, key))
        return True

    def _leaf(self, indent: int, key: str, text: str, *, place: int, cut: bool) -> None:
        path = [name for _, name in self._stack]
        if indent > 4 and not path:
            self.damaged = True  # its section line was lost
            return
        if not path and ("", key) in self.gpus[-1].seen:
            if (key, text) == self._last:
                return
            self.gpus.append(GpuTree(bus=None))  # the next GPU: its first line was lost
            self.damaged = True
        self._last = (key, text)
        gpu = self.gpus[-1]
        if path and path[0] == "processes":
            if not cut:
                gpu.process(key, text)
        elif len(path) <= 1 or path[0] in _REASONS:
            self._places[place] += place > 0
            gpu.put("/".join(path), key, text, place=place, cut=cut)

    def readings(self) -> list[Reading]:
        """The place in the list is the index only where all attached GPUs are listed."""
        place = max(self._places, key=lambda at: self._places[at], default=None)
        whole = self.attached == len(self.gpus) and not self.damaged
        return [
            Reading(
                index=at if whole else None,
                uuid=gpu.uuid,
                bus=gpu.bus,
                values=gpu.trusted(place)
                | ({} if gpu.reasons is None else {"throttle_reasons": in_order(gpu.reasons)}),
                fault=gpu.fault,
            )
            for at, gpu in enumerate(self.gpus)
        ]

    def holders(self) -> list[Holder]:
        return [
            Holder(
                pid=whole(held.get("pid")),
                name=word(held.get("name")),
                used_mib=whole(held.get("used")),
                uuid=gpu.uuid,
                bus=gpu.bus,
            )
            for gpu in self.gpus
            for held in gpu.holders
        ]


def whole(value: object) -> int | None:
    """The value if it is a whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def word(value: object) -> str | None:
    """The value if it is text."""
    return value if isinstance(value, str) else None
