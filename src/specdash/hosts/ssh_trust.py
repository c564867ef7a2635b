"""Host keys: which are trusted for a host, and why one that was presented is not.

As OpenSSH: the user's files, then the system's; names, ``[name]:port``, hashed names, host
authorities and revocations; a HostKeyAlias replaces the name. There is no way to switch the
check off: ``StrictHostKeyChecking no`` is not honoured and ``UserKnownHostsFile none`` only means
that there is no such file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from specdash.core.errors import UnreachableError

_USER_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_SYSTEM_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


class HostKeyUnknownError(UnreachableError):
    """The host is reached for the first time, or with a key of another type than is known."""

    default_code = "host-key-unknown"


class HostKeyChangedError(UnreachableError):
    """The host presents another key than the one that is known. Never to be accepted here."""

    default_code = "host-key-changed"


class HostKeyRevokedError(UnreachableError):
    """The key or its authority is marked as revoked."""

    default_code = "host-key-revoked"


@dataclass(slots=True)
class Trust:
    """The known hosts of one connection, and the key that was not found among them."""

    files: tuple[Path, ...]
    entries: asyncssh.SSHKnownHosts
    skipped: list[str] = field(default_factory=list)
    presented: Any = None
    presented_authority: Any = None

    def match(self, host: str, address: str, port: int | None) -> Sequence[Any]:
        """What asyncssh asks for. By name only: an address alone proves nothing about a name."""
        return self.entries.match(host, "", port)

    def refusal(self, label: str, host: str, port: int, reason: str) -> UnreachableError:
        """Why the presented key is not trusted. ``host`` is the name or the HostKeyAlias,
        ``reason`` what asyncssh says."""
        known, authorities, revoked, *_ = self.entries.match(
            host, "", port if port != asyncssh.DEFAULT_PORT else None
        )
        looked_in = tuple(str(path) for path in self.files) or ("no known_hosts file",)
        name = host if port == asyncssh.DEFAULT_PORT else f"[{host}]:{port}"
        key = self.presented
        if "revoked" in reason:
            return HostKeyRevokedError(
                f"the host key of {label} is marked as revoked",
                remedy="Do not connect; ask who runs the host.",
                evidence=(*(f"revoked: {item.get_fingerprint()}" for item in revoked), *looked_in),
            )
        if key is None:
            return self._no_plain_key(label, name, bool(authorities), looked_in)
        shown = f"{key.get_algorithm()} {key.get_fingerprint()}"
        same_type = [item for item in known if item.get_algorithm() == key.get_algorithm()]
        if same_type:
            return HostKeyChangedError(
                f"THE HOST KEY OF {label} HAS CHANGED: {shown} is presented, "
                f"{same_type[0].get_fingerprint()} is known",
                remedy="Somebody may be answering in its place. If the host was set up anew, get "
                f"its fingerprint by another way, then run `ssh-keygen -R '{name}'`.",
                evidence=(f"{name} presents {shown}", *looked_in),
            )
        also = " (keys of another type are known for it)" if known else ""
        return HostKeyUnknownError(
            f"the host key of {label} is not known{also}: {shown}",
            remedy="Compare the fingerprint with the host's own (`ssh-keygen -lf "
            f"/etc/ssh/ssh_host_*.pub` there), then accept it once with `ssh {label}`.",
            evidence=(f"{name} presents {shown}", *looked_in),
        )

    def _no_plain_key(
        self, label: str, name: str, has_authorities: bool, looked_in: tuple[str, ...]
    ) -> UnreachableError:
        authority = self.presented_authority
        if authority is not None:
            return HostKeyUnknownError(
                f"the host certificate of {label} is signed by an authority that is not known: "
                f"{authority.get_fingerprint()}",
                remedy="Add the authority to known_hosts with @cert-authority, if it is yours.",
                evidence=looked_in,
            )
        return HostKeyUnknownError(
            f"the host key of {label} could not be verified",
            remedy=f"Connect once with `ssh {label}` to see why"
            + (
                " (its certificate may be expired or for another name)." if has_authorities else "."
            ),
            evidence=(name, *looked_in),
        )


def load_trust(user_files: Sequence[str] | None, system_files: Sequence[str] | None) -> Trust:
    """Read the known hosts files. None: the usual ones; an empty list (``none``): no file.

    A file that does not exist is skipped; so is a line that cannot be read.
    """
    names = (*(_USER_FILES if user_files is None else user_files),)
    names += (*(_SYSTEM_FILES if system_files is None else system_files),)
    trust = Trust((), asyncssh.import_known_hosts(""))
    for name in names:
        path = Path(name).expanduser()
        try:
            text = path.read_bytes().decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            trust.skipped.append(f"{path}: {error.strerror}")
            continue
        trust.files += (path,)
        for number, line in enumerate(text.splitlines(), 1):
            try:
                trust.entries.load(line)
            except ValueError as error:
                trust.skipped.append(f"{path}:{number}: {error}")
    return trust
