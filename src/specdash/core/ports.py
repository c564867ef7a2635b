"""The ports that go the other way: what must be on disk first, who decides, who knows a secret."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from specdash.core.text import Safe

QuestionKind = Literal[
    "run-plan",  # stop, reap own processes, write, reload, start: --yes
    "reap-orphans",  # processes that are probably ours: --reap-orphans
    "force-free",  # a holder outside the rig: --force-free NAME
    "protected",  # a protected rig: --confirm NAME
    "allow-reload",  # a reload that strips GPUs from other containers: --allow-reload
    "restore",  # restart the last good config after a failure: covered by --yes
]


@dataclass(frozen=True, slots=True)
class Question:
    """One decision only the operator can take. ``details`` are the exact targets, a line each.

    With ``type_to_confirm`` set, a yes needs that text typed.
    """

    kind: QuestionKind
    title: str
    details: tuple[str, ...] = ()
    type_to_confirm: str | None = None
    subject: str = ""


class Decide(Protocol):
    """Who decides: a dialog in the cockpit, flags when headless. The default answer is no."""

    async def ask(self, question: Question) -> bool:
        """True only for an explicit yes."""
        ...


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
class JournalEntry:
    """One act about to happen or just done."""

    t: float
    kind: str
    data: Mapping[str, object] = field(default_factory=dict)


class Journal(Protocol):
    """Awaited, and on disk when it returns, *before* each act."""

    async def write(self, kind: str, **data: object) -> None:
        """Append one entry and flush it to disk. Secrets are masked by the writer."""
        ...
