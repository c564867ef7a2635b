"""How to connect: ssh config files, who is asked for secrets, and the secrets given so far."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from specdash.core.text import Safe

SecretKind = Literal["password", "passphrase", "answer"]


@dataclass(frozen=True, slots=True)
class SecretQuestion:
    """A secret only the operator knows.

    ``host`` is the name in the rig file, ``subject`` what the secret is for (``root@node`` or a
    key file), ``prompt`` the text to show, ``attempt`` counts from 1. An ``answer`` (a one-time
    code) is never kept; ``echo`` says that what is typed may be seen.
    """

    kind: SecretKind
    host: str
    subject: str
    prompt: Safe
    attempt: int = 1
    echo: bool = False


AskSecret = Callable[[SecretQuestion], Awaitable[str | None]]
"""Returns the secret, or None for "go on without"."""


@dataclass(frozen=True, slots=True)
class SshOptions:
    """``config_files`` None: ``~/.ssh/config``. ``secrets`` as :meth:`HostPool.secrets` gave them,
    or by host name."""

    config_files: tuple[Path, ...] | None = None
    ask: AskSecret | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    connect_timeout_s: float = 15.0


class SecretStore:
    """Secrets in memory for as long as a pool lives. Never written anywhere."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = dict(secrets)
        self._refused: set[str] = set()

    def __repr__(self) -> str:
        return f"SecretStore({len(self._secrets)} secrets)"

    def get(self, kind: SecretKind, subject: str, host: str) -> str | None:
        """What is known for this subject, else for the host by name; None if refused before."""
        for key in (f"{kind}:{subject}", host):
            if key in self._secrets and f"{kind}:{subject}" not in self._refused:
                return self._secrets[key]
        return None

    def keep(self, kind: SecretKind, subject: str, secret: str) -> None:
        key = f"{kind}:{subject}"
        self._secrets[key] = secret
        self._refused.discard(key)

    def refuse(self, kind: SecretKind, subject: str) -> None:
        """The secret was wrong: do not offer it again."""
        key = f"{kind}:{subject}"
        self._secrets.pop(key, None)
        self._refused.add(key)

    def view(self) -> Mapping[str, str]:
        """A snapshot to hand on."""
        return MappingProxyType(dict(self._secrets))
