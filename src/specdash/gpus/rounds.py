"""Lines of ``nvidia-smi -lms`` as they come -> complete rounds, a row a GPU.

Pure. A round is complete when ``count`` rows are there (or as many as the round before had); a
GPU that comes again starts the next one, and what is then missing from the round fell off.
``heard``: a round came since the start. ``asked`` is the number of GPUs that were asked by name, where not all were.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specdash.core.gpu import Problem
from specdash.gpus.cells import normal_bus
from specdash.gpus.columns import Header, read_header
from specdash.gpus.csv_form import CsvBlock, reading_of
from specdash.gpus.parse import Parsed, faults_of
from specdash.gpus.problems import find_failure
from specdash.gpus.reading import Reading, merge, same_gpu


@dataclass(slots=True)
class Rounds:
    """Feed lines; a complete round comes back as :class:`Parsed`. Known GPUs are remembered."""

    known: list[Reading] = field(default_factory=list)
    asked: int | None = None
    failed: Parsed | None = None
    heard: bool = False
    _header: Header | None = None
    _rows: list[Reading] = field(default_factory=list)
    _expected: int | None = None

    def start(self) -> None:
        """A new stream begins: its header comes again."""
        self._header, self._rows, self.failed, self.heard = None, [], None, False

    def feed(self, line: str) -> Parsed | None:
        """The round this line completes, if it does."""
        header = read_header(line, after=self._header is not None)
        if header is not None and header.form == "gpus":
            self._header = header
            return None
        if self._header is None:
            self._note_failure(line)
            return None
        block = CsvBlock(self._header)
        block.feed(line)
        if not block.rows:
            self._note_failure(line)
            return None
        return self._row(block)

    def _row(self, block: CsvBlock) -> Parsed | None:
        row = block.rows[0]
        reading = reading_of(row, block.header.columns)
        done = None
        if any(_same(reading, old) for old in self._rows):
            done = self._finish()
        self._rows.append(reading)
        for cell, column in zip(row.cells, block.header.columns, strict=True):
            if column.target == "count" and isinstance(cell.value, int):
                self._expected = cell.value
        expected = self.asked or self._expected or len(self.known)
        if done is None and expected and len(self._rows) >= expected:
            return self._finish()
        return done

    def _finish(self) -> Parsed:
        rows, self._rows = self._rows, []
        self.heard = True
        readings, problems = self.complete(rows)
        return Parsed(readings=readings, problems=[*faults_of(rows), *problems], understood=True)

    def complete(self, rows: list[Reading]) -> tuple[list[Reading], list[Problem]]:
        """The rows and, as lost, the known GPUs that are missing among them; by index."""
        gone = [old for old in self.known if not any(_same(old, new) for new in rows)]
        lost = [
            Reading(index=old.index, uuid=old.uuid, bus=old.bus, values=old.values, fault="lost")
            for old in gone
        ]
        self.known = [*merge(rows), *gone]
        readings = sorted([*rows, *lost], key=_place)
        return readings, [not_listed(old) for old in gone]

    def _note_failure(self, line: str) -> None:
        said = find_failure(line)
        if said is None:
            return
        failed = self.failed or Parsed()
        failed.problems.append(said.problem)
        if said.field:
            failed.refused.append(said.field)
        bus = normal_bus(said.bus) if said.bus and said.problem.code == "gpu-lost" else None
        if bus is not None:
            failed.lost.append(bus)
        self.failed = failed


def _place(reading: Reading) -> tuple[bool, int]:
    return (reading.index is None, reading.index or 0)


def _same(a: Reading, b: Reading) -> bool:
    """Indices can change when a host reboots; uuids do not (but some outputs mask them)."""
    if a.uuid is not None and a.uuid == b.uuid and a.uuid.strip("GPU-0"):
        return True
    return same_gpu(a, b)


def not_listed(gone: Reading) -> Problem:
    """A GPU that was there and is not any more."""
    who = gone.index if gone.index is not None else gone.uuid or gone.bus or "?"
    return Problem(
        "gpu-lost",
        f"GPU {who} is no longer listed.",
        "It may have fallen off the bus (Xid 79 in `dmesg`); reboot the host to recover it.",
    )
