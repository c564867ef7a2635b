"""The log drawer's lines: bounded, filtered, followed or paused."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from specdash.core.events import CommandRan, Event, LogLine, Notice
from specdash.core.text import Safe, make_safe
from specdash.tui import fmt
from specdash.tui.paint import command, visible

MAX_LINES = 5000

Kind = Literal["service", "specdash", "command", "output", "notice"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the drawer."""

    t: float
    kind: Kind
    text: Safe
    bad: bool = False


def entries_of(event: Event) -> list[Entry]:
    """The lines an event adds to the log."""
    if isinstance(event, LogLine):
        return [Entry(event.t, event.source, event.text)]
    if isinstance(event, CommandRan):
        return _command(event)
    if isinstance(event, Notice):
        bad = event.level == "error"
        out = [Entry(event.t, "notice", make_safe(f"{event.level}: {event.message}"), bad)]
        if event.remedy:
            out.append(Entry(event.t, "output", event.remedy))
        out.extend(Entry(event.t, "output", item) for item in event.evidence)
        return out
    return []


def _command(event: CommandRan) -> list[Entry]:
    status = "link lost" if event.exit_status is None else f"exit {event.exit_status}"
    text = f"{visible(event.host)} $ {command(event.argv)}  [{status}, {fmt.took(event.seconds)}]"
    bad = event.exit_status != 0
    out = [Entry(event.t, "command", make_safe(text), bad)]
    if bad and event.output:
        out.append(Entry(event.t, "output", event.output, bad))
    return out


class LogBuffer:
    """The last :data:`MAX_LINES` lines and what part of them is on screen.

    ``paused`` holds the view still; ``unseen`` counts what came in meanwhile.
    """

    def __init__(self, limit: int = MAX_LINES) -> None:
        self._all: deque[Entry] = deque(maxlen=limit)
        self._shown: deque[Entry] = deque(maxlen=limit)
        self._filter = ""
        self._offset = 0
        self.unseen = 0

    @property
    def filter(self) -> str:
        return self._filter

    @property
    def paused(self) -> bool:
        return self._offset > 0

    @property
    def total(self) -> int:
        """Lines that pass the filter."""
        return len(self._shown)

    def add(self, entry: Entry) -> None:
        """Append one line; the oldest goes when the buffer is full."""
        self._all.append(entry)
        if not self._matches(entry):
            return
        full = len(self._shown) == self._shown.maxlen
        self._shown.append(entry)
        if self._offset:
            self.unseen += 1
            # Hold the same lines on screen while new ones arrive below them.
            self._offset = min(self._offset + (0 if full else 1), len(self._shown) - 1)

    def set_filter(self, text: str) -> None:
        """Show only lines that contain ``text``, whatever the case."""
        self._filter = text.strip().casefold()
        self._shown = deque(
            (entry for entry in self._all if self._matches(entry)), maxlen=self._all.maxlen
        )
        self.follow()

    def scroll(self, rows: int, height: int) -> None:
        """Move up (positive) or down; reaching the end follows again."""
        top = max(0, len(self._shown) - height)
        self._offset = max(0, min(top, self._offset + rows))
        if not self._offset:
            self.unseen = 0

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._offset = 0
        self.unseen = 0

    def window(self, height: int) -> list[Entry]:
        """The lines on screen, oldest first."""
        end = len(self._shown) - self._offset
        return list(islice(self._shown, max(0, end - height), max(0, end)))

    def text(self) -> str:
        """Everything that passes the filter, for a file."""
        return "".join(f"{fmt.time_of_day(entry.t)} {entry.text}\n" for entry in self._shown)

    def _matches(self, entry: Entry) -> bool:
        return not self._filter or self._filter in entry.text.casefold()
