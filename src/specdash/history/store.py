"""The SQLite store: one row a cycle with its whole document, and one a cell to query by hand."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from specdash.core.errors import WorkFailedError
from specdash.core.records import CycleRecord
from specdash.history.codec import cycle_from

_T = TypeVar("_T")
_VERSION = 1
_SCHEMA = """
CREATE TABLE cycles (
    id INTEGER PRIMARY KEY,
    rig TEXT NOT NULL,
    started_at REAL NOT NULL,
    simulated INTEGER NOT NULL,
    measure_only INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    num_steps INTEGER,
    document TEXT NOT NULL
);
CREATE INDEX cycles_by_rig ON cycles (rig, started_at);
CREATE TABLE cells (
    cycle_id INTEGER NOT NULL REFERENCES cycles (id) ON DELETE CASCADE,
    concurrency INTEGER NOT NULL,
    output_tok_s REAL,
    output_tok_s_low REAL,
    output_tok_s_high REAL,
    per_request_tok_s REAL,
    accept_length REAL,
    requests_ok INTEGER NOT NULL,
    requests_failed INTEGER NOT NULL,
    PRIMARY KEY (cycle_id, concurrency)
);
CREATE TABLE stages (
    cycle_id INTEGER NOT NULL REFERENCES cycles (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    seconds REAL,
    PRIMARY KEY (cycle_id, name)
);
"""


class HistoryError(WorkFailedError):
    """The history cannot be read or written; nothing measured is lost from the screen."""

    default_code = "history"


class History:
    """Cycles of all rigs in one file. Each call opens its own connection, in a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def add(self, record: CycleRecord) -> CycleRecord:
        """Store one cycle; returns it with its id. Raises HistoryError."""
        return await self._call(lambda connection: _insert(connection, record))

    async def of_rig(self, rig: str, *, limit: int = 500) -> tuple[CycleRecord, ...]:
        """The last cycles of one rig, oldest first. Raises HistoryError."""
        return await self._call(lambda connection: _select(connection, rig, limit))

    async def _call(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        def body() -> _T:
            with _connected(self._path) as connection:
                return work(connection)

        try:
            return await asyncio.to_thread(body)
        except (sqlite3.Error, OSError, ValueError, KeyError) as error:
            raise HistoryError(
                f"The history at {self._path} cannot be used: {error}.",
                remedy="Check its directory's rights and free space, or move the file away.",
            ) from error


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=10.0)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA journal_mode = WAL")
        _migrate(connection)
        with connection:
            yield connection
    finally:
        connection.close()


def _migrate(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == _VERSION:
        return
    if version > _VERSION:
        raise ValueError(f"it was written by a newer specdash (schema {version})")
    # Immediate, so that of two processes that start together only one creates the tables.
    connection.execute("BEGIN IMMEDIATE")
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _insert(connection: sqlite3.Connection, record: CycleRecord) -> CycleRecord:
    settings = record.resolved or record.candidate
    cursor = connection.execute(
        "INSERT INTO cycles (rig, started_at, simulated, measure_only, outcome, num_steps, document)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            record.rig,
            record.started_at,
            record.simulated,
            record.measure_only,
            record.outcome,
            settings.num_steps,
            json.dumps(record.to_json(), allow_nan=False),
        ),
    )
    cycle_id = cursor.lastrowid
    connection.executemany(
        "INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                cycle_id,
                cell.concurrency,
                cell.output_tok_s,
                cell.output_tok_s_low,
                cell.output_tok_s_high,
                cell.per_request_tok_s,
                cell.accept_length,
                cell.requests.ok,
                cell.requests.failed,
            )
            for cell in record.cells
        ],
    )
    connection.executemany(
        "INSERT INTO stages VALUES (?, ?, ?, ?)",
        [(cycle_id, stage.name, stage.state, stage.seconds) for stage in record.stages],
    )
    return replace(record, id=cycle_id)


def _select(connection: sqlite3.Connection, rig: str, limit: int) -> tuple[CycleRecord, ...]:
    rows = connection.execute(
        "SELECT id, document FROM cycles WHERE rig = ? ORDER BY id DESC LIMIT ?", (rig, limit)
    ).fetchall()
    return tuple(
        replace(cycle_from(json.loads(document)), id=row_id) for row_id, document in reversed(rows)
    )
