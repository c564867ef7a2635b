"""Hosts inside hosts: a container that is entered from the machine it runs on."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from specdash.core.errors import UnreachableError, UsageError
from specdash.hosts.channel import Channel
from specdash.hosts.protocol import Tunnel
from specdash.hosts.running import NotStartedError, OnCommand, ShellHost


@dataclass(frozen=True, slots=True)
class Door:
    """How containers of one kind are entered. ``prefix`` takes the place of {} by the name.

    ``complaints``: what the tool prints when it cannot, with the reason in our words.
    """

    prefix: tuple[str, ...]
    name: re.Pattern[str]
    complaints: tuple[tuple[bytes, str], ...]


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,200}")

# pct exec passes argv through to lxc-attach without a shell (pve-container, PVE/CLI/pct.pm);
# so do docker exec and lxc-attach themselves. -i keeps stdin open, without a terminal.
DOORS: dict[str, Door] = {
    "pct": Door(
        ("pct", "exec", "{}", "--"),
        re.compile(r"[1-9][0-9]{0,8}"),
        (
            (b"not running", "the container is not running"),
            (b"does not exist", "there is no such container on that node"),
            (b"Configuration file", "there is no such container on that node"),
        ),
    ),
    "docker": Door(
        ("docker", "exec", "-i", "{}"),
        _NAME,
        (
            (b"No such container", "there is no such container"),
            (b"is not running", "the container is not running"),
            (b"is paused", "the container is paused"),
            (b"Cannot connect to the Docker daemon", "the Docker daemon does not answer"),
            (b"permission denied", "the login may not use Docker"),
            (b'"/bin/sh": stat', "the container has no /bin/sh"),
            (b"no such file or directory", "the container has no /bin/sh"),
        ),
    ),
    "lxc": Door(
        ("lxc-attach", "-n", "{}", "--"),
        _NAME,
        (
            (b"is not running", "the container is not running"),
            (b"not running", "the container is not running"),
            (b"Failed to get init pid", "the container is not running"),
            (b"not defined", "there is no such container"),
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A parsed ``enter``: ``pct:129``."""

    kind: str
    container: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words to put before a command."""
        return tuple(self.container if word == "{}" else word for word in DOORS[self.kind].prefix)


def parse_entry(text: str) -> Entry:
    """``pct:129``, ``docker:NAME`` or ``lxc:NAME``. Raises UsageError."""
    kind, colon, container = text.partition(":")
    door = DOORS.get(kind)
    if door is None or not colon:
        raise UsageError(
            f"{text!r} is no way into a container",
            remedy="Write pct:ID, docker:NAME or lxc:NAME.",
            code="bad-enter",
        )
    if not door.name.fullmatch(container):
        raise UsageError(
            f"{container!r} is no container of the kind {kind}",
            remedy="pct takes a number; docker and lxc a name of letters, digits, _ . and -.",
            code="bad-enter",
        )
    return Entry(kind, container)


class NestedHost(ShellHost):
    """A container of another host. It has no connection of its own."""

    def __init__(
        self,
        name: str,
        outer: ShellHost,
        entry: Entry,
        *,
        sudo: bool = False,
        on_command: OnCommand | None = None,
    ) -> None:
        super().__init__(name, sudo=sudo, on_command=on_command)
        self._outer = outer
        self._entry = entry

    @property
    def alive(self) -> bool:
        return self._outer.alive

    async def open(self, words: Sequence[str], *, wait_s: float) -> Channel:
        return await self._outer.open_as((*self._entry.prefix, *words), wait_s=wait_s)

    def explain_start(self, noise: bytes) -> NotStartedError | None:
        for part, reason in DOORS[self._entry.kind].complaints:
            if part in noise:
                return NotStartedError(
                    f"{self._name}: {self._entry.kind} {self._entry.container} cannot be entered: "
                    f"{reason}",
                    remedy=f"Look at it on {self._outer.name}.",
                    code="container-unreachable",
                )
        tool = self._entry.prefix[0]
        if tool.encode() in noise and b"not found" in noise:
            return NotStartedError(
                f"{self._name}: there is no {tool} on {self._outer.name}",
                remedy="Check `via` and `enter` in the rig file.",
                code="container-unreachable",
            )
        return super().explain_start(noise) or self._outer.explain_start(noise)

    def refusal(self, status: int) -> NotStartedError:
        tool = self._entry.prefix[0]
        return NotStartedError(
            f"{self._name}: no command can be started in {self._entry.kind} "
            f"{self._entry.container}: {tool} on {self._outer.name} answered with exit {status}",
            remedy="Check that the container runs and has a /bin/sh.",
            code="container-unreachable",
        )

    async def tunnel(self, address: str, port: int) -> Tunnel:
        """Through the outer host, which reaches every address but the container's own loopback."""
        if _is_loopback(address):
            raise UnreachableError(
                f"{address}:{port} inside {self._name} cannot be reached from {self._outer.name}",
                remedy="Let the engine listen on the container's own address and use that in the "
                "endpoint's url.",
                code="tunnel-impossible",
            )
        return await self._outer.tunnel(address, port)

    async def close(self) -> None:
        """The connection belongs to the outer host."""


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address.lower() in ("localhost", "localhost.localdomain")
