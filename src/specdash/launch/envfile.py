"""Environment files as systemd reads them: ``KEY=VALUE``, not shell.

Facts: systemd.exec(5) "EnvironmentFile=". Quotes are recognised at the start of a value (and
again after a closing quote), a backslash joins lines, ``#`` and ``;`` start a comment line.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specdash.launch.trace import Origin, Site, Traced, Variable

_BLANK = " \t"
_NEWLINE = "\n\r"
_UNESCAPED_IN_DOUBLE = '"\\`$'


@dataclass(slots=True)
class _Value:
    """A value under construction: which characters of the file make it up."""

    parts: list[Traced] = field(default_factory=list)
    keep: int = 0  # parts up to here stay when trailing blanks are cut

    def add(self, part: Traced, *, blank: bool = False) -> None:
        self.parts.append(part)
        if not blank:
            self.keep = len(self.parts)

    def traced(self) -> Traced:
        return Traced.join(self.parts[: self.keep])


def parse_env_file(path: str, text: str) -> tuple[Variable, ...]:
    """All assignments in order; ``token`` covers name, ``=`` and value with its quotes."""
    return tuple(_Reader(path, text).assignments())


def is_env_file(path: str, text: str) -> bool:
    """Whether every line that says something is an assignment or a comment."""
    found = False
    covered = 0
    for variable in parse_env_file(path, text):
        if variable.token is None or not _is_name(variable.name):
            return False
        if variable.value.text.startswith("(") or not _only_comments(
            text[covered : variable.token.start]
        ):
            return False
        covered = variable.token.end
        found = True
    return found and _only_comments(text[covered:])


def _is_name(name: str) -> bool:
    return name.isascii() and name.isidentifier()


def _only_comments(text: str) -> bool:
    return all(
        not line.strip("\ufeff \t\r") or line.strip("\ufeff \t\r")[0] in "#;"
        for line in text.split("\n")
    )


class _Reader:
    """The state machine of systemd's reader, with positions."""

    def __init__(self, path: str, text: str) -> None:
        self._file = Traced.of_file(path, text)
        self._path = path
        self._text = text
        self._at = 1 if text.startswith("\ufeff") else 0

    def assignments(self) -> list[Variable]:
        found: list[Variable] = []
        text = self._text
        while self._at < len(text):
            char = text[self._at]
            if char in _BLANK + _NEWLINE:
                self._at += 1
            elif char in "#;":
                self._skip_comment()
            else:
                variable = self._assignment()
                if variable is not None:
                    found.append(variable)
        return found

    def _skip_comment(self) -> None:
        while self._at < len(self._text) and self._text[self._at] not in _NEWLINE:
            self._at += 1

    def _assignment(self) -> Variable | None:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in _NEWLINE + "=":
            self._at += 1
        if self._at >= len(self._text) or self._text[self._at] != "=":
            return None
        name = self._text[start : self._at].rstrip(_BLANK)
        self._at += 1
        value, end = self._value()
        return Variable(name, value, Site(self._path, start, end))

    def _value(self) -> tuple[Traced, int]:
        value = _Value()
        plain = False  # past the first unquoted character quotes are ordinary
        end = self._at
        text = self._text
        while self._at < len(text) and text[self._at] not in _NEWLINE:
            char = text[self._at]
            if char == "\\":
                self._escape(value)
                plain = True
                end = self._at
            elif char in "'\"" and not plain:
                self._quoted(value, char)
                end = self._at
            else:
                blank = char in _BLANK
                if not (blank and not plain):
                    plain = True
                    value.add(self._file[self._at : self._at + 1], blank=blank)
                self._at += 1
                if not blank:
                    end = self._at
        return value.traced(), end

    def _escape(self, value: _Value) -> None:
        at = self._at
        if self._text.startswith("\r\n", at + 1):
            self._at += 3
            return
        if at + 1 < len(self._text) and self._text[at + 1] not in _NEWLINE:
            value.add(self._written(at, at + 2, self._text[at + 1]))
        self._at += 2

    def _quoted(self, value: _Value, quote: str) -> None:
        text = self._text
        self._at += 1
        while self._at < len(text) and text[self._at] != quote:
            at = self._at
            if quote == '"' and text[at] == "\\" and at + 1 < len(text):
                follower = text[at + 1]
                if follower in _UNESCAPED_IN_DOUBLE:
                    value.add(self._written(at, at + 2, follower))
                elif follower != "\n":
                    value.add(self._file[at : at + 2])
                self._at += 2
                continue
            value.add(self._file[at : at + 1])
            self._at += 1
        value.keep = len(value.parts)
        self._at = min(self._at + 1, len(text))

    def _written(self, start: int, end: int, char: str) -> Traced:
        return Traced(char, (Origin((Site(self._path, start, end),)),))
