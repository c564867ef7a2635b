"""A launch config on this machine with the files it leads to, and what was taken out of it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specdash.cli.localfile import FileFailedError, LocalFile, backup_folder, backups_of, read_file
from specdash.core.errors import SpecdashError
from specdash.core.settings import OFF
from specdash.launch.editing import edit_config
from specdash.launch.errors import NothingToRestoreError
from specdash.launch.follow import parse_all
from specdash.launch.knobs import KnobTable
from specdash.launch.reading import Reading, read_config
from specdash.launch.removal import Removed
from specdash.launch.source import decode
from specdash.rig.store import Places

_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """The file that was named, and those it leads to by the path as it is written there."""

    main: LocalFile
    linked: Mapping[str, LocalFile]
    others: Mapping[str, bytes]
    unread: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def file(self, path: str) -> LocalFile:
        """The local file behind a path of an edit."""
        return self.linked.get(path, self.main)


def read_with_linked(given: str, anchors: list[str]) -> ConfigFiles:
    """Read a file, and then what it leads to, as far as that is text on this machine."""
    main = read_file(given)
    linked: dict[str, LocalFile] = {}
    others: dict[str, bytes] = {}
    source = decode(given, main.data)
    unread: dict[str, None] = {}
    for _ in range(_ROUNDS):
        parsed = parse_all(source, anchors, others)
        new = [r for r in parsed.references if r.path not in others and r.path != given]
        if not new:
            break
        progress = False
        for reference in new:
            try:
                file = read_file(_located(reference.path, main.real))
                decode(reference.path, file.data)
            except SpecdashError:
                # Not here or no text. An optional environment file that is absent is empty.
                if reference.optional and not _exists(reference.path, main.real):
                    others[reference.path] = b""
                    progress = True
                else:
                    unread[reference.path] = None
                continue
            linked[reference.path] = file
            others[reference.path] = file.data
            progress = True
        if not progress:
            break
    return ConfigFiles(main, linked, others, tuple(unread), tuple(_drop_ins(main.real)))


def _located(path: str, beside: Path) -> str:
    return str(beside.parent / path)


def _exists(path: str, beside: Path) -> bool:
    return os.path.lexists(_located(path, beside))


def _drop_ins(real: Path) -> list[str]:
    """Drop-ins beside a unit that may overrule what it says."""
    warnings: list[str] = []
    folder = real.with_name(real.name + ".d")
    for path in sorted(folder.glob("*.conf")) if folder.is_dir() else ():
        try:
            data = read_file(str(path)).data
        except FileFailedError:
            continue
        keys = [key for key in ("ExecStart", "Environment") if f"\n{key}".encode() in b"\n" + data]
        if keys:
            warnings.append(
                f"{path} sets {' and '.join(keys)} and overrules this unit; what counts may be"
                " there."
            )
    return warnings


# -- what was taken out ----------------------------------------------------------------------


def removed_path(places: Places, real: Path) -> Path:
    """Where the flags that were taken out of a file are kept."""
    return places.state / "removed" / f"{backup_folder(Path(), real).name}.json"


def _record(places: Places, files: ConfigFiles) -> dict[str, object] | None:
    try:
        body = json.loads(removed_path(places, files.main.real).read_bytes())
    except (OSError, ValueError):
        return None
    return body if isinstance(body, dict) else None


def recorded_engine(places: Places, files: ConfigFiles) -> str | None:
    """The engine whose flags were taken out of the file, if any were."""
    body = _record(places, files)
    return None if body is None else str(body.get("engine"))


def removed_from(
    places: Places, files: ConfigFiles, knobs: KnobTable, service: str | None
) -> Removed | None:
    """What turning speculation off took out of the file: from the state kept, else a backup."""
    body = _record(places, files)
    if body is not None:
        return Removed.from_json(body)
    text = decode(files.main.given, files.main.data).text
    for backup in backups_of(places.backups, files.main.real):
        try:
            data = read_file(str(backup)).data
            before = read_config(
                files.main.given, data, knobs, service=service, others=files.others
            )
            removed = edit_config(before, OFF).removed
            if removed is not None:
                removed.restore(text)
                return removed
        except (SpecdashError, NothingToRestoreError):
            continue
    return None


def read_settings(
    files: ConfigFiles, knobs: KnobTable, service: str | None, *, known_off: bool
) -> Reading:
    """The reading of the file with everything it leads to."""
    return read_config(
        files.main.given,
        files.main.data,
        knobs,
        service=service,
        others=files.others,
        known_off=known_off,
    )
