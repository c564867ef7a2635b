"""Splitting a program's words into options and operands, as getopt_long does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


class UnknownOptionError(ValueError):
    """An option the program does not have."""


@dataclass(slots=True)
class Words:
    """``options``: canonical name -> values in order ("" for one without a value)."""

    options: dict[str, list[str]] = field(default_factory=dict)
    operands: list[str] = field(default_factory=list)

    def has(self, name: str) -> bool:
        return name in self.options

    def last(self, name: str, default: str = "") -> str:
        return self.options.get(name, [default])[-1]

    def all(self, name: str) -> list[str]:
        return self.options.get(name, [])

    def listed(self, name: str) -> list[str]:
        """Values split at commas and blanks."""
        return [
            part for value in self.all(name) for part in value.replace(",", " ").split() if part
        ]


def split(argv: list[str], table: Mapping[str, tuple[str, bool]]) -> Words:
    """``table``: spelling (``-n``, ``--lines``) -> (canonical name, takes a value)."""
    words = Words()
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words.operands.extend(rest)
            break
        if word.startswith("--"):
            spelling, equals, value = word.partition("=")
            name, takes = _find(spelling, table)
            if takes and not equals:
                if not rest:
                    raise UnknownOptionError(f"option '{spelling}' requires an argument")
                value = rest.pop(0)
            words.options.setdefault(name, []).append(value)
        elif word.startswith("-") and len(word) > 1:
            _short(word, rest, table, words)
        else:
            words.operands.append(word)
    return words


def _short(word: str, rest: list[str], table: Mapping[str, tuple[str, bool]], words: Words) -> None:
    at = 1
    while at < len(word):
        name, takes = _find("-" + word[at], table)
        value = ""
        at += 1
        if takes:
            value = word[at:]
            if not value:
                if not rest:
                    raise UnknownOptionError(f"option requires an argument -- '{word[at - 1]}'")
                value = rest.pop(0)
            at = len(word)
        words.options.setdefault(name, []).append(value)


def _find(spelling: str, table: Mapping[str, tuple[str, bool]]) -> tuple[str, bool]:
    if spelling in table:
        return table[spelling]
    if spelling.startswith("--"):
        matching = {table[key] for key in table if key.startswith(spelling)}
        if len(matching) == 1:
            return matching.pop()
        raise UnknownOptionError(f"unrecognized option '{spelling}'")
    raise UnknownOptionError(f"invalid option -- '{spelling[1:]}'")
