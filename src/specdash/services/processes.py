"""Processes of a host: list them, signal one that is still the same, and who has a port."""

from __future__ import annotations

import re
from typing import Literal

from specdash.core.errors import UsageError, WorkFailedError
from specdash.core.service import Process
from specdash.hosts.protocol import CommandFailedError, Completed, Host, LinkLostError
from specdash.services.ps import COLUMNS, acceptable_starts, parse_processes

SignalName = Literal["TERM", "KILL", "INT"]

_QUERY_S = 15.0
_NOT_FOUND = 127
_OTHER_PROCESS = 3
_SIGNALS = ("TERM", "KILL", "INT")

PS_ARGV = ("env", "LC_ALL=C", "ps", "-ww", "-e", "-o", COLUMNS)

# Arguments: pid, signal, and the start times, with single blanks, that make it the same process.
# kill is the program, reached through env, not the shell's own.
_SIGNAL_SCRIPT = """\
pid=$1
signal=$2
shift 2
now=$(env LC_ALL=C ps -o lstart= -p "$pid") || exit 3
set -f
now=$(printf '%s ' $now)
now=${now% }
for started do
  [ "$now" = "$started" ] && exec env kill -s "$signal" "$pid"
done
exit 3
"""

# Arguments: the port, in decimal and as four hexadecimal digits. A listener that fuser may not
# see (another user's, another pid namespace's) still stands in the kernel's tables; only the
# lines of this one port are read from them.
_LISTENING_SCRIPT = """\
if fuser -n tcp "$1" >/dev/null 2>&1; then echo open; exit 0; fi
if grep -qi "^ *[0-9]*: [0-9A-F]*:$2 [0-9A-F]*:0000 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null
then echo open; exit 0; fi
if [ -r /proc/net/tcp ]; then echo closed; exit 0; fi
exit 4
"""


async def list_processes(host: Host) -> list[Process]:
    """All processes the host lets us see, the listing ``ps`` itself included.

    Raises WorkFailedError where there is no procps.
    """
    completed = await host.run(PS_ARGV, timeout_s=_QUERY_S)
    rows = parse_processes(host.name, completed.stdout)
    if rows and completed.ok:
        return rows
    _raise_if_lost(completed, f"the processes of {host.name} were listed")
    if completed.exit_status == _NOT_FOUND:
        raise CommandFailedError(
            completed, f"There is no ps on {host.name}.", remedy="Install procps there."
        )
    raise CommandFailedError(
        completed,
        f"The processes of {host.name} cannot be listed.",
        remedy="specdash needs procps' ps; that of busybox cannot tell when a process started.",
    )


def signal_argv(pid: str, signal_name: str, *started: str) -> tuple[str, ...]:
    """The command that signals a process if it began at one of the times ``started``."""
    return ("sh", "-c", _SIGNAL_SCRIPT, "signal-if-same", pid, signal_name, *started)


async def signal_process(host: Host, process: Process, signal_name: SignalName) -> bool:
    """Send a signal to exactly this process.

    Its start time is looked at again on the host right before. False where it is gone or the
    pid belongs to another process now. Raises WorkFailedError where the signal is not allowed.
    """
    if signal_name not in _SIGNALS:
        raise UsageError(f"{signal_name!r} is no signal that specdash sends.")
    if process.pid <= 1:
        raise UsageError(f"Process {process.pid} is never signalled.", code="protected-process")
    argv = signal_argv(str(process.pid), signal_name, *acceptable_starts(process.started))
    completed = await host.run(argv, timeout_s=_QUERY_S)
    if completed.ok:
        return True
    if completed.exit_status == _OTHER_PROCESS:
        return False
    _raise_if_lost(completed, f"process {process.pid} on {host.name} was signalled")
    if b"No such process" in completed.stderr + completed.stdout:
        return False
    remedy = (
        "Install procps (the program kill) there."
        if completed.exit_status == _NOT_FOUND
        else "Log in as its owner or as root, or set sudo = true for the host."
    )
    raise CommandFailedError(
        completed,
        f"Process {process.pid} of {process.user} on {host.name} could not be sent "
        f"SIG{signal_name}.",
        remedy=remedy,
    )


async def listening(host: Host, port: int) -> bool:
    """Whether something listens on a TCP port, as seen on the host.

    Raises WorkFailedError where the host has no way to tell.
    """
    _check_port(port)
    completed = await host.run(
        ("sh", "-c", _LISTENING_SCRIPT, "sh", str(port), f"{port:04X}"), timeout_s=_QUERY_S
    )
    # Only the last line counts: a login shell may print before it.
    words = completed.stdout.split()
    if completed.ok and words and words[-1] in (b"open", b"closed"):
        return words[-1] == b"open"
    _raise_if_lost(completed, f"port {port} on {host.name} was looked at")
    raise CommandFailedError(
        completed,
        f"It cannot be told on {host.name} whether port {port} is open.",
        remedy="Install psmisc (fuser), or mount /proc there.",
    )


async def port_holders(host: Host, port: int) -> tuple[int, ...]:
    """Pids with the TCP port open, as far as ``fuser`` may see; () where it sees none."""
    _check_port(port)
    completed = await host.run(("fuser", "-n", "tcp", str(port)), timeout_s=_QUERY_S)
    # fuser prints the pids to stdout and the port to stderr; where both are merged it comes first.
    text = re.sub(rb"\d+/tcp:", b" ", completed.stdout)
    return tuple(int(word) for word in text.split() if word.isdigit()) if completed.ok else ()


def _check_port(port: int) -> None:
    if not 1 <= port <= 65535:
        raise UsageError(f"{port} is no TCP port.", remedy="A port is a number from 1 to 65535.")


def _raise_if_lost(completed: Completed, what: str) -> None:
    if completed.timed_out:
        raise WorkFailedError(
            f"No answer within {_QUERY_S:g} s while {what}.",
            remedy="The host may be overloaded; try again.",
            code="no-answer",
        )
    if completed.exit_status is None:
        raise LinkLostError(f"The link was lost while {what}.")
