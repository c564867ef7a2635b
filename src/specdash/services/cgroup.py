"""Which processes are in a control group, from ``ps``. Pure; works for cgroup v1, v2 and both."""

from __future__ import annotations

import re

# ``12:cpu,cpuacct:/a,1:name=systemd:/a/b.service,0::/a/b.service`` on v1, ``0::/a/b`` on v2.
_ENTRY = re.compile(r"(?:^|,)\d+:[^:]*:(.*?)(?=,\d+:[^:]*:|$)")


def pids_in(listing: bytes, control_group: str) -> tuple[int, ...]:
    """Pids of ``ps -o pid=,cgroup=`` lines that are in ``control_group`` or below it.

    Empty where the group is not a service's own: the root or a slice would hold strangers.
    """
    if not control_group.startswith("/") or not control_group.endswith(".service"):
        return ()
    pids: list[int] = []
    for line in listing.decode("utf-8", "replace").splitlines():
        number, _, groups = line.strip().partition(" ")
        if not (number.isascii() and number.isdecimal()):
            continue
        paths = _ENTRY.findall(groups.strip())
        if any(path == control_group or path.startswith(control_group + "/") for path in paths):
            pids.append(int(number))
    return tuple(pids)
