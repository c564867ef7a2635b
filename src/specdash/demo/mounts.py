"""A config directory that cannot be written: read-only, or on a full disk.

Only where the box has mounts of its own; elsewhere read-only is a matter of permissions (which
root does not feel) and a full disk cannot be had.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path


class ConfigMount:
    """Switches one directory between ``""`` (as it is), ``"read-only"`` and ``"full"``."""

    def __init__(self, directory: Path, *, own_mounts: bool) -> None:
        self._directory = directory
        self._own_mounts = own_mounts
        self._state = ""

    def set(self, state: str) -> None:
        """Change the directory's state; nothing where it is so already."""
        if state == self._state:
            return
        if self._state:
            self._undo()
        self._state = state
        if state == "read-only":
            self._read_only()
        elif state == "full":
            self._full()

    def _read_only(self) -> None:
        if self._own_mounts:
            path = str(self._directory)
            _run("mount", "--bind", path, path)
            _run("mount", "-o", "remount,bind,ro", path)
        else:
            self._directory.chmod(0o555)

    def _full(self) -> None:
        if not self._own_mounts:
            return
        kept = self._directory.with_name("kept")
        shutil.copytree(self._directory, kept, copy_function=shutil.copy2)
        _run("mount", "-t", "tmpfs", "-o", "size=64k", "none", str(self._directory))
        shutil.copytree(kept, self._directory, dirs_exist_ok=True, copy_function=shutil.copy2)
        shutil.rmtree(kept)
        filler = self._directory / ".filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)

    def _undo(self) -> None:
        if self._own_mounts:
            _run("umount", str(self._directory))
        elif self._state == "read-only":
            self._directory.chmod(0o755)


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)
