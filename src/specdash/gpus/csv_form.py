"""Rows of ``nvidia-smi --query-gpu`` and ``--query-compute-apps``.

The format has no quoting: the separator is comma and blank, a process name may hold any comma,
and a decimal comma (localised drivers) has no blank behind it. A row is read only where its
cells can be put under the header in one way.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from specdash.gpus.cells import NUMERIC_KINDS, Cell, Value, is_token, read_cell
from specdash.gpus.columns import Column, Header
from specdash.gpus.reading import Holder, Reading
from specdash.gpus.reasons import in_order

_TYPED = re.compile(
    r"[0-9.,]+( ?(MiB|MB|W|MHz|%|C|us|ms))?|0x[0-9A-Fa-f]+|P[0-9]{1,2}|(GPU|MIG)-\S+"
    r"|([0-9A-Fa-f]+:)?[0-9A-Fa-f]+:[0-9A-Fa-f]+\.[0-7]|\[.*\]|Enabled|Disabled|(Not )?Active"
)
_TWO_NUMBERS = re.compile(r"[0-9]\S*\s+\S*[0-9]")
_VALUE_INSIDE = re.compile(r"[0-9] ?(MiB|MB|W|MHz|%)")
_UUID_INSIDE = re.compile(r"(GPU|MIG)-[0-9a-fA-F]{8}-")
_TIME = re.compile(r"(\d{4})/(\d\d)/(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,3})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Row:
    """One line under its header. ``garbage`` counts cells that are no value and no token."""

    cells: tuple[Cell, ...]
    time_s: float | None = None
    garbage: int = 0
    units: bool | None = None


@dataclass(slots=True)
class CsvBlock:
    """A header and the rows under it; newest rows win when it is read out."""

    header: Header
    rows: list[Row] = field(default_factory=list)
    dropped: int = 0
    bad_cells: int = 0
    _saw_units: bool = False

    def feed(self, line: str, *, ended: bool = True) -> bool:
        """Take the line if it is a row, or a damaged one; False for text that is neither."""
        if self.header.form == "other":
            return self.like_row(line)
        texts = split_row(line, self.header)
        if texts is None:
            damaged = self.like_row(line)
            self.dropped += damaged
            return damaged
        row = read_row(texts, self.header, ended=ended)
        if row is None or (row.garbage and not self.like_row(line)):
            damaged = self.like_row(line)
            self.dropped += damaged
            return damaged
        if row.units is False and self._saw_units:
            self.dropped += 1
            return True
        self._saw_units |= row.units is True
        self.bad_cells += row.garbage
        self.rows.append(row)
        return True

    def like_row(self, line: str) -> bool:
        """Whether the line has the look of a row, whole or damaged."""
        parts = [part.strip() for part in line.split(self.header.separator)]
        if len(self.header.columns) < 3:
            return len(parts) == len(self.header.columns) and any(map(_is_typed, parts))
        return len(parts) > 1 and any(map(_is_typed, parts))

    def readings(self) -> list[Reading]:
        """Readings of a GPU block, oldest first; without ids only the newest round is given."""
        columns = self.header.columns
        readings = [reading_of(row, columns) for row in self.rows]
        if any(reading.identified for reading in readings):
            # One header asked them all, so that the newest row of a GPU says all there is.
            newest = {
                (r.uuid, r.bus, r.index) if r.identified else at: r for at, r in enumerate(readings)
            }
            return [*newest.values(), *self._gone(readings)]
        return readings[self._newest_round() :]

    def holders(self) -> list[Holder]:
        """The processes of the newest round of a compute-apps block."""
        columns = self.header.columns
        newest: list[Holder] = []
        times: dict[str | None, float | None] = {}
        seen: set[tuple[str | None, int | None, float | None]] = set()
        last: float | None = None
        for row in self.rows:
            holder = holder_of(row, columns)
            gpu = holder.uuid or holder.bus
            key = (gpu, holder.pid, row.time_s)
            again = row.time_s is None and holder.pid is not None and key in seen
            moved = gpu in times and times[gpu] != row.time_s
            gap = last is not None and row.time_s is not None and row.time_s - last >= 5
            if again or moved or gap:
                newest, times, seen = [], {}, set()
            newest.append(holder)
            times[gpu] = row.time_s
            seen.add(key)
            last = row.time_s if row.time_s is not None else last
        return newest

    def _gone(self, readings: Sequence[Reading]) -> list[Reading]:
        """GPUs of earlier rounds that two later rounds no longer list fell off the bus."""
        if self.dropped:
            return []
        places: dict[tuple[object, ...], list[int]] = {}
        for at, reading in enumerate(readings):
            if reading.identified:
                key = (reading.uuid, reading.bus, reading.index)
                places.setdefault(key, []).append(at)
        # Whoever came last before the last two rows of another is not listed any more.
        two_later = max((seen[-2] for seen in places.values() if len(seen) > 1), default=0)
        return [
            Reading(index=old.index, uuid=old.uuid, bus=old.bus, fault="lost")
            for old in (readings[seen[-1]] for seen in places.values() if seen[-1] < two_later)
        ]

    def _newest_round(self) -> int:
        """Where the newest round starts among rows that do not say which GPU they are."""
        at_count = _at(self.header.columns, "count")
        if at_count is not None and self.rows:
            count = self.rows[-1].cells[at_count].value
            if isinstance(count, int) and count > 0:
                return max(0, len(self.rows) - count)
        times = [row.time_s for row in self.rows]
        known = [t for t in times if t is not None]
        if len(known) < len(times) or len(times) < 2:
            return 0
        gaps = [b - a for a, b in itertools.pairwise(known)]
        threshold = max(0.2, max(gaps) / 2)
        return max((i + 1 for i, gap in enumerate(gaps) if gap >= threshold), default=0)


def split_row(line: str, header: Header) -> list[str] | None:
    """The cells of a row under its header; None where that is not certain."""
    count = len(header.columns)
    text = line.strip()
    if not text:
        return None
    if text.endswith(","):
        text += " "  # an empty last cell; the blank behind the comma is easily lost
    parts = text.split(header.separator)
    if len(parts) == count:
        return [part.strip() for part in parts]
    if header.separator == ", " and ", " not in text and text.count(",") == count - 1:
        return [part.strip() for part in text.split(",")]
    if len(parts) < count:
        return None
    if header.separator == ",":
        joined = _join_decimals(parts, header.columns)
        if joined is not None:
            return joined
    return _outside_in(parts, header)


def read_row(texts: Sequence[str], header: Header, *, ended: bool = True) -> Row | None:
    """Cells as values; None where the row is damaged beyond trust.

    The last cell of a line without its end is believed only where its unit stands behind it.
    """
    columns = header.columns
    if header.form == "gpus" and any(
        column.target == "name" and _VALUE_INSIDE.search(text)
        for text, column in zip(texts, columns, strict=True)
    ):
        return None  # a separator was lost: the cells behind it may be shifted
    cells = [read_cell(text, column.kind) for text, column in zip(texts, columns, strict=True)]
    united = [c.unit for c, column in zip(cells, columns, strict=True) if _must_have(c, column)]
    units = (any(united) if united else None) or (False if united else None)
    garbage = 0
    for at, (cell, column) in enumerate(zip(cells, columns, strict=True)):
        bare = _must_have(cell, column) and not cell.unit and units is True
        cut = at == len(cells) - 1 and not ended and _may_be_cut(cell, column)
        if cell.garbage and _TWO_NUMBERS.search(texts[at]):
            return None  # a separator was lost: the cells behind it may be shifted
        if cell.garbage or bare:
            garbage += column.kind in NUMERIC_KINDS or column.target in ("uuid", "bus")
            cells[at] = Cell(garbage=True)
        elif cut:
            cells[at] = Cell()
    if garbage > 1 or (garbage and len(cells) == 1):
        return None
    at_time = _at(columns, "timestamp")
    time_s = read_time(texts[at_time]) if at_time is not None else None
    return Row(tuple(cells), time_s=time_s, garbage=garbage, units=units)


def reading_of(row: Row, columns: Sequence[Column]) -> Reading:
    """A row of ``--query-gpu`` as a reading."""
    values: dict[str, Value | None] = {}
    ranks: dict[str, int] = {}
    reasons: set[str] | None = None
    fault = ""
    for cell, column in zip(row.cells, columns, strict=True):
        if cell.fault == "lost" or (cell.fault and not fault):
            fault = cell.fault
        if column.target.startswith("reason:"):
            reasons = reasons if reasons is not None else set()
            if cell.value is True:
                reasons.add(column.target.removeprefix("reason:"))
        elif column.target and _better(column, cell, values, ranks):
            values[column.target] = cell.value
            ranks[column.target] = column.rank
    if reasons is not None and values.get("throttle_reasons") is None:
        values["throttle_reasons"] = in_order(reasons)
    place: dict[str, Any] = {key: values.pop(key, None) for key in ("index", "uuid", "bus")}
    for key in ("timestamp", "count"):
        values.pop(key, None)
    return Reading(values=values, fault=fault, **place)  # type: ignore[arg-type]


def holder_of(row: Row, columns: Sequence[Column]) -> Holder:
    """A row of ``--query-compute-apps``."""
    values: dict[str, Any] = {}
    for cell, column in zip(row.cells, columns, strict=True):
        if column.target in ("pid", "name", "used_mib", "uuid", "bus"):
            values.setdefault(column.target, cell.value)
    return Holder(
        pid=values.get("pid"),
        name=values.get("name"),
        used_mib=values.get("used_mib"),
        uuid=values.get("uuid"),
        bus=values.get("bus"),
    )


def read_time(text: str) -> float | None:
    """``2026/07/03 22:11:09.763`` as seconds; only differences mean something."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return None
    year, month, day, hour, minute, second, milli = (int(part) for part in found.groups())
    days = (year * 12 + month) * 31 + day
    return ((days * 24 + hour) * 60 + minute) * 60 + second + milli / 1000


def _better(
    column: Column, cell: Cell, values: dict[str, Value | None], ranks: dict[str, int]
) -> bool:
    if column.target not in values:
        return True
    if values[column.target] is None:
        return cell.value is not None
    return cell.value is not None and column.rank < ranks[column.target]


def _must_have(cell: Cell, column: Column) -> bool:
    return column.unit and cell.value is not None


def _may_be_cut(cell: Cell, column: Column) -> bool:
    return cell.value is not None and not cell.unit and column.kind != "text"


def _at(columns: Sequence[Column], target: str) -> int | None:
    return next((i for i, column in enumerate(columns) if column.target == target), None)


def _is_typed(text: str) -> bool:
    return bool(text) and (_TYPED.fullmatch(text) is not None or is_token(text))


def _outside_in(parts: Sequence[str], header: Header) -> list[str] | None:
    """Too many parts: one text column took the commas. Cells left and right of it stand."""
    columns = header.columns
    excess = len(parts) - len(columns)
    wide = "name" if header.form == "apps" else None
    at = _at(columns, wide) if wide else None
    if at is None:
        at = next((i for i, c in enumerate(columns) if c.target == "name"), None)
    if at is None:
        return None
    middle = [part.strip() for part in parts[at : at + excess + 1]]
    name = header.separator.join(middle)
    if header.form == "apps":
        if _UUID_INSIDE.search(name) and any(c.target == "uuid" for c in columns):
            return None
    elif excess > 2 or any(not part[:1].isalpha() or _is_typed(part) for part in middle[1:]):
        return None
    right = parts[at + excess + 1 :]
    return [*(p.strip() for p in parts[:at]), name, *(p.strip() for p in right)]


def _join_decimals(parts: Sequence[str], columns: Sequence[Column]) -> list[str] | None:
    """Rows separated by a bare comma with decimal commas inside: join what only fits so."""
    cells: list[str] = []
    at = 0
    excess = len(parts) - len(columns)
    for column in columns:
        if at >= len(parts):
            return None
        pair = ",".join(parts[at : at + 2])
        if excess and column.kind == "watts" and re.fullmatch(r"\s*[0-9]+,[0-9]{2}( ?W)?\s*", pair):
            cells.append(pair.strip())
            at += 2
            excess -= 1
        else:
            cells.append(parts[at].strip())
            at += 1
    return cells if at == len(parts) and not excess else None
