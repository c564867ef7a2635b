"""systemd's own rules for words: quotes, C escapes, specifiers, variables.

Facts: systemd.service(5) "Command lines", systemd.syntax(7), and what systemd 252's parser was
seen to do (quotes are recognised inside a word; an unknown escape keeps its backslash).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specdash.launch.trace import Origin, Traced, Variable, Word

WHITESPACE = " \t\n\r"
_SIMPLE = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "s": " ",
    "\\": "\\",
    '"': '"',
    "'": "'",
}
_NUMBERED = {"x": (16, 2), "u": (16, 4), "U": (16, 8)}
_SPECIFIERS = "aAbBCdDEfgGhHiIjJlLmMnNoOpPqsStTuUvVwWyY"


class UnbalancedQuotesError(ValueError):
    """A quote was opened and not closed."""


class UnknownEscapeError(ValueError):
    """A backslash before a character that it gives no meaning."""


@dataclass(frozen=True, slots=True)
class RawWord:
    """A word after unquoting; ``[start, end)`` is its range in the text it was cut from."""

    text: Traced
    start: int
    end: int


def next_word(
    text: Traced,
    at: int,
    *,
    c_escapes: bool = True,
    relaxed: bool = False,
    strict: bool = False,
) -> RawWord | None:
    """The first word at or after ``at``; None at the end.

    ``c_escapes`` False: a backslash gives the next character as it is (values of ``$VAR``).
    ``relaxed``: an open quote ends with the text instead of raising UnbalancedQuotesError.
    ``strict``: an unknown escape raises UnknownEscapeError instead of keeping its backslash.
    """
    raw = text.text
    size = len(raw)
    while at < size and raw[at] in WHITESPACE:
        at += 1
    if at == size:
        return None
    start = at
    parts: list[Traced] = []
    quote = ""
    while at < size:
        char = raw[at]
        if char == "\\":
            part, at = _escaped(text, at, c_escapes)
            if strict and part.text.startswith("\\") and raw[at - 2 : at] != "\\\\":
                raise UnknownEscapeError
            parts.append(part)
            continue
        if quote:
            if char == quote:
                quote = ""
            else:
                parts.append(text[at : at + 1])
        elif char in "'\"":
            quote = char
        elif char in WHITESPACE:
            break
        else:
            parts.append(text[at : at + 1])
        at += 1
    if quote and not relaxed:
        raise UnbalancedQuotesError
    return RawWord(Traced.join(parts), start, at)


def _escaped(text: Traced, at: int, c_escapes: bool) -> tuple[Traced, int]:
    """What the backslash at ``at`` gives, and where reading goes on."""
    raw = text.text
    rest = raw[at + 1 :]
    if not rest:
        return text[at : at + 1] if c_escapes else Traced.made(""), at + 1
    if not c_escapes:
        return _one(text, at, at + 2, rest[0]), at + 2
    char = rest[0]
    if char in _SIMPLE:
        return _one(text, at, at + 2, _SIMPLE[char]), at + 2
    base, digits, skip = 8, 3, 1
    if char in _NUMBERED:
        base, digits = _NUMBERED[char]
        skip = 2
    number = raw[at + skip : at + skip + digits]
    allowed = "01234567" if base == 8 else "0123456789abcdefABCDEF"
    if len(number) == digits and all(c in allowed for c in number):
        value = int(number, base)
        byte = char not in "uU"
        if 0 < value <= (0xFF if byte else 0x10FFFF) and not 0xD800 <= value < 0xE000:
            decoded = chr(value) if not byte or value < 0x80 else chr(0xDC00 + value)
            return _one(text, at, at + skip + digits, decoded), at + skip + digits
    return text[at : at + 2], at + 2


def _one(text: Traced, start: int, end: int, char: str) -> Traced:
    """One character that is written as ``text[start:end]``."""
    first = text.origin(start)
    site = text.extent(start, end)
    sites = (site, *first.sites[1:]) if site is not None else ()
    return Traced(char, (Origin(sites, first.unknown, first.rivals),))


def words_of(text: Traced, *, c_escapes: bool = True, relaxed: bool = False) -> list[RawWord]:
    """All words of a text."""
    out: list[RawWord] = []
    at = 0
    while (word := next_word(text, at, c_escapes=c_escapes, relaxed=relaxed)) is not None:
        out.append(word)
        at = word.end
    return out


def specifiers(text: Traced) -> Traced:
    """``%%`` is a percent sign; a specifier stays as written, marked as unknown."""
    raw = text.text
    if "%" not in raw:
        return text
    parts: list[Traced] = []
    at = 0
    while at < len(raw):
        if raw[at] == "%" and at + 1 < len(raw):
            follower = raw[at + 1]
            if follower == "%":
                parts.append(_one(text, at, at + 2, "%"))
                at += 2
                continue
            if follower in _SPECIFIERS:
                site = text.extent(at, at + 2)
                sites = (site,) if site is not None else ()
                parts.append(Traced.made(raw[at : at + 2], Origin(sites, f"%{follower}")))
                at += 2
                continue
        parts.append(text[at : at + 1])
        at += 1
    return Traced.join(parts)


def expand(
    word: Word, environment: Mapping[str, Variable], *, missing_is_empty: bool
) -> tuple[Word, ...]:
    """What one word of ``ExecStart`` becomes at start: ``$VAR`` alone splits, ``${VAR}`` does not.

    A variable that is not in ``environment`` is empty, or with ``missing_is_empty`` False unknown
    and left as written.
    """
    raw = word.text.text
    if raw.startswith("$") and raw[1:2] not in ("{", "$"):
        variable = environment.get(raw[1:])
        if variable is not None:
            return _split(word, variable)
        if missing_is_empty:
            return ()
        return (Word(_unknown(word.text, 0, len(raw), raw[1:]), word.token),)
    return (Word(_replace(word.text, environment, missing_is_empty), word.token),)


def _split(word: Word, variable: Variable) -> tuple[Word, ...]:
    pieces = words_of(variable.value, c_escapes=False, relaxed=True)
    used = word.token
    if len(pieces) == 1:
        return (Word(pieces[0].text.used_at(used), used),)
    return tuple(
        Word(piece.text.used_at(used), variable.value.extent(piece.start, piece.end))
        for piece in pieces
    )


def _replace(text: Traced, environment: Mapping[str, Variable], missing_is_empty: bool) -> Traced:
    raw = text.text
    if "$" not in raw:
        return text
    parts: list[Traced] = []
    at = 0
    while at < len(raw):
        if raw.startswith("$$", at):
            parts.append(_one(text, at, at + 2, "$"))
            at += 2
            continue
        end = raw.find("}", at) if raw.startswith("${", at) else -1
        if end > 0:
            name = raw[at + 2 : end]
            variable = environment.get(name)
            if variable is not None:
                parts.append(variable.value.used_at(text.extent(at, end + 1)))
            elif not missing_is_empty:
                parts.append(_unknown(text, at, end + 1, name))
            at = end + 1
            continue
        parts.append(text[at : at + 1])
        at += 1
    return Traced.join(parts)


def _unknown(text: Traced, start: int, end: int, name: str) -> Traced:
    site = text.extent(start, end)
    origin = Origin((site,) if site is not None else (), name)
    return Traced.made(text.text[start:end], origin)
