"""The table that plain ``nvidia-smi`` prints for people.

The least stable form (the banner changed in driver 610, the columns in 450): a GPU is taken only
from two lines of the known shape that stand together, and power is whole watts there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from specdash.gpus.cells import Cell, Fault, Kind, Value, clean_name, normal_bus, read_cell
from specdash.gpus.reading import Holder, Reading
from specdash.gpus.text_form import whole

START = re.compile(r"\|\s*NVIDIA-SMI\s+\S+")
_BUS = r"(?:[0-9A-Fa-f]{1,8}:)?[0-9A-Fa-f]{1,2}:[0-9A-Fa-f]{1,2}\.[0-7]"
_FIRST = re.compile(
    rf"\|\s*(?P<index>[0-9]{{1,3}})\s+(?P<name>\S.*?)\s+(?P<mode>On|Off|WDDM|TCC|MCDM|N/A|ERR!)\s*"
    rf"\|\s*(?P<bus>{_BUS})\s+(?:On|Off|N/A|ERR!)\s*\|[^|]*\|"
)
_SECOND = re.compile(
    r"\|\s*(?P<fan>N/A|ERR!|[0-9]{1,3}%)\s+(?P<temp>N/A|ERR!|-?[0-9]{1,3}C)\s+(?P<perf>\S+)\s+"
    r"(?P<draw>\S+)\s*/\s*(?P<limit>\S+)\s*"
    r"\|\s*(?P<memory>[^|]*?)\s*\|\s*(?P<util>[^|\s]+)(?:\s+[^|]*)?\|"
)
_THIRD = re.compile(r"\|\s*\|\s*\|\s*(?P<mig>Enabled\*?|Disabled\*?|N/A)\s*\|")
_MEMORY = re.compile(r"(?P<used>\S+)\s*/\s*(?P<total>\S+)")
_PROCESS = re.compile(
    r"\|\s*(?P<index>[0-9]{1,3})\s+(?:(?:N/A|[0-9]+)\s+(?:N/A|[0-9]+)\s+)?(?P<pid>[0-9]{1,10}|N/A|\[[^\]]+\])\s+"
    r"(?P<type>C|G|C\+G|M\+C|M|N/A)\s+(?P<name>\S.*?)\s+(?P<used>[0-9]{1,9}MiB|N/A|ERR!|\[[^\]]+\])\s*\|"
)
_PROCESSES = re.compile(r"\|\s*(?:GPU\s+)?Processes:\s")
_LONGEST = 400
_RULE = re.compile(r"\+[-=+]+\+|\|[-=+]+\|")


@dataclass(slots=True)
class _Gpu:
    index: int
    bus: str | None
    values: dict[str, Value | None] = field(default_factory=dict)
    fault: Fault = ""
    lines: int = 1


@dataclass(slots=True)
class TableBlock:
    """One table."""

    gpus: list[_Gpu] = field(default_factory=list)
    held: list[Holder] = field(default_factory=list)
    _open: bool = False
    _in_processes: bool = False

    def feed(self, line: str) -> bool:
        """Take a line of the table; False for a line that is none of it."""
        text = line.strip()[:_LONGEST]
        if _RULE.fullmatch(text):
            self._open = False
            return True
        if not text.startswith("|"):
            return False
        if _PROCESSES.match(text):
            self._in_processes = True
            return True
        if self._in_processes:
            self._process(text)
            return text.endswith("|")
        return self._gpu_line(text)

    def _gpu_line(self, text: str) -> bool:
        first = _FIRST.fullmatch(text)
        if first is not None:
            self.gpus.append(
                _Gpu(
                    index=int(first["index"]),
                    bus=normal_bus(first["bus"]) or normal_bus("0:" + first["bus"]),
                    values={"name": clean_name(first["name"])},
                )
            )
            self._open = True
            return True
        if not self._open:
            return text.endswith("|")
        gpu = self.gpus[-1]
        second = _SECOND.fullmatch(text) if gpu.lines == 1 else None
        if second is not None:
            gpu.lines = 2
            self._second(gpu, second)
            return True
        third = _THIRD.fullmatch(text) if gpu.lines == 2 else None
        if third is not None:
            gpu.lines = 3
            gpu.values["mig"] = read_cell(third["mig"], "switch").value
            return True
        self._open = False  # a damaged line: what follows may be another GPU's
        return text.endswith("|")

    def _second(self, gpu: _Gpu, found: re.Match[str]) -> None:
        memory = _MEMORY.fullmatch(found["memory"])
        cells: dict[str, Cell] = {
            "temperature_c": _united(found["temp"], "celsius"),
            "pstate": read_cell(found["perf"], "pstate"),
            "power_draw_w": _united(found["draw"], "watts"),
            "power_limit_w": _united(found["limit"], "watts"),
            "memory_used_mib": _united(memory["used"] if memory else "N/A", "mib"),
            "memory_total_mib": _united(memory["total"] if memory else "N/A", "mib"),
            "utilization_percent": _united(found["util"], "percent"),
        }
        for name, cell in cells.items():
            gpu.values[name] = cell.value
            gpu.fault = gpu.fault or cell.fault

    def _process(self, text: str) -> None:
        found = _PROCESS.fullmatch(text)
        if found is None:
            return
        self.held.append(
            Holder(
                pid=whole(read_cell(found["pid"], "pid").value),
                name=clean_name(found["name"]),
                used_mib=whole(_united(found["used"], "mib").value),
                index=int(found["index"]),
            )
        )

    def readings(self) -> list[Reading]:
        return [
            Reading(index=gpu.index, bus=gpu.bus, values=gpu.values, fault=gpu.fault)
            for gpu in self.gpus
        ]

    def holders(self) -> list[Holder]:
        return list(self.held)


def _united(text: str, kind: Kind) -> Cell:
    """A cell that counts only with its unit behind it, as the table always prints it."""
    cell = read_cell(text, kind)
    return cell if cell.unit or cell.value is None else Cell(garbage=True)
