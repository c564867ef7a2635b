"""One moment of the cockpit as the panes see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from specdash.core.settings import Settings
from specdash.session.port import CandidateCheck, EngineWords
from specdash.tui.editor import Editor
from specdash.tui.state import View
from specdash.tui.table import Results, Row


@dataclass(frozen=True, slots=True)
class Frame:
    """What is drawn: the view, what is typed, and what was derived from both.

    ``now`` is wall seconds, ``cursor`` a row of the results, ``column`` a concurrency of them.
    """

    view: View
    editor: Editor
    check: CandidateCheck
    words: EngineWords
    results: Results = field(default_factory=Results)
    cursor: int = 0
    column: int = 0
    now: float = 0.0

    @property
    def row(self) -> Row | None:
        """The results row under the cursor."""
        rows = self.results.rows
        return rows[self.cursor] if 0 <= self.cursor < len(rows) else None

    @property
    def concurrency(self) -> int | None:
        """The concurrency under the cursor."""
        columns = self.results.concurrencies
        return columns[self.column] if 0 <= self.column < len(columns) else None

    @property
    def base(self) -> Settings | None:
        """What the candidate is compared with: what starts now, what runs, or what the config says."""
        return self.view.starting or self.view.now or self.view.config
