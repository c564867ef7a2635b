"""One cycle at a time on a rig, whoever starts it and from wherever.

The lock lives on the host of the launch config, beside it, held by a process that ends with the
connection: no lock outlives the specdash that took it.
"""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from specdash.core.clock import Clock
from specdash.core.errors import RefusedError, WorkFailedError
from specdash.hosts.protocol import Host

_SCRIPT = r"""
lock=$1
owner=$2
if command -v flock >/dev/null 2>&1; then
    # In a subshell first: a redirection that fails would end some shells at once.
    if ! ( : >>"$lock" ) 2>/dev/null; then echo denied; exit 0; fi
    exec 9>>"$lock"
    if ! flock -n 9; then echo busy; cat "$lock"; exit 0; fi
    # The last holder may have removed the file between our opening and our locking it.
    if ! [ "/dev/fd/9" -ef "$lock" ]; then echo busy; echo "$owner"; exit 0; fi
    printf '%s\n' "$owner" > "$lock"
else
    if ! (set -C; printf '%s\n' "$owner" > "$lock") 2>/dev/null; then
        if [ -e "$lock" ]; then echo busy; cat "$lock"; else echo denied; fi
        exit 0
    fi
fi
nap=
release() {
    trap '' HUP INT TERM EXIT
    [ -z "$nap" ] || kill "$nap" 2>/dev/null
    # A directory that is read-only for a moment must not keep a lock that nobody holds.
    for again in 1 2 3 4; do rm -f "$lock" 2>/dev/null && break; sleep 1; done
    exit 0
}
trap release HUP INT TERM EXIT
echo held
# Without the lock's descriptor: a nap that outlives us must not hold what rm could not remove.
while :; do sleep 600 9>&- & nap=$!; wait "$nap"; done
"""


_OWN_LOCK_S = 5.0
_RETRY_S = 0.1


class LockedError(RefusedError):
    """Somebody else's cycle runs on this rig."""

    default_code = "locked"


def lock_path(config_path: str) -> str:
    """Where the lock of a launch config lives."""
    folder, name = posixpath.split(config_path)
    return posixpath.join(folder, f".{name}.specdash-lock")


@asynccontextmanager
async def rig_lock(
    host: Host, config_path: str, owner: str, *, writes: bool, clock: Clock
) -> AsyncIterator[None]:
    """Hold the rig's lock.

    ``writes``: the cycle will change the config, so it must be able to write beside it; one that
    only measures goes on without the lock where it may not take it. Raises LockedError naming
    who holds it, and WorkFailedError where the right to write is missing.
    """
    path = lock_path(config_path)
    ends = clock.now() + _OWN_LOCK_S
    while True:
        async with host.lines(["sh", "-c", _SCRIPT, "sh", path, owner]) as lines:
            said = await anext(lines, b"")
            if said == b"held":
                yield
                return
            holder = (await anext(lines, b"")).decode("utf-8", "replace")
        if said != b"busy":
            break
        # Our own last cycle's lock goes when its process has ended on the host: a moment.
        if holder != owner or clock.now() >= ends:
            raise LockedError(
                f"The rig is in use: {holder or 'somebody'} holds the lock.",
                remedy=f"Wait for it, or ask them. The lock is {path} on {host.name}.",
            )
        await clock.sleep(_RETRY_S)
    if writes:
        raise WorkFailedError(
            f"Nothing can be written beside {config_path} on {host.name}.",
            remedy="The login needs that right (root, or sudo = true for the host), and the"
            " file system must not be read-only.",
            code="config-denied",
        )
    yield
