"""The XML form, ``nvidia-smi -q -x``.

A tolerant reader of our own: documents come concatenated (loop mode), cut, with text between,
and name a DTD that is not there. Entities are never defined or fetched. A leaf counts only when
its closing tag has been seen.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

from specdash.gpus.cells import Fault, Kind, Value, clean_name, normal_bus, read_cell
from specdash.gpus.reading import Holder, Reading
from specdash.gpus.reasons import in_order, reason_name
from specdash.gpus.text_form import whole, word

START = re.compile(r"<\?xml\b|<!DOCTYPE nvidia_smi_log\b|<nvidia_smi_log\b")
_TAG = re.compile(
    r"<!--.{0,4000}?-->|<[!?][^>]{0,4000}>|<(?P<close>/?)(?P<name>[A-Za-z_][\w.-]*)(?P<attrs>[^<>]*?)(?P<empty>/?)>",
    re.DOTALL,
)
_ID = re.compile(r"\bid\s*=\s*[\"']([^\"']{1,40})[\"']")
_ROOT = "nvidia_smi_log"
_DEPTH = 32

_FIELDS: dict[tuple[str, ...], tuple[str, Kind, int]] = {
    ("product_name",): ("name", "text", 0),
    ("uuid",): ("uuid", "uuid", 0),
    ("pci", "pci_bus_id"): ("bus", "bus", 0),
    ("performance_state",): ("pstate", "pstate", 0),
    ("mig_mode", "current_mig"): ("mig", "switch", 0),
    ("fb_memory_usage", "total"): ("memory_total_mib", "mib", 0),
    ("fb_memory_usage", "reserved"): ("memory_reserved_mib", "mib", 0),
    ("fb_memory_usage", "used"): ("memory_used_mib", "mib", 0),
    ("memory_usage", "total"): ("memory_total_mib", "mib", 1),
    ("memory_usage", "used"): ("memory_used_mib", "mib", 1),
    ("utilization", "gpu_util"): ("utilization_percent", "percent", 0),
    ("temperature", "gpu_temp"): ("temperature_c", "celsius", 0),
    ("clocks", "sm_clock"): ("sm_clock_mhz", "mhz", 0),
    **{
        (section, key): (target, "watts", rank)
        for section in ("gpu_power_readings", "power_readings")
        for key, target, rank in (
            ("power_draw", "power_draw_w", 0),
            ("average_power_draw", "power_draw_w", 1),
            ("instant_power_draw", "power_draw_w", 2),
            ("power_limit", "power_limit_w", 0),
            ("requested_power_limit", "power_limit_w", 1),
            ("current_power_limit", "power_limit_w", 2),
            ("enforced_power_limit", "power_limit_w", 3),
        )
    },
}
_REASON = re.compile(r"clocks_(?:throttle|event)_reason_(?P<name>\w+)")
_REASON_SECTIONS = ("clocks_throttle_reasons", "clocks_event_reasons")


@dataclass(slots=True)
class _Gpu:
    bus: str | None
    values: dict[str, Value | None] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    read: dict[tuple[str, int], Value | None] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)
    uuid: str | None = None
    reasons: set[str] | None = None
    fault: Fault = ""
    holders: list[dict[str, str]] = field(default_factory=list)

    def put(self, path: tuple[str, ...], text: str) -> None:
        reason = _REASON.fullmatch(path[-1])
        if reason is not None and len(path) == 2 and path[0] in _REASON_SECTIONS:
            self._reason(reason["name"], text)
            return
        if len(path) == 3 and path[:2] == ("processes", "process_info") and self.holders:
            self.holders[-1].setdefault(path[2], text)
            return
        if path not in _FIELDS:
            return
        target, kind, rank = _FIELDS[path]
        cell = read_cell(text, kind)
        if cell.fault and self.fault != "lost":
            self.fault = cell.fault
        bare = kind in ("mib", "percent", "celsius", "watts", "mhz") and not cell.unit
        value = None if cell.garbage or bare else cell.value
        if target == "uuid":
            self.uuid = self.uuid or word(value)
        elif target == "bus":
            self.bus = self.bus or word(value)
        elif self.read.setdefault((target, rank), value) != value:
            self.doubtful.add(target)  # two sections run into one
            self.values[target] = None
        elif target not in self.doubtful and self._wins(target, value, rank):
            self.values[target] = value
            self.ranks[target] = rank

    def _wins(self, target: str, value: Value | None, rank: int) -> bool:
        if target not in self.values:
            return True
        return value is not None and (self.values[target] is None or rank < self.ranks[target])

    def _reason(self, label: str, text: str) -> None:
        name, value = reason_name(label), read_cell(text, "active").value
        if name is None or value is None:
            return
        self.reasons = self.reasons if self.reasons is not None else set()
        if value is True:
            self.reasons.add(name)


@dataclass(slots=True)
class XmlBlock:
    """One document of ``-q -x``; feed it lines, then read it out."""

    lines: list[str] = field(default_factory=list)
    damaged: bool = False
    _gpus: list[_Gpu] | None = None
    _attached: int | None = None

    def feed(self, line: str) -> None:
        self.lines.append(line)

    @property
    def closed(self) -> bool:
        return bool(self.lines) and f"</{_ROOT}>" in self.lines[-1]

    def readings(self) -> list[Reading]:
        """The place in the document is the index only where all attached GPUs are listed."""
        gpus = self._read()
        whole_list = self._attached == len(gpus) and not self.damaged
        return [
            Reading(
                index=at if whole_list else None,
                uuid=gpu.uuid,
                bus=gpu.bus,
                values=gpu.values
                | ({} if gpu.reasons is None else {"throttle_reasons": in_order(gpu.reasons)}),
                fault=gpu.fault,
            )
            for at, gpu in enumerate(gpus)
        ]

    def holders(self) -> list[Holder]:
        held: list[Holder] = []
        for gpu in self._read():
            for one in gpu.holders:
                used = read_cell(one.get("used_memory", ""), "mib")
                held.append(
                    Holder(
                        pid=whole(read_cell(one.get("pid", ""), "pid").value),
                        name=clean_name(one.get("process_name", "")),
                        used_mib=whole(used.value) if used.unit else None,
                        uuid=gpu.uuid,
                        bus=gpu.bus,
                    )
                )
        return held

    def _read(self) -> list[_Gpu]:
        if self._gpus is None:
            self._gpus = []
            self._walk("\n".join(self.lines))
        return self._gpus

    def _walk(self, text: str) -> None:
        """Leaves directly below ``gpu``; a closing tag that does not fit marks damage."""
        stack: list[str] = []
        leaf_from = 0
        leaf_open = False
        gpus = self._gpus if self._gpus is not None else []
        for tag in _TAG.finditer(text):
            name = tag["name"]
            if name is None or tag["empty"]:
                leaf_open = leaf_open and name is None and not tag[0].startswith("<!--")
                continue
            if not tag["close"]:
                if name == "gpu" and stack[-1:] != [_ROOT]:
                    if "gpu" in stack:  # the one before was cut
                        self.damaged = True
                    stack = [_ROOT]
                stack.append(name)
                if len(stack) > _DEPTH:
                    self.damaged = True
                    return
                if name == "gpu":
                    found = _ID.search(tag["attrs"])
                    gpus.append(_Gpu(bus=normal_bus(found[1]) if found else None))
                elif name == "process_info" and gpus:
                    gpus[-1].holders.append({})
                leaf_from, leaf_open = tag.end(), True
                continue
            if name not in stack:
                self.damaged = True
                leaf_open = False
                continue
            if stack[-1] != name:
                self.damaged = True
                leaf_open = False
                while stack[-1] != name:
                    stack.pop()
            if leaf_open:
                self._leaf(tuple(stack), html.unescape(text[leaf_from : tag.start()]).strip(), gpus)
            stack.pop()
            leaf_open = False
        if stack:
            self.damaged = True

    def _leaf(self, path: tuple[str, ...], text: str, gpus: list[_Gpu]) -> None:
        if path == (_ROOT, "attached_gpus"):
            self._attached = whole(read_cell(text, "count").value)
        elif path[:2] == (_ROOT, "gpu") and len(path) > 2 and gpus:
            gpus[-1].put(path[2:], text)
