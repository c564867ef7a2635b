"""From the bytes of any nvidia-smi output to one snapshot.

Pure. Forms may follow one another, in any mixture: query CSV, ``-q``, the table, XML, ``-L``,
failure sentences, other text. The newest reading of a GPU counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from specdash.core.gpu import Problem, Snapshot
from specdash.core.text import make_safe
from specdash.gpus import table_form, text_form, xml_form
from specdash.gpus.cells import clean_name, normal_bus
from specdash.gpus.columns import Header, header_of, read_header
from specdash.gpus.csv_form import CsvBlock
from specdash.gpus.problems import (
    failure_of_status,
    find_failure,
    garbled,
    is_noise,
    library_version,
)
from specdash.gpus.reading import Holder, Reading, gpu_of, merge, processes_of
from specdash.gpus.table_form import TableBlock
from specdash.gpus.text_form import TextBlock
from specdash.gpus.xml_form import XmlBlock

Block = CsvBlock | TextBlock | TableBlock | XmlBlock

_ECHO = re.compile(r"--query-(?P<form>gpu|compute-apps)[= ](?P<fields>[A-Za-z_][\w.,]*)")
_LISTED = re.compile(
    r"GPU (?P<index>[0-9]{1,4}): (?P<name>.+?) \(UUID: (?P<uuid>GPU-[^)\s]+)\)\s*$"
)
_NUMBER_WITH_UNIT = re.compile(r"[0-9] ?(MiB|W|MHz|%)(,|$)|^[0-9]+, ")
_LONGEST_LINE = 32_768
"""A row of every field there is has 6000 characters."""
_SEVERE = re.compile(
    r"^\s*(Failed to initialize NVML|NVIDIA-SMI has failed|No devices (were )?found"
    r"|Unable to determine the device handle|Field \")",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Parsed:
    """What an output says, before it becomes a snapshot. ``lost`` are PCI addresses."""

    readings: list[Reading] = field(default_factory=list)
    holders: list[Holder] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    understood: bool = False


def parse(
    data: bytes,
    *,
    source: str,
    exit_status: int | None = None,
    fields: Sequence[str] | None = None,
) -> Snapshot:
    """The snapshot in ``data``, an output of nvidia-smi in any form; never raises.

    ``exit_status`` (the NVML code) explains an output that says nothing. ``fields`` names the
    columns of CSV rows that come without a header. A GPU that the output calls lost is listed
    with the state ``lost`` and no measurements.
    """
    return snapshot_of(read_output(data, exit_status=exit_status, fields=fields), source=source)


def snapshot_of(parsed: Parsed, *, source: str) -> Snapshot:
    """The parsed output as a value of the contract."""
    merged = merge(parsed.readings)
    return Snapshot(
        source=source,
        gpus=tuple(gpu_of(reading) for reading in merged),
        processes=tuple(processes_of(parsed.holders, merged)),
        problems=tuple(dict.fromkeys(parsed.problems)),
    )


def read_output(
    data: bytes, *, exit_status: int | None = None, fields: Sequence[str] | None = None
) -> Parsed:
    """Every reading of the output, oldest first, and every failure it tells of."""
    reader = _Reader(header_of(tuple(fields)) if fields else None)
    text = decode(data)
    lines = text.split("\n")
    for at, line in enumerate(lines):
        last = at == len(lines) - 1
        if line:
            reader.line(line[:_LONGEST_LINE], ended=not last and len(line) <= _LONGEST_LINE)
    return reader.finish(exit_status)


def decode(data: bytes) -> str:
    """Text of an output: UTF-8, or UTF-16 as PowerShell redirects it; line ends as ``\\n``.

    There may be empty lines between lines, where the ends were longer.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", "replace")
    else:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    return text.replace("\x00", "").replace("\r", "\n")


class _Reader:
    """Walks the lines and gives each to the form it belongs to."""

    def __init__(self, header: Header | None) -> None:
        self._given = header
        self._block: Block | None = None
        self._blocks: list[Block] = []
        self._order: list[Block | Reading] = []
        self._parsed = Parsed()
        self._loose_rows = 0
        self._first_words = ""

    def line(self, line: str, *, ended: bool) -> None:
        if not line.strip():
            return
        first = not self._first_words and self._block is None
        if self._starts_form(line, first=first) or self._taken(line, ended=ended):
            return
        self._first_words = self._first_words or str(make_safe(line, limit=120)).strip()
        if self._failure(line):
            return
        listed = _LISTED.match(line)
        if listed is not None:
            self._order.append(
                Reading(
                    index=int(listed["index"]),
                    uuid=listed["uuid"],
                    values={"name": clean_name(listed["name"])},
                )
            )
            return
        if self._block is None and self._given is not None:
            block = CsvBlock(self._given)
            if block.like_row(line) and block.feed(line, ended=ended):
                self._open(block)
                return
        if _NUMBER_WITH_UNIT.search(line) and line.count(",") > 1 and not is_noise(line):
            self._loose_rows += 1

    def _starts_form(self, line: str, *, first: bool) -> bool:
        if isinstance(self._block, XmlBlock) and not self._block.closed:
            if not re.search(r"<\?xml\b|<nvidia_smi_log\b", line):
                return False
            if self._block.lines and all(
                re.match(r"\s*(<\?xml|<!DOCTYPE)", old) for old in self._block.lines
            ):
                return False
        start = xml_form.START.search(line)
        if start is not None:
            document = XmlBlock()
            document.feed(line[start.start() :])
            self._open(document)
            return True
        if text_form.START.search(line):
            self._open(TextBlock())
            return True
        if table_form.START.match(line.strip()):
            self._open(TableBlock())
            return True
        if self._command(line):
            return True
        if isinstance(self._block, TextBlock | TableBlock) and line.startswith((" ", "|", "+")):
            return False
        header = read_header(line, first=first, after=isinstance(self._block, CsvBlock))
        if header is not None:
            self._open(CsvBlock(header))
            return True
        return False

    def _command(self, line: str) -> bool:
        """A command line kept with its output names the columns, should the header be missing."""
        echo = _ECHO.search(line)
        if echo is None:
            return False
        fields = tuple(echo["fields"].strip(",").split(","))
        header = header_of(fields)
        if not any(column.target for column in header.columns):
            return False
        self._given, self._block = header, None
        return True

    def _open(self, block: Block) -> None:
        self._block = block
        self._order.append(block)

    def _taken(self, line: str, *, ended: bool) -> bool:
        block = self._block
        if block is None:
            return False
        if isinstance(block, XmlBlock):
            if block.closed or ("<" not in line and _SEVERE.match(line)):
                return False
            block.feed(line if ended or line.rstrip().endswith(">") else line + " ")
            return True
        if isinstance(block, TableBlock):
            return block.feed(line)
        if _SEVERE.match(line):
            return False
        return block.feed(line, ended=ended)

    def _failure(self, line: str) -> bool:
        version = library_version(line)
        if version and self._parsed.problems:
            last = self._parsed.problems[-1]
            if last.code == "driver-mismatch" and version not in last.message:
                text = f"{last.message.rstrip('.')} (library {version})."
                self._parsed.problems[-1] = Problem(last.code, text, last.remedy)
            return True
        said = find_failure(line)
        if said is None:
            return False
        self._parsed.problems.append(said.problem)
        if said.field:
            self._parsed.refused.append(said.field)
        if said.problem.code == "gpu-lost" and said.bus:
            bus = normal_bus(said.bus) or normal_bus("0:" + said.bus)
            if bus is not None:
                self._parsed.lost.append(bus)
                self._order.append(Reading(bus=bus, fault="lost"))
        return True

    def finish(self, exit_status: int | None) -> Parsed:
        parsed = self._parsed
        newest: dict[type, list[Holder]] = {}
        for item in self._order:
            if isinstance(item, Reading):
                parsed.readings.append(item)
                continue
            if isinstance(item, CsvBlock):
                if item.header.form == "gpus":
                    parsed.readings.extend(item.readings())
                elif item.header.form == "apps":
                    newest[CsvBlock] = item.holders()
                    parsed.understood = True
                continue
            parsed.readings.extend(item.readings())
            newest[type(item)] = item.holders()
        for held in newest.values():
            parsed.holders.extend(held)
        self._judge(exit_status)
        return parsed

    def _judge(self, exit_status: int | None) -> None:
        parsed = self._parsed
        named = frozenset(
            item.bus
            for item in self._order
            if isinstance(item, Reading) and item.fault and item.bus
        )
        parsed.problems.extend(faults_of(parsed.readings, except_buses=named))
        damage = _damage(self._order)
        if damage:
            parsed.problems.append(garbled(damage))
        if parsed.readings or parsed.holders or parsed.problems or parsed.understood:
            parsed.understood = True
            if self._loose_rows:
                parsed.problems.append(_headless(self._loose_rows))
            return
        said = failure_of_status(exit_status)
        if said is not None:
            parsed.problems.append(said)
        elif self._loose_rows:
            parsed.problems.append(_headless(self._loose_rows))
        elif any(isinstance(item, CsvBlock) for item in self._order):
            parsed.problems.append(garbled("There is a header but no row under it."))
        elif self._first_words or self._order:
            begins = f'; it begins "{self._first_words}"' if self._first_words else ""
            parsed.problems.append(garbled(f"This is no output of nvidia-smi{begins}."))
        else:
            parsed.problems.append(garbled("The output is empty."))


def _headless(rows: int) -> Problem:
    return Problem(
        "garbled",
        f"{_count(rows, 'row')} of CSV without a header: what the columns mean is unknown.",
        "Leave `noheader` out, or name the columns with --fields.",
    )


def faults_of(
    readings: Sequence[Reading], *, except_buses: frozenset[str] = frozenset()
) -> list[Problem]:
    """What the newest reading of each GPU itself tells of, in place of numbers."""
    problems = []
    for reading in merge(readings):
        if not reading.fault or reading.bus in except_buses:
            continue
        who = reading.index if reading.index is not None else reading.uuid or reading.bus or "?"
        if reading.fault == "lost":
            said = Problem(
                "gpu-lost", f"GPU {who} is lost.", "Reboot the host to recover this GPU."
            )
        else:
            said = Problem(
                "gpu-lost",
                f"GPU {who} requires a reset.",
                "Reset it (`nvidia-smi --gpu-reset`) when no process uses it, or reboot.",
            )
        problems.append(said)
    return problems


def _damage(order: Sequence[Block | Reading]) -> str:
    rows = sum(item.dropped for item in order if isinstance(item, CsvBlock))
    cells = sum(item.bad_cells for item in order if isinstance(item, CsvBlock))
    cut = sum(1 for item in order if isinstance(item, TextBlock | XmlBlock) and item.damaged)
    parts = []
    if rows:
        parts.append(f"{_count(rows, 'row')} left out")
    if cells:
        parts.append(f"{_count(cells, 'cell')} unreadable")
    if cut:
        parts.append(f"{_count(cut, 'document')} cut or damaged")
    return f"The output is damaged: {', '.join(parts)}." if parts else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
