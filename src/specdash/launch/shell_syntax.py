"""What the shell reader finds in a script: words in parts, assignments, commands."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Literal:
    """Characters as written; each with its range in the script (an escape is longer than one)."""

    text: str
    spans: tuple[tuple[int, int], ...]
    quoted: bool


@dataclass(frozen=True, slots=True)
class Parameter:
    """``$NAME`` or ``${NAME...}``. ``argument`` is the word after an operator such as ``:-``."""

    name: str
    start: int
    end: int
    quoted: bool
    operator: str = ""
    argument: tuple[Part, ...] = ()
    index: str = ""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``$(( ... ))`` with its expression."""

    expression: str
    start: int
    end: int
    quoted: bool


@dataclass(frozen=True, slots=True)
class Opaque:
    """A command substitution, or whatever else only a shell can tell."""

    source: str
    start: int
    end: int
    quoted: bool


Part = Literal | Parameter | Arithmetic | Opaque


@dataclass(frozen=True, slots=True)
class RawWord:
    """One word before expansion; ``[start, end)`` covers its quotes."""

    parts: tuple[Part, ...]
    start: int
    end: int

    @property
    def plain(self) -> str | None:
        """The text where nothing in it is quoted or expanded: what can be a reserved word."""
        text: list[str] = []
        for part in self.parts:
            if (
                not isinstance(part, Literal)
                or part.quoted
                or len(part.text) != part.spans[-1][1] - part.spans[0][0]
            ):
                return None
            text.append(part.text)
        return "".join(text)


@dataclass(frozen=True, slots=True)
class Assignment:
    """``NAME=value``, ``NAME+=value``, ``NAME=(a b)``. ``words`` is None for a scalar."""

    name: str
    append: bool
    value: RawWord
    words: tuple[RawWord, ...] | None
    start: int
    end: int


@dataclass(slots=True)
class Simple:
    """One simple command: assignments before it, and its words (assignments among them, for
    ``export`` and its like, are kept in place)."""

    assignments: list[Assignment] = field(default_factory=list)
    words: list[RawWord | Assignment] = field(default_factory=list)
    start: int = 0
    end: int = 0
    conditional: bool = False
    function: str = ""


@dataclass(slots=True)
class Script:
    """A whole script in order; the bodies of functions apart. ``heredocs`` are their bodies."""

    commands: list[Simple] = field(default_factory=list)
    functions: dict[str, list[Simple]] = field(default_factory=dict)
    heredocs: list[tuple[int, int]] = field(default_factory=list)
