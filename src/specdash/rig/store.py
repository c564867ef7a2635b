"""Where rigs, history, journals and backups live, by the XDG rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from specdash.rig.schema import Rig


@dataclass(frozen=True, slots=True)
class Places:
    """The directories of one user. Nothing is created by asking."""

    config: Path
    data: Path
    state: Path

    @property
    def rigs(self) -> Path:
        return self.config / "rigs"

    @property
    def themes(self) -> Path:
        return self.config / "themes"

    @property
    def history(self) -> Path:
        return self.data / "history.sqlite3"

    @property
    def journals(self) -> Path:
        return self.state / "journals"

    @property
    def backups(self) -> Path:
        return self.state / "backups"

    @property
    def locks(self) -> Path:
        return self.state / "locks"


def places(environ: Mapping[str, str]) -> Places:
    """The directories under ``$XDG_*_HOME``, or their defaults under ``$HOME``.

    A relative XDG path is ignored, as the specification says.
    """
    home = Path(environ.get("HOME") or Path.home())

    def base(variable: str, default: str) -> Path:
        value = environ.get(variable, "")
        return (Path(value) if value.startswith("/") else home / default) / "specdash"

    return Places(
        config=base("XDG_CONFIG_HOME", ".config"),
        data=base("XDG_DATA_HOME", ".local/share"),
        state=base("XDG_STATE_HOME", ".local/state"),
    )


def rig_files(directory: Path) -> list[Path]:
    """The rig files of a rigs directory, by name; empty where there is none."""
    return sorted(directory.glob("*.toml")) if directory.is_dir() else []


def find_rig(name: str, directory: Path) -> Path | None:
    """The file of a named rig, if it exists."""
    if "/" in name or name in ("", ".", ".."):
        return None
    path = directory / f"{name}.toml"
    return path if is_file(path) else None


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name no file can have (too long) is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def rig_to_json(rig: Rig) -> dict[str, Any]:
    """The rig as the plain tables of its file, without what is unset."""
    tables: dict[str, Any] = {
        "hosts": {
            name: _set_only(
                {k: v for k, v in asdict(host).items() if k != "name" and v is not False}
            )
            for name, host in rig.hosts.items()
        }
    }
    for table in ("service", "config", "engine", "gpus", "clean", "safety", "bench", "limits"):
        spec = getattr(rig, table)
        if spec is not None:
            tables[table] = _set_only(asdict(spec))
    return tables


def dump_rig(rig: Rig) -> str:
    """The rig as the text of a rig file."""
    return tomli_w.dumps(rig_to_json(rig))


def _set_only(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in body.items()
        if value is not None and value != ()
    }
