"""What one word of a shell becomes: variables, defaults, arrays, splitting. Origins are kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from specdash.launch.errors import UnreadableConfigError
from specdash.launch.shell_arithmetic import evaluate
from specdash.launch.shell_syntax import Arithmetic, Literal, Parameter, Part, RawWord
from specdash.launch.trace import Origin, Site, Traced, Word

_BLANK = re.compile(r"[ \t\n]+")
_OWN_FOLDER = re.compile(r"dirname\b.*(?:\$0|BASH_SOURCE)|\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}")
_DEEPEST = 16
_MOST_COPIED = 1_000_000
"""Characters that variables may hand on; variables that double each other pass it soon."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a variable holds: a scalar, or with ``words`` an array."""

    value: Traced
    words: tuple[Word, ...] | None
    site: Site | None
    exported: bool = False


@dataclass(slots=True)
class State:
    """What a shell knows at one point. ``positional`` None: given from outside, unknown here."""

    held: dict[str, Held] = field(default_factory=dict)
    positional: tuple[Word, ...] | None = None
    copied: int = 0


class Expander:
    """Expands the words of one script text in a :class:`State`."""

    def __init__(self, path: str, text: Traced, state: State) -> None:
        self.path = path
        self.text = text
        self.state = state

    # -- expansion -----------------------------------------------------------------------

    def expand(self, raw: RawWord) -> list[Word]:
        """The fields of one word: quotes removed, unquoted variables split."""
        token = self.text.extent(raw.start, raw.end)
        fields = Fields()
        for part in raw.parts:
            self._add(part, fields, split_literals=False)
        found = fields.done()
        if len(found) == 1:
            return [Word(found[0].text, token)]
        return tokens_apart(found)

    def _add(self, part: Part, fields: Fields, *, split_literals: bool) -> None:
        """Add one part; the argument of ``${A:-...}`` counts as if it were written in its place."""
        if isinstance(part, Literal):
            fields.add(self._literal(part), split=split_literals and not part.quoted)
        elif isinstance(part, Parameter) and self._argument_counts(part):
            for inner in part.argument:
                self._add(inner, fields, split_literals=not part.quoted)
        elif isinstance(part, Parameter) and self._is_list(part):
            self._add_list(part, fields)
        else:
            value = self.value_of(part)
            fields.add(value, split=not (part.quoted or value.unknown))

    def _is_list(self, part: Parameter) -> bool:
        if part.name in ("@", "*"):
            return True
        held = self.state.held.get(part.name)
        return part.index in ("@", "*") and held is not None and held.words is not None

    def _add_list(self, part: Parameter, fields: Fields) -> None:
        if part.operator in (":+", "+"):
            return  # the argument would count if there were any
        site = self.text.extent(part.start, part.end)
        if part.name in ("@", "*"):
            words: Sequence[Word] = self.state.positional or ()
        else:
            words = self.state.held[part.name].words or ()
        if part.quoted and "*" in (part.name, part.index):
            joined = Traced.join([word.text for word in words], Traced.made(" "))
            fields.add(joined.used_at(site), split=False)
        else:
            fields.add_list(words, site, split=not part.quoted)

    def _argument_counts(self, part: Parameter) -> bool:
        """Whether ``${NAME<operator>argument}`` is its argument here."""
        operator = part.operator
        if operator not in (":-", "-", ":=", "=", ":+", "+"):
            return False
        if self._is_list(part):
            held = self.state.held.get(part.name)
            words = self.state.positional if held is None else held.words
            present = bool(words)
        else:
            value = self._value_named(part)
            present = value is not None and (bool(value.text) or ":" not in operator)
        if operator in (":+", "+"):
            return present
        if not present and "=" in operator:
            site = self.text.extent(part.start, part.end)
            self.state.held[part.name] = Held(self.joined(part.argument), None, site)
        return not present

    def joined(self, parts: Sequence[Part]) -> Traced:
        """Parts put together without splitting: the value of an assignment."""
        values: list[Traced] = []
        for part in parts:
            if isinstance(part, Parameter) and self._argument_counts(part):
                values.append(self.joined(part.argument))
            elif isinstance(part, Parameter) and self._is_list(part):
                fields = Fields()
                self._add_list(part, fields)
                values.append(Traced.join([w.text for w in fields.done()], Traced.made(" ")))
            else:
                values.append(self.value_of(part))
        found = Traced.join(values)
        # What is copied is the text and, for each character, the chain of its uses.
        self.spend(len(found) * max((len(o.sites) for o in found.origins[:1]), default=1))
        return found

    def spend(self, characters: int) -> None:
        """Count what is copied. Raises UnreadableConfigError beyond all reason."""
        self.state.copied += characters
        if self.state.copied > _MOST_COPIED:
            raise UnreadableConfigError(
                f"{self.path} puts variables together that grow beyond every command line.",
                remedy="Name the file that holds the engine's flags.",
            )

    def value_of(self, part: Part) -> Traced:
        """The text of one part."""
        if isinstance(part, Literal):
            return self._literal(part)
        site = self.text.extent(part.start, part.end)
        if isinstance(part, Parameter):
            return self._parameter(part, site)
        if isinstance(part, Arithmetic):
            number = evaluate(part.expression, lambda name: self._number(name))
            if number is not None:
                return _computed(str(number), site)
            return _unknown(self.text, part.start, part.end, "$((...))")
        if _OWN_FOLDER.search(part.source):
            folder = self.path.rsplit("/", 1)[0] if "/" in self.path else "."
            return _computed(folder, site)
        return _unknown(self.text, part.start, part.end, part.source)

    def _literal(self, part: Literal) -> Traced:
        if not part.spans:
            return Traced.made("")
        begin, stop = part.spans[0][0], part.spans[-1][1]
        if stop - begin == len(part.text):
            return self.text[begin:stop]  # nothing escaped or joined
        origins: list[Origin] = []
        for start, end in part.spans:
            first = self.text.origin(start)
            site = self.text.extent(start, end)
            sites = () if site is None else (site, *first.sites[1:])
            origins.append(Origin(sites, first.unknown, first.rivals))
        return Traced(part.text, tuple(origins))

    def _parameter(self, part: Parameter, site: Site | None) -> Traced:
        """A parameter that is not its operator's argument."""
        operator = part.operator
        if operator in (":+", "+"):
            return Traced.made("")
        value = self._value_named(part)
        if value is None and part.name.isdigit() and self.state.positional is not None:
            return Traced.made("")
        if value is None or operator not in ("", ":-", "-", ":=", "=", ":?", "?"):
            return _unknown(self.text, part.start, part.end, part.name)
        return value.used_at(site)

    def _value_named(self, part: Parameter) -> Traced | None:
        if part.name.isdigit():
            number = int(part.name)
            if number == 0:
                return Traced.made(self.path)
            if self.state.positional is None:
                return None
            if number > len(self.state.positional):
                return None
            return self.state.positional[number - 1].text
        held = self.state.held.get(part.name)
        if held is None:
            return None
        if held.words is None:
            return held.value
        index = int(part.index) if part.index.isdigit() else 0
        return held.words[index].text if index < len(held.words) else Traced.made("")

    def _number(self, name: str) -> str | None:
        held = self.state.held.get(name)
        return None if held is None or held.value.unknown else held.value.text


class Fields:
    """Field splitting: what of a word joins, and where it breaks."""

    def __init__(self) -> None:
        self._done: list[Word] = []
        self._current: Traced | None = None
        self._token: Site | None = None

    def add(self, value: Traced, *, split: bool) -> None:
        if not split:
            self._join(value)
            return
        text = value.text
        at = 0
        for match in _BLANK.finditer(text):
            if match.start() > at:
                self._join(value[at : match.start()])
            self._break()
            at = match.end()
        if at < len(text):
            self._join(value[at:])

    def add_list(self, words: Sequence[Word], site: Site | None, *, split: bool) -> None:
        for number, word in enumerate(words):
            if number:
                self._break()
            if split:
                self.add(word.text.used_at(site), split=True)
            else:
                alone = self._current is None
                self._join(word.text.used_at(site))
                self._token = word.token if alone else None

    def _join(self, value: Traced) -> None:
        self._token = None
        self._current = value if self._current is None else self._current + value

    def _break(self) -> None:
        if self._current is not None:
            self._done.append(Word(self._current, self._token))
        self._current, self._token = None, None

    def done(self) -> list[Word]:
        self._break()
        return self._done


def tokens_apart(words: Sequence[Word]) -> list[Word]:
    """Words that one word became, each with the outermost range that writes it alone.

    A variable that gives several words is left for its value, and so on inwards.
    """
    tokens = [word.token for word in words]
    open_ones = [number for number, token in enumerate(tokens) if token is None]
    for level in range(1, _DEEPEST):
        if not open_ones:
            break
        for number in open_ones:
            tokens[number] = words[number].text.extent_at(level)
        open_ones = [
            number
            for number in open_ones
            if any(
                _overlap(tokens[number], other) for at, other in enumerate(tokens) if at != number
            )
        ]
    for number in open_ones:
        tokens[number] = None
    return [Word(word.text, token) for word, token in zip(words, tokens, strict=True)]


def _overlap(one: Site | None, other: Site | None) -> bool:
    return (
        one is not None
        and other is not None
        and one.path == other.path
        and one.start < other.end
        and other.start < one.end
    )


def _computed(text: str, site: Site | None) -> Traced:
    return Traced.made(text, Origin(() if site is None else (site,), computed=True))


def _unknown(text: Traced, start: int, end: int, name: str) -> Traced:
    site = text.extent(start, end)
    return Traced.made(text.text[start:end], Origin(() if site is None else (site,), name))
