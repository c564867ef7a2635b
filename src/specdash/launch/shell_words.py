"""Words of a POSIX shell or bash: quotes, escapes, expansions. Positions are kept.

Facts: POSIX.1 "Shell Command Language" 2.2 and 2.6, bash(1) QUOTING and Parameter Expansion.
"""

from __future__ import annotations

import re

from specdash.launch.errors import UnreadableConfigError
from specdash.launch.shell_syntax import Arithmetic, Literal, Opaque, Parameter, Part, RawWord

_LONGEST_FORMULA = 2000
META = " \t\n;&|<>()"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r":?[-=+?]|##?|%%?|//?|\^\^?|,,?|:|@")
_ANSI = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}


class ShellTextError(ValueError):
    """A quote, brace or parenthesis is opened at ``at`` and never closed."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(what)
        self.at = at
        self.what = what


def line_break(text: str, at: int) -> int:
    """The length of the line end at ``at``: 0, 1 or 2 (CRLF)."""
    if text.startswith("\r\n", at):
        return 2
    return 1 if text.startswith("\n", at) else 0


def read_word(text: str, at: int, *, stop: str = META) -> RawWord:
    """The word that starts at ``at``, up to an unquoted character of ``stop``."""
    start = at
    parts, at = read_parts(text, at, stop=stop)
    return RawWord(parts, start, at)


def read_parts(
    text: str, at: int, *, stop: str, double: bool = False
) -> tuple[tuple[Part, ...], int]:
    """Parts up to an unquoted ``stop`` character; ``double``: inside double quotes."""
    reader = _Parts(text, double)
    while at < len(text):
        char = text[at]
        if char == "\\":
            at = reader.backslash(at)
        elif _ends(text, at, stop, double):
            break
        elif char == "'" and not double:
            at = reader.single(at)
        elif char == '"':
            at = reader.double_quoted(at)
        elif char == "`":
            end = _backtick_end(text, at)
            reader.add(Opaque(text[at:end], at, end, double))
            at = end
        elif char == "$":
            at = reader.dollar(at)
        else:
            reader.char(char, at, at + 1)
            at += 1
    return reader.done(), at


def _ends(text: str, at: int, stop: str, double: bool) -> bool:
    """Whether the part that is being read ends before ``at``."""
    char = text[at]
    if double:
        return char == '"' or (char in stop and stop == "}")
    return char in stop or (char == "\r" and line_break(text, at) > 0)


class _Parts:
    """Collects the parts of one word."""

    def __init__(self, text: str, quoted: bool) -> None:
        self._text = text
        self._quoted = quoted
        self._parts: list[Part] = []
        self._chars: list[str] = []
        self._spans: list[tuple[int, int]] = []
        self._chars_quoted = quoted

    def add(self, part: Part) -> None:
        self._flush()
        self._parts.append(part)

    def char(self, char: str, start: int, end: int, *, quoted: bool | None = None) -> None:
        quoted = self._quoted if quoted is None else quoted
        if self._chars and quoted != self._chars_quoted:
            self._flush()
        self._chars_quoted = quoted
        self._chars.append(char)
        self._spans.append((start, end))

    def _flush(self) -> None:
        if self._chars:
            self._parts.append(
                Literal("".join(self._chars), tuple(self._spans), self._chars_quoted)
            )
            self._chars, self._spans = [], []

    def done(self) -> tuple[Part, ...]:
        self._flush()
        return tuple(self._parts)

    def backslash(self, at: int) -> int:
        text = self._text
        broken = line_break(text, at + 1)
        if broken:
            return at + 1 + broken
        follower = text[at + 1 : at + 2]
        if self._quoted and follower not in ("$", "`", '"', "\\", "}"):
            self.char("\\", at, at + 1)
            return at + 1
        if self._quoted and follower == "}":
            self.char("\\", at, at + 1)
            self.char("}", at + 1, at + 2)
            return at + 2
        if not follower:
            self.char("\\", at, at + 1)
            return at + 1
        self.char(follower, at, at + 2, quoted=True)
        return at + 2

    def single(self, at: int) -> int:
        end = self._text.find("'", at + 1)
        if end < 0:
            raise ShellTextError(at, "a single quote")
        self._flush()
        self._parts.append(
            Literal(self._text[at + 1 : end], tuple((i, i + 1) for i in range(at + 1, end)), True)
        )
        return end + 1

    def double_quoted(self, at: int) -> int:
        parts, end = read_parts(self._text, at + 1, stop="", double=True)
        if end >= len(self._text):
            raise ShellTextError(at, "a double quote")
        self._flush()
        self._parts += parts or (Literal("", (), True),)
        return end + 1

    def dollar(self, at: int) -> int:
        text = self._text
        follower = text[at + 1 : at + 2]
        if follower == "{":
            return self._braced(at)
        if text.startswith("((", at + 1):
            end = arithmetic_end(text, at + 1)
            if end:
                self.add(Arithmetic(text[at + 3 : end - 2], at, end, self._quoted))
                return end
        if follower == "(":
            end = paren_end(text, at + 1)
            self.add(Opaque(text[at:end], at, end, self._quoted))
            return end
        name = _NAME.match(text, at + 1)
        if name is not None:
            self.add(Parameter(name.group(), at, name.end(), self._quoted))
            return name.end()
        if follower and follower in "0123456789@*#?-$!":
            self.add(Parameter(follower, at, at + 2, self._quoted))
            return at + 2
        if not self._quoted and follower == "'":
            return self._ansi(at)
        if not self._quoted and follower == '"':
            return at + 1
        self.char("$", at, at + 1)
        return at + 1

    def _braced(self, at: int) -> int:
        text = self._text
        name = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-](?=[}:\-+=?])").match(
            text, at + 2
        )
        if name is None:  # ${#x}, ${!x} and what else bash has
            end = _brace_end(text, at + 1)
            self.add(Opaque(text[at:end], at, end, self._quoted))
            return end
        here = name.end()
        index = ""
        if text.startswith("[", here):
            close = text.find("]", here)
            if close < 0:
                raise ShellTextError(at, "a brace")
            index, here = text[here + 1 : close], close + 1
        operator = _OPERATOR.match(text, here)
        sign = "" if operator is None else operator.group()
        parts, end = read_parts(text, here + len(sign), stop="}", double=self._quoted)
        if not text.startswith("}", end):
            raise ShellTextError(at, "a brace")
        self.add(Parameter(name.group(), at, end + 1, self._quoted, sign, parts, index))
        return end + 1

    def _ansi(self, at: int) -> int:
        """``$'...'``: C escapes."""
        text = self._text
        here = at + 2
        self._flush()
        chars: list[str] = []
        spans: list[tuple[int, int]] = []
        while here < len(text) and text[here] != "'":
            end, char = here + 1, text[here]
            if char == "\\" and end < len(text):
                number = re.compile(r"x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|u([0-9A-Fa-f]{1,4})").match(
                    text, end
                )
                if number is not None:
                    hexed = number.group(1) or number.group(3)
                    char = chr(int(hexed, 16) if hexed else int(number.group(2), 8) & 0xFF)
                    end = number.end()
                elif text[end] in _ANSI:
                    char, end = _ANSI[text[end]], end + 1
            chars.append(char)
            spans.append((here, end))
            here = end
        if here >= len(text):
            raise ShellTextError(at, "a single quote")
        self._parts.append(Literal("".join(chars), tuple(spans), True))
        return here + 1


def paren_end(text: str, at: int) -> int:
    """Just after the ``)`` that closes the ``(`` at ``at``; quotes and comments are respected."""
    depth = 0
    start = at
    while at < len(text):
        char = text[at]
        if char == "(":
            depth += 1
            at += 1
        elif char == ")":
            depth -= 1
            at += 1
            if depth == 0:
                return at
        elif char == "#" and text[at - 1] in " \t\n;":
            at = _line_end(text, at)
        else:
            at = _skip_quoted(text, at)
    raise ShellTextError(start, "a parenthesis")


def _brace_end(text: str, at: int) -> int:
    start = at
    depth = 0
    while at < len(text):
        char = text[at]
        if char == "{":
            depth += 1
            at += 1
        elif char == "}":
            depth -= 1
            at += 1
            if depth == 0:
                return at
        else:
            at = _skip_quoted(text, at)
    raise ShellTextError(start, "a brace")


def arithmetic_end(text: str, at: int) -> int:
    """Just after the ``))`` that closes the ``((`` at ``at``; 0 where it is something else."""
    depth = 0
    for here in range(at, min(len(text), at + _LONGEST_FORMULA)):
        if text[here] == "(":
            depth += 1
        elif text[here] == ")":
            depth -= 1
            if depth == 0:
                return here + 1 if text[here - 1] == ")" else 0
    return 0


def _skip_quoted(text: str, at: int) -> int:
    """The next position after the character, escape, quote or substitution at ``at``."""
    char = text[at]
    if char == "\\":
        return at + 2
    if char == "'":
        end = text.find("'", at + 1)
        if end < 0:
            raise ShellTextError(at, "a single quote")
        return end + 1
    if char == '"':
        here = at + 1
        while here < len(text) and text[here] != '"':
            if text[here] == "\\":
                here += 2
            elif text.startswith("$(", here):
                here = paren_end(text, here + 1)
            elif text[here] == "`":
                here = _backtick_end(text, here)
            else:
                here += 1
        if here >= len(text):
            raise ShellTextError(at, "a double quote")
        return here + 1
    if char == "`":
        return _backtick_end(text, at)
    return at + 1


def _backtick_end(text: str, at: int) -> int:
    here = at + 1
    while here < len(text) and text[here] != "`":
        here += 2 if text[here] == "\\" else 1
    if here >= len(text):
        raise ShellTextError(at, "a backquote")
    return here + 1


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def unreadable(path: str, line: int, what: str) -> UnreadableConfigError:
    """The error for a script that its own shell would refuse."""
    return UnreadableConfigError(
        f"{path}:{line}: {what} is opened here and never closed.",
        remedy="Check the script with `bash -n`.",
    )
