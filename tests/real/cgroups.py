"""A control group of one's own for a machine, where no systemd out here makes one.

systemd-nspawn then works in the group it was started in and calls its children ``payload`` and
``supervisor``. Two machines in one group would share their services' groups, and one could stop
the other's processes; so each gets a group with a name of its own.
"""

from __future__ import annotations

import time
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")


def enter(name: str) -> None:
    """Move this process into a new group ``name`` of each hierarchy that systemd uses."""
    for hierarchy in _hierarchies():
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        (group / "cgroup.procs").write_text("0")


def remove(name: str, *, patience_s: float = 2.0) -> None:
    """Remove the groups ``name`` with all below them, once their processes are gone."""
    end = time.monotonic() + patience_s
    for hierarchy in _hierarchies():
        group = hierarchy / name
        while group.is_dir() and not _remove_tree(group) and time.monotonic() < end:
            time.sleep(0.02)


def _remove_tree(group: Path) -> bool:
    folders = sorted(
        (path for path in group.rglob("*") if path.is_dir()),
        key=lambda path: len(path.parts),
        reverse=True,
    )
    try:
        for folder in [*folders, group]:
            folder.rmdir()
    except OSError:  # a process in it is still being reaped
        return False
    return True


def _hierarchies() -> list[Path]:
    """Mount points of cgroup v2 and of the v1 hierarchy named systemd; none under systemd."""
    if Path("/run/systemd/system").is_dir():
        return []
    found = []
    for line in MOUNTS.read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options.split(",")):
            found.append(Path(place))
    return found
