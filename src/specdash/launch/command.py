"""What every form of launch config comes down to: commands, variables and other files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specdash.launch.trace import Reference, Site, Variable, Word


@dataclass(frozen=True, slots=True)
class Command:
    """One command with the environment the file gives it.

    ``label`` is a name by which an operator may mean it (a function); ``conditional``: inside a
    branch or a loop.
    """

    words: tuple[Word, ...]
    environment: Mapping[str, Variable]
    site: Site | None
    label: str = ""
    conditional: bool = False

    @property
    def argv(self) -> tuple[str, ...]:
        return tuple(word.text.text for word in self.words)


@dataclass(slots=True)
class Parsed:
    """Everything a file says. ``hidden`` are texts that were recognised and left alone."""

    form: str
    commands: list[Command] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    hidden: list[tuple[Site, str]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    """Text of every file that was read, by path."""
