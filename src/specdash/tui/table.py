"""The results as rows: depth x concurrency, change against a reference, marginal gain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from specdash.core.records import Cell, CycleRecord
from specdash.core.settings import Settings

Key = tuple[int, int, int, str]
"""Steps, topk, draft tokens (-1 where the engine has none) and the algorithm."""


@dataclass(frozen=True, slots=True)
class Change:
    """A ratio less one; ``clear`` is False where the two intervals overlap."""

    fraction: float
    clear: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """One measured cell beside what it is compared with."""

    cell: Cell
    against_reference: Change | None = None
    marginal: Change | None = None
    best: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Everything measured of one candidate. The newest cell of a concurrency counts."""

    key: Key
    settings: Settings
    entries: Mapping[int, Entry] = field(default_factory=dict)
    runs: int = 0
    running: bool = False
    failed: str = ""
    note: str = ""
    reference: bool = False

    @property
    def steps(self) -> int:
        return self.key[0]

    @property
    def accept_length(self) -> float | None:
        """Of the smallest concurrency that tells it."""
        for concurrency in sorted(self.entries):
            value = self.entries[concurrency].cell.accept_length
            if value is not None:
                return value
        return None


@dataclass(frozen=True, slots=True)
class Results:
    """The table, shallowest candidate first."""

    concurrencies: tuple[int, ...] = ()
    rows: tuple[Row, ...] = ()

    def index(self, key: Key | None) -> int | None:
        """Where a candidate's row is."""
        return next((i for i, row in enumerate(self.rows) if row.key == key), None)

    def curve(self, concurrency: int) -> list[tuple[int, float]]:
        """(steps, tok/s) of one concurrency; of several rows at one depth the fastest."""
        best: dict[int, float] = {}
        for row in self.rows:
            entry = row.entries.get(concurrency)
            if entry is not None and entry.cell.output_tok_s is not None:
                value = entry.cell.output_tok_s
                best[row.steps] = max(value, best.get(row.steps, 0.0))
        return sorted(best.items())


def key_of(settings: Settings) -> Key:
    """What tells one candidate from another."""
    if settings.enabled is False or settings.num_steps == 0:
        return (0, -1, -1, "")
    return (
        -1 if settings.num_steps is None else settings.num_steps,
        -1 if settings.eagle_topk is None else settings.eagle_topk,
        -1 if settings.num_draft_tokens is None else settings.num_draft_tokens,
        settings.algorithm or "",
    )


@dataclass(slots=True)
class _Group:
    settings: Settings
    cells: dict[int, Cell] = field(default_factory=dict)
    runs: int = 0
    running: bool = False
    failed: str = ""
    note: str = ""


def build(
    records: Sequence[CycleRecord],
    *,
    running: Settings | None = None,
    running_cells: Iterable[Cell] = (),
    reference: Key | None = None,
) -> Results:
    """The table of ``records`` (oldest first) and of the cycle that runs.

    ``reference`` names the row changes are shown against; by default k = 0 if it was measured,
    else the shallowest measured row.
    """
    groups: dict[Key, _Group] = {}

    def group(settings: Settings) -> _Group:
        return groups.setdefault(key_of(settings), _Group(settings))

    for record in records:
        if record.outcome in ("cancelled", "refused") and not record.cells:
            continue
        found = group(record.resolved or record.candidate)
        found.runs += 1
        found.note = record.note or found.note
        for cell in record.cells:
            _keep(found.cells, cell)
        failure = None if record.outcome == "cancelled" else record.failure
        found.failed = "" if failure is None else f"{failure.stage} failed: {failure.cause}"
    if running is not None:
        found = group(running)
        found.running = True
        found.failed = ""
        for cell in running_cells:
            _keep(found.cells, cell)

    ordered = sorted(groups.items())
    concurrencies = tuple(sorted({c for _, item in ordered for c in item.cells}))
    chosen = reference if reference in groups else _default_reference(ordered)
    base = groups[chosen].cells if chosen is not None else {}
    rows: list[Row] = []
    shallower: dict[int, tuple[int, Cell]] = {}
    for key, item in ordered:
        entries: dict[int, Entry] = {}
        for concurrency, cell in sorted(item.cells.items()):
            before = shallower.get(concurrency)
            entries[concurrency] = Entry(
                cell,
                None if key == chosen else compare(cell, base.get(concurrency)),
                compare(cell, before[1]) if before is not None and before[0] < key[0] else None,
            )
        for concurrency, cell in item.cells.items():
            before = shallower.get(concurrency)
            if cell.output_tok_s is not None and (
                before is None
                or before[0] < key[0]
                or (before[1].output_tok_s or 0.0) < cell.output_tok_s
            ):
                shallower[concurrency] = (key[0], cell)
        rows.append(
            Row(
                key,
                item.settings,
                entries,
                item.runs,
                item.running,
                item.failed,
                item.note,
                key == chosen,
            )
        )
    return Results(concurrencies, tuple(_mark_best(rows, concurrencies)))


def compare(cell: Cell, other: Cell | None) -> Change | None:
    """``cell`` against ``other`` by output tok/s; None where either has none."""
    if other is None or not other.output_tok_s or cell.output_tok_s is None:
        return None
    known = (
        cell.output_tok_s_low,
        cell.output_tok_s_high,
        other.output_tok_s_low,
        other.output_tok_s_high,
    )
    low, high, other_low, other_high = known
    apart = True
    if low is not None and high is not None and other_low is not None and other_high is not None:
        apart = low > other_high or high < other_low
    return Change(cell.output_tok_s / other.output_tok_s - 1.0, apart)


def _keep(cells: dict[int, Cell], cell: Cell) -> None:
    # A cell that measured nothing never hides one that did.
    if cell.output_tok_s is not None or cell.concurrency not in cells:
        cells[cell.concurrency] = cell


def _default_reference(ordered: Sequence[tuple[Key, _Group]]) -> Key | None:
    return next(
        (
            key
            for key, item in ordered
            if any(cell.output_tok_s is not None for cell in item.cells.values())
        ),
        None,
    )


def _mark_best(rows: Sequence[Row], concurrencies: Sequence[int]) -> list[Row]:
    out = [dict(row.entries) for row in rows]
    for concurrency in concurrencies:
        values = [
            (entry.cell.output_tok_s, index)
            for index, row in enumerate(rows)
            if (entry := row.entries.get(concurrency)) is not None
            and entry.cell.output_tok_s is not None
        ]
        if len(values) > 1:
            _, index = max(values)
            out[index][concurrency] = replace(out[index][concurrency], best=True)
    return [replace(row, entries=entries) for row, entries in zip(rows, out, strict=True)]
