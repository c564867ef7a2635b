"""What an operator writes for an SSH host, taken apart."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from specdash.core.errors import UsageError

_PORTED = re.compile(r"(?P<host>[^\[\]:]+):(?P<port>[0-9]{1,5})")
_BRACKETED = re.compile(r"\[(?P<host>[^\[\]]+)\](?::(?P<port>[0-9]{1,5}))?")
# Signs that a ProxyCommand or Match exec of an ssh config would hand to a shell.
_UNSAFE = re.compile(r"[\s\x00-\x1f\x7f'\"`$\\;&<>|(){}*?!#,/]")


@dataclass(frozen=True, slots=True)
class Target:
    """An alias or address, with the user and port where they were written."""

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        if self.port is None:
            return user + self.host
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{user}{host}:{self.port}"


def parse_target(text: str) -> Target:
    """``alias``, ``user@host``, ``host:port``, ``user@[v6]:port``, a bare IPv6 address or ssh://.

    Raises UsageError that names what is wrong.
    """
    rest = text.strip()
    if rest.startswith("ssh://"):
        rest = rest.removeprefix("ssh://").removesuffix("/")
    user: str | None = None
    if "@" in rest:
        user, rest = rest.rsplit("@", 1)
        if not user or re.search(r"[\s\x00-\x1f\x7f'\"`;&<>|(){}]", user) or user.startswith("-"):
            raise _bad(text, f"{user!r} is no user name")
    host, port = _split_port(text, rest)
    if not host or host.startswith("-") or _UNSAFE.search(host):
        raise _bad(text, f"{host!r} is no host name")
    return Target(host, user, port)


def _split_port(text: str, rest: str) -> tuple[str, int | None]:
    match = _BRACKETED.fullmatch(rest) or _PORTED.fullmatch(rest)
    if match is None:
        if ":" in rest or "[" in rest or "]" in rest:
            try:
                ipaddress.IPv6Address(rest)
            except ValueError:
                raise _bad(text, f"{rest!r} is neither host:port nor an IPv6 address") from None
        return rest, None
    if match["port"] is None:
        return match["host"], None
    port = int(match["port"])
    if not 1 <= port <= 65535:
        raise _bad(text, f"port {port} is not within 1 to 65535")
    return match["host"], port


def _bad(text: str, reason: str) -> UsageError:
    return UsageError(
        f"{text!r} is not an SSH host: {reason}",
        remedy="Write an ssh config alias, user@host or user@host:port; IPv6 as [addr]:port.",
        code="bad-ssh-host",
    )
