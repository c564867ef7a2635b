"""What only the operator can say, as dialogs: decisions and secrets."""

from __future__ import annotations

import asyncio
from typing import Protocol

from specdash.core.ports import Question, SecretQuestion

_LAST_ATTEMPT = 3
"""As many as a login takes."""


class Asker(Protocol):
    """What can put a question on the screen."""

    async def put(self, question: Question) -> bool: ...

    async def put_secret(self, question: SecretQuestion) -> str | None: ...


class DialogDecide:
    """The cockpit's side of the ports ``Decide`` and ``AskSecret``.

    Made before the session, which needs it, and the app, which answers it. Without an app on
    screen every answer is no, and no secret is known. Questions wait for one another. A plan that
    the operator said yes to in the plan dialog is not asked again: each such yes answers one
    ``run-plan`` question.
    """

    def __init__(self) -> None:
        self._asker: Asker | None = None
        self._turn = asyncio.Lock()
        self._granted = 0
        self._declined: set[tuple[str, str]] = set()

    def attach(self, asker: Asker) -> None:
        """From now on questions are put by ``asker``."""
        self._asker = asker

    def detach(self) -> None:
        """The screen is gone: from now on the answer is no."""
        self._asker = None
        self._granted = 0

    def grant_run(self) -> None:
        """The operator saw a plan and said yes to it."""
        self._granted += 1

    def revoke(self) -> None:
        """What was granted and not used is void: the cycle was cancelled, the queue is empty."""
        self._granted = 0

    async def ask(self, question: Question) -> bool:
        """True only for an explicit yes."""
        if question.kind == "run-plan" and self._granted > 0:
            self._granted -= 1
            return True
        async with self._turn:
            asker = self._asker
            return False if asker is None else await asker.put(question)

    async def ask_secret(self, question: SecretQuestion) -> str | None:
        """What was typed, or None for "go on without". It is kept nowhere here.

        Streams that connect again and again by themselves do not ask for what the operator went
        on without, or got wrong to the last attempt, before :meth:`ask_again`.
        """
        what = (question.kind, question.subject)
        async with self._turn:
            asker = self._asker
            if asker is None or (question.attempt == 1 and what in self._declined):
                return None
            secret = await asker.put_secret(question)
            if secret is None or question.attempt >= _LAST_ATTEMPT:
                self._declined.add(what)
            return secret

    def ask_again(self) -> None:
        """The operator does something that needs the hosts: secrets may be asked for again."""
        self._declined.clear()
