"""Backups of launch configs on the operator's machine: what a host held before it was changed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from pathlib import Path

from specdash.core.clock import Clock
from specdash.core.errors import WorkFailedError


class FileBackups:
    """One file a version; the same bytes of the same file are kept once."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock

    async def keep(self, host: str, path: str, data: bytes) -> str:
        """Keep ``data`` on the disk; returns where. Raises WorkFailedError where it cannot."""
        try:
            return await asyncio.to_thread(self._write, host, path, data)
        except OSError as error:
            raise WorkFailedError(
                f"No backup can be kept in {self._directory}: {error.strerror or error}.",
                remedy="Free space or mend its rights; no config is changed without a backup.",
                code="backup",
            ) from error

    def _write(self, host: str, path: str, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()[:12]
        name = f"{host}-{Path(path).name}-"
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        known = sorted(self._directory.glob(f"*-{digest}"))
        for old in known:
            if old.name.startswith(name) and old.read_bytes() == data:
                return str(old)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._clock.wall()))
        target = self._directory / f"{name}{stamp}-{digest}"
        # A launch config may hold an API key: nobody else reads its backups.
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return str(target)
