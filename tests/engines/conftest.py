"""A scripted endpoint, and the captures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from specdash.engines.protocol import HttpReply

CAPTURES = Path(__file__).parent / "captures"


class ScriptedHttp:
    """Answers by path; what is not scripted is a 404. Remembers what it was asked."""

    def __init__(self, answers: Mapping[str, HttpReply | bytes | str]) -> None:
        self._answers = answers
        self.asked: list[str] = []
        self.bodies: list[Mapping[str, object]] = []

    async def get(self, path: str, *, timeout_s: float = 5.0) -> HttpReply:
        self.asked.append(path)
        return self._answer(path)

    async def post(
        self, path: str, body: Mapping[str, object], *, timeout_s: float = 60.0
    ) -> HttpReply:
        self.asked.append(path)
        self.bodies.append(body)
        return self._answer(path)

    def _answer(self, path: str) -> HttpReply:
        answer = self._answers.get(path)
        if answer is None:
            return HttpReply(404, b"<html>not here</html>")
        if isinstance(answer, HttpReply):
            return answer
        return HttpReply(200, answer.encode() if isinstance(answer, str) else answer)


@pytest.fixture
def scripted() -> type[ScriptedHttp]:
    return ScriptedHttp


@pytest.fixture
def capture() -> Callable[[str], bytes]:
    return lambda name: (CAPTURES / name).read_bytes()


@pytest.fixture
def lines_of() -> Callable[[str], list[str]]:
    """Lines as the journal has them: a carriage return does not end one."""
    return lambda name: (CAPTURES / name).read_bytes().decode().split("\n")
