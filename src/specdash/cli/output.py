"""Where a verb's words go: one JSON document on stdout, everything else on stderr."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from typing import TextIO

from specdash.core.errors import SpecdashError
from specdash.core.events import Event, event_json
from specdash.core.text import make_safe


class Out:
    """Output of one headless verb.

    With ``json`` exactly one document reaches stdout; with ``jsonl`` a line an event. Without
    either, :meth:`result` text goes to stdout for people.
    """

    def __init__(
        self,
        *,
        json_document: bool = False,
        jsonl: bool = False,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        self.json = json_document
        self.jsonl = jsonl
        self._stdout = stdout or sys.stdout
        self._stderr = stderr or sys.stderr
        self._printed = False
        self._live_width = 0

    @property
    def is_terminal(self) -> bool:
        """Whether a person can be asked: stdin and stderr are terminals."""
        return sys.stdin is not None and sys.stdin.isatty() and self._stderr.isatty()

    def document(self, body: Mapping[str, object]) -> None:
        """The one JSON document; does nothing without ``--json`` or when one was printed."""
        if self.json and not self._printed:
            self._printed = True
            self._write(json.dumps(body, ensure_ascii=False, allow_nan=False, indent=2))

    def event(self, event: Event) -> None:
        """One line of ``--jsonl``."""
        if self.jsonl:
            self._write(json.dumps(event_json(event), ensure_ascii=False, allow_nan=False))

    def line(self, body: Mapping[str, object]) -> None:
        """One line of ``--jsonl`` that is no event of the stream."""
        if self.jsonl:
            self._write(json.dumps(body, ensure_ascii=False, allow_nan=False))

    def result(self, text: str) -> None:
        """The result for people, on stdout; nothing where a machine reads."""
        if not self.json and not self.jsonl:
            self._write(make_safe(text, keep_newlines=True, limit=10_000_000))

    @property
    def can_redraw(self) -> bool:
        """Whether :meth:`live` shows anything: stderr is a terminal."""
        return self._stderr.isatty()

    def live(self, text: str) -> None:
        """Replace the one moving line at the bottom of a terminal's stderr."""
        if not self.can_redraw:
            return
        line = make_safe(text)[: max(shutil.get_terminal_size().columns - 1, 20)]
        self._stderr.write("\r" + line.ljust(self._live_width))
        self._stderr.flush()
        self._live_width = len(line)

    def say(self, text: str) -> None:
        """Progress and messages, on stderr."""
        self._clear_live()
        self._stderr.write(make_safe(text, keep_newlines=True) + "\n")
        self._stderr.flush()

    def error(self, error: SpecdashError, body: Mapping[str, object] | None = None) -> None:
        """Say what failed and what to do; with ``--json`` the document carries ``error``."""
        self.say(f"specdash: {error.message}")
        for item in error.evidence:
            self.say(f"  | {item}")
        if error.remedy:
            self.say(f"  {error.remedy}")
        self.document({**(body or {}), "error": error.to_json()})
        if self.jsonl:
            self.line({"event": "error", "error": error.to_json()})

    def _clear_live(self) -> None:
        if self._live_width:
            self._stderr.write("\r" + " " * self._live_width + "\r")
            self._stderr.flush()
            self._live_width = 0

    def _write(self, text: str) -> None:
        self._clear_live()
        self._stdout.write(text + "\n")
        self._stdout.flush()
