"""Where a verb's words go: one JSON document on stdout, everything else on stderr."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TextIO

from specdash.core.errors import SpecdashError
from specdash.core.events import Event, event_json
from specdash.core.text import make_safe

# What JSON may hold as it is but a terminal would act on: C1 controls and directions.
_ACTIVE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BEYOND_ASCII = re.compile("[^\x00-\x7f]")


def json_text(body: Mapping[str, object], *, indent: int | None = None, ascii_only: bool) -> str:
    """JSON that any reader of UTF-8 (or ASCII) takes and that no terminal acts on.

    Half characters (bytes of a file name or argument that are no text) become U+FFFD.
    """
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, indent=indent)
    text = _SURROGATE.sub("\ufffd", text)
    return (_BEYOND_ASCII if ascii_only else _ACTIVE).sub(lambda m: json.dumps(m[0])[1:-1], text)


class Out:
    """Output of one headless verb.

    With ``json`` exactly one document reaches stdout; with ``jsonl`` a line an event. Without
    either, :meth:`result` text goes to stdout for people. Where stdout or stderr takes nothing
    any more, the work goes on: see :attr:`trouble`.
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
        self.trouble: OSError | None = None
        """Why stdout takes nothing any more (its reader left, the disk is full), or None."""

    @property
    def is_terminal(self) -> bool:
        """Whether a person can be asked: stdin and stderr are terminals."""
        return sys.stdin is not None and sys.stdin.isatty() and self._stderr.isatty()

    def document(self, body: Mapping[str, object]) -> None:
        """The one JSON document; does nothing without ``--json`` or when one was printed."""
        if self.json and not self._printed:
            self._printed = True
            self._write(self._json(body, indent=2))

    def event(self, event: Event) -> None:
        """One line of ``--jsonl``."""
        if self.jsonl:
            self._write(self._json(event_json(event)))

    def line(self, body: Mapping[str, object]) -> None:
        """One line of ``--jsonl`` that is no event of the stream."""
        if self.jsonl:
            self._write(self._json(body))

    def result(self, text: str) -> None:
        """The result for people, on stdout; nothing where a machine reads."""
        if not self.json and not self.jsonl:
            self._write(make_safe(text, keep_newlines=True, limit=10_000_000))

    def page(self, text: str) -> None:
        """Help, the version: what is asked for instead of work, on stdout in every mode."""
        self._write(text.rstrip("\n"))

    @property
    def can_redraw(self) -> bool:
        """Whether :meth:`live` shows anything: stderr is a terminal."""
        return self._stderr.isatty()

    def live(self, text: str) -> None:
        """Replace the one moving line at the bottom of a terminal's stderr."""
        if not self.can_redraw:
            return
        line = make_safe(text)[: max(shutil.get_terminal_size().columns - 1, 20)]
        self._tell("\r" + line.ljust(self._live_width))
        self._live_width = len(line)

    def say(self, text: str) -> None:
        """Progress and messages, on stderr."""
        self._clear_live()
        self._tell(make_safe(text, keep_newlines=True) + "\n")

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
            self._tell("\r" + " " * self._live_width + "\r")
            self._live_width = 0

    def _tell(self, text: str) -> None:
        # Nobody may be listening any more; that must not end the work.
        with suppress(OSError):
            self._stderr.write(text)
            self._stderr.flush()

    def _json(self, body: Mapping[str, object], *, indent: int | None = None) -> str:
        encoding = getattr(self._stdout, "encoding", None) or "utf-8"
        ascii_only = encoding.lower().replace("_", "-") not in ("utf-8", "utf8")
        return json_text(body, indent=indent, ascii_only=ascii_only)

    def _write(self, text: str) -> None:
        if self.trouble is not None:
            return
        self._clear_live()
        try:
            self._stdout.write(text + "\n")
            self._stdout.flush()
        except OSError as error:
            self.trouble = error
