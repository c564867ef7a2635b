"""How to connect: ssh config files, who is asked for secrets, and the secrets given so far."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from specdash.core.ports import AskSecret, SecretKind, SecretQuestion

__all__ = ["AskSecret", "SecretKind", "SecretQuestion", "SecretStore", "SshOptions"]


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
        self._turns: dict[str, asyncio.Lock] = {}

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

    def refuse(self, kind: SecretKind, subject: str, offered: str | None) -> None:
        """The secret was wrong: do not offer it again. A newer one stays."""
        key = f"{kind}:{subject}"
        if self._secrets.get(key) not in (None, offered):
            return
        self._secrets.pop(key, None)
        self._refused.add(key)

    def turn(self, kind: SecretKind, subject: str) -> asyncio.Lock:
        """Held while this secret is asked for, so that logins at the same time ask once."""
        return self._turns.setdefault(f"{kind}:{subject}", asyncio.Lock())

    def view(self) -> Mapping[str, str]:
        """A snapshot to hand on."""
        return MappingProxyType(dict(self._secrets))
