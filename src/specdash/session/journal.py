"""The journal of one session on disk: what was about to be done, before it was done."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from specdash.core.clock import Clock
from specdash.core.errors import WorkFailedError
from specdash.core.redact import Redactor


class FileJournal:
    """Appends JSON lines; each is flushed to the disk before :meth:`write` returns."""

    def __init__(self, directory: Path, rig: str, clock: Clock, redact: Redactor) -> None:
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(clock.wall()))
        self.path = directory / rig / f"{stamp}-{os.getpid()}.jsonl"
        self._clock = clock
        self._redact = redact

    async def write(self, kind: str, **data: object) -> None:
        """Append one entry. Raises WorkFailedError where it cannot be kept."""
        entry = {"t": self._clock.wall(), "kind": kind, **data}
        line = self._redact.text(json.dumps(entry, default=_plain, ensure_ascii=False))
        try:
            await asyncio.to_thread(self._append, line + "\n")
        except OSError as error:
            raise WorkFailedError(
                f"The journal {self.path} cannot be written: {error.strerror or error}.",
                remedy="Free space or mend the rights of its directory; nothing is done unrecorded.",
                code="journal",
            ) from error

    def _append(self, line: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def _plain(value: Any) -> object:
    to_json = getattr(value, "to_json", None)
    return to_json() if callable(to_json) else str(value)
