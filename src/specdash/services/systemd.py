"""systemd: system units, and user units where asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from specdash.core.errors import UnreachableError, WorkFailedError
from specdash.core.service import ServiceStatus
from specdash.hosts.protocol import CommandFailedError, Completed, Host, LinkLostError
from specdash.services.cgroup import pids_in
from specdash.services.journal import lines_of
from specdash.services.names import unit_name
from specdash.services.protocol import Argv
from specdash.services.show import PROPERTIES, parse_show, status_of

_QUERY_S = 15.0
_ACT_S = 30.0
_VERIFY_S = 30.0
_NOT_FOUND = 127

# Arguments: the unit's name. Stdin: the proposed file. Exit 0 with "unchecked" where there is
# nothing to check with.
_VERIFY_SCRIPT = """\
command -v systemd-analyze >/dev/null 2>&1 || { echo unchecked; exit 0; }
dir=$(mktemp -d) || exit 125
trap 'rm -rf "$dir"' EXIT
trap 'exit 124' HUP INT TERM
cat > "$dir/$1" || exit 125
systemd-analyze verify "$dir/$1" 2>&1
"""


class Systemd:
    """One service unit on one host, behind :class:`~specdash.services.protocol.Service`.

    Stop and start only put the job in the queue; the caller polls ``status``.
    """

    def __init__(self, host: Host, unit: str, user: bool = False) -> None:
        """Raises UsageError where ``unit`` cannot be a service unit."""
        self._host = host
        self._unit = unit_name(unit)
        self._user = ("--user",) if user else ()

    @property
    def unit(self) -> str:
        return self._unit

    @property
    def host_name(self) -> str:
        return self._host.name

    def show_argv(self) -> Argv:
        return self._systemctl(
            "show", self._unit, "--no-pager", f"--property={','.join(PROPERTIES)}"
        )

    def stop_argv(self) -> Argv:
        return self._systemctl("stop", "--no-block", self._unit)

    def start_argv(self) -> Argv:
        return self._systemctl("start", "--no-block", self._unit)

    def reset_argv(self) -> Argv:
        return self._systemctl("reset-failed", self._unit)

    def reload_argv(self) -> Argv:
        return self._systemctl("daemon-reload")

    async def status(self) -> ServiceStatus:
        """One ``systemctl show``. Raises WorkFailedError where systemd does not answer."""
        completed = await self._host.run(self.show_argv(), timeout_s=_QUERY_S)
        values = parse_show(completed.stdout)
        if not completed.ok or "LoadState" not in values:
            raise self._no_answer(completed)
        return status_of(self._unit, values)

    async def stop(self) -> Completed:
        return await self._host.run(self.stop_argv(), timeout_s=_ACT_S)

    async def start(self) -> Completed:
        """A failed unit may have met its start limit, and is reset first."""
        if (await self.status()).state == "failed":
            await self._host.run(self.reset_argv(), timeout_s=_ACT_S)
        return await self._host.run(self.start_argv(), timeout_s=_ACT_S)

    async def reload(self) -> Completed:
        return await self._host.run(self.reload_argv(), timeout_s=_ACT_S)

    async def control_group_pids(self, status: ServiceStatus) -> tuple[int, ...]:
        if not status.control_group:
            return ()
        listing = await self._host.run(
            ("env", "LC_ALL=C", "ps", "-ww", "-e", "-o", "pid=,cgroup="), timeout_s=_QUERY_S
        )
        if not listing.ok:
            raise CommandFailedError(
                listing,
                f"The processes of {self._unit} cannot be listed on {self._host.name}.",
                remedy="Install procps (ps) there.",
            )
        return pids_in(listing.stdout, status.control_group)

    async def recent_log(self, *, invocation: str = "", lines: int = 200) -> list[bytes]:
        argv = self._journalctl("-n", str(lines), *self._matches(invocation))
        completed = await self._host.run(argv, timeout_s=_QUERY_S)
        # Newer journalctl exits 1, silently, where nothing matches.
        if not completed.ok and (completed.exit_status != 1 or completed.stderr.strip()):
            raise CommandFailedError(
                completed,
                f"The journal of {self._unit} cannot be read on {self._host.name}.",
                remedy="Log in as root, or as a member of the group systemd-journal.",
            )
        found = [
            line
            for record in completed.stdout.split(b"\n")
            for line in lines_of(record.rstrip(b"\r"))
        ]
        return found[-lines:]

    def follow_log(self) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._follow()

    async def check_config(self, path: str, data: bytes) -> str:
        """``systemd-analyze verify`` on a copy; "" too where it cannot be checked.

        Only unit files can be verified by themselves; drop-ins and env files cannot.
        """
        name = path.rsplit("/", 1)[-1]
        if not name.endswith(".service"):
            return ""
        completed = await self._host.run(
            ("sh", "-c", _VERIFY_SCRIPT, "sh", self._unit), timeout_s=_VERIFY_S, stdin=data
        )
        if completed.ok or completed.exit_status == _NOT_FOUND:
            return ""
        if completed.exit_status is None or completed.timed_out:
            raise CommandFailedError(
                completed, f"The new {name} could not be verified on {self._host.name}."
            )
        return self._complaints(completed)

    def _complaints(self, completed: Completed) -> str:
        """Lines on our file; verify also speaks of other units that it happens to load."""
        lines = (
            (completed.stdout + b"\n" + completed.stderr).decode("utf-8", "replace").splitlines()
        )
        ours = [line.strip() for line in lines if self._unit in line]
        return "\n".join(dict.fromkeys(ours))

    @asynccontextmanager
    async def _follow(self) -> AsyncIterator[AsyncIterator[bytes]]:
        # --since: with "-n 0" alone, journalctl (252) misses the first lines of a unit that the
        # journal does not know yet. "now" is the host's own clock.
        argv = self._journalctl("-f", "-n", "0", "--since=now", *self._matches(""))
        async with self._host.lines(argv) as records:
            yield _messages(records)

    def _matches(self, invocation: str) -> tuple[str, ...]:
        if not invocation:
            return ("-u", self._unit)
        # The second term has systemd's own lines on this start (exit status, OOM kill).
        prefix = "USER_" if self._user else ""
        return (
            f"_SYSTEMD_INVOCATION_ID={invocation}",
            "+",
            f"{prefix}INVOCATION_ID={invocation}",
        )

    def _systemctl(self, *arguments: str) -> Argv:
        return ("systemctl", *self._user, *arguments)

    def _journalctl(self, *arguments: str) -> Argv:
        # --all: without it a message over 4096 bytes becomes null.
        return (
            "journalctl",
            *self._user,
            "--no-pager",
            "--all",
            "-o",
            "json",
            "--output-fields=MESSAGE",
            *arguments,
        )

    def _no_answer(self, completed: Completed) -> WorkFailedError | UnreachableError:
        where = self._host.name
        if completed.exit_status is None and not completed.timed_out:
            return LinkLostError(f"The link to {where} was lost while systemd was asked.")
        text = (completed.stdout + completed.stderr).decode("utf-8", "replace")
        for words, message, remedy in _NO_ANSWER:
            if words in text if words else completed.exit_status == _NOT_FOUND:
                return CommandFailedError(completed, message.format(where=where), remedy=remedy)
        return CommandFailedError(
            completed,
            f"systemctl on {where} does not say what {self._unit} does.",
            remedy="Run the command by hand and read what it says.",
        )


# What systemctl says where it cannot answer (systemd 252); "" stands for a missing program.
_NO_ANSWER = (
    (
        "has not been booted with systemd",
        "{where} does not run systemd.",
        "Name the host or container whose systemd supervises the engine.",
    ),
    (
        "No medium found",
        "There is no systemd user session on {where}.",
        "Run loginctl enable-linger for that user, or set XDG_RUNTIME_DIR at login.",
    ),
    (
        "Failed to connect to bus",
        "systemd on {where} cannot be reached over its bus.",
        "Log in as root, or as the user who owns the unit.",
    ),
    (
        "",
        "There is no systemctl on {where}.",
        "Name the host or container whose systemd supervises the engine.",
    ),
)


async def _messages(records: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for record in records:
        for line in lines_of(record):
            yield line
