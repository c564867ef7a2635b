"""The removed speculation flags of a rig, kept so that they can be put back byte for byte."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from specdash.core.errors import WorkFailedError


class FileFlagMemory:
    """One small JSON file a rig."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Mapping[str, object] | None:
        """What was removed last, or None. Raises WorkFailedError where the file is damaged."""
        try:
            body = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise WorkFailedError(
                f"The removed flags at {self._path} cannot be read: {error}.",
                remedy="Turn speculation on in the launch config by hand and remove that file.",
                code="flag-memory",
            ) from error
        return cast("Mapping[str, object]", body) if isinstance(body, dict) else None

    def save(self, removed: Mapping[str, object]) -> None:
        """Keep ``removed`` in place of what was kept before."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = self._path.with_suffix(".new")
        # What stood around the flags may hold a key.
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(removed, file)
        fresh.replace(self._path)
