"""The operator's decisions as dialogs: the cockpit's side of the ``Decide`` port."""

from __future__ import annotations

import asyncio
from typing import Protocol

from specdash.core.ports import Question


class Asker(Protocol):
    """What can put a question on the screen."""

    async def put(self, question: Question) -> bool: ...


class DialogDecide:
    """Made before the session, which needs it, and the app, which answers it.

    Without an app on screen every answer is no. Questions wait for one another. A plan that the
    operator said yes to in the plan dialog is not asked again: each such yes answers one
    ``run-plan`` question.
    """

    def __init__(self) -> None:
        self._asker: Asker | None = None
        self._turn = asyncio.Lock()
        self._granted = 0

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
