"""Whole-number arithmetic of a shell, so that ``$((STEPS + 1))`` can be followed."""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(r"\s*(?:(\d+)|\$?\{?([A-Za-z_]\w*)\}?|([-+*/%()]))")


def evaluate(expression: str, value_of: Callable[[str], str | None]) -> int | None:
    """The value, or None where it is more than sums and products of known whole numbers."""
    tokens: list[str] = []
    at = 0
    expression = expression.strip().strip('"')
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        if match is None:
            return None
        number, name, operator = match.groups()
        if name is not None:
            held = value_of(name)
            if held is None or not held.strip().isdecimal():
                return None
            number = held.strip()
        tokens.append(number or operator)
        at = match.end()
    try:
        return _Sum(tokens).whole()
    except (IndexError, ValueError, ZeroDivisionError):
        return None


class _Sum:
    """Recursive descent over ``+ - * / %`` and parentheses."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def whole(self) -> int:
        value = self._sum()
        if self._at != len(self._tokens):
            raise ValueError
        return value

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _sum(self) -> int:
        value = self._product()
        while self._peek() in ("+", "-") and self._peek():
            value = value + self._product() if self._take() == "+" else value - self._product()
        return value

    def _product(self) -> int:
        value = self._factor()
        while self._peek() in ("*", "/", "%") and self._peek():
            operator, right = self._take(), self._factor()
            if operator == "*":
                value *= right
            elif operator == "/":
                value = int(value / right)
            else:
                value -= int(value / right) * right
        return value

    def _factor(self) -> int:
        taken = self._take()
        if taken == "(":
            value = self._sum()
            if self._take() != ")":
                raise ValueError
            return value
        if taken == "-":
            return -self._factor()
        return int(taken)
