"""What the commands of a shell script become, as far as the files tell.

The script is walked once from top to bottom, every branch taken. Nothing is run: a command
substitution or a variable from outside stays as written and is marked as unknown. A variable
that a branch sets again has rivals: both assignments may hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from specdash.launch.command import Command, Parsed
from specdash.launch.shell_arithmetic import evaluate
from specdash.launch.shell_parse import parse_script
from specdash.launch.shell_syntax import (
    Arithmetic,
    Assignment,
    Literal,
    Opaque,
    Parameter,
    Part,
    RawWord,
    Simple,
)
from specdash.launch.shell_words import ShellTextError, unreadable
from specdash.launch.source import decode
from specdash.launch.trace import Origin, Reference, Site, Traced, Variable, Word

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
_BLANK = re.compile(r"[ \t\n]+")
_DECLARERS = frozenset({"export", "declare", "local", "readonly", "typeset"})
_TRANSPARENT = frozenset({"exec", "command", "builtin"})
_OWN_FOLDER = re.compile(r"dirname\b.*(?:\$0|BASH_SOURCE)|\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}")
_NAME_VALUE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class _Held:
    """What a variable holds: a scalar, or with ``words`` an array."""

    value: Traced
    words: tuple[Word, ...] | None
    site: Site | None
    exported: bool = False


def evaluate_script(
    path: str,
    text: Traced,
    parsed: Parsed,
    others: Mapping[str, bytes],
    *,
    environment: Mapping[str, Variable] | None = None,
    positional: Sequence[Word] | None = None,
    depth: int = 0,
) -> None:
    """Add to ``parsed`` the commands, variables and references of a script.

    ``text`` may be a whole file or a string given to ``sh -c``. ``environment`` and
    ``positional`` are what its caller gives it, where that is known.
    """
    walk = _Walk(path, text, parsed, others, depth)
    for name, variable in (environment or {}).items():
        walk.held[name] = _Held(variable.value, None, variable.token, True)
    walk.positional = None if positional is None else tuple(positional)
    walk.run()


class _Walk:
    def __init__(
        self, path: str, text: Traced, parsed: Parsed, others: Mapping[str, bytes], depth: int
    ) -> None:
        self.path = path
        self.text = text
        self.parsed = parsed
        self.others = others
        self.depth = depth
        self.held: dict[str, _Held] = {}
        self.positional: tuple[Word, ...] | None = None
        self.functions: dict[str, tuple[_Walk, list[Simple]]] = {}
        self.called: set[str] = set()
        self.active: set[str] = set()
        self.all_exported = False
        self.label = ""
        self.conditional = False

    # -- walking -------------------------------------------------------------------------

    def run(self) -> None:
        try:
            script = parse_script(self.text.text)
        except ShellTextError as error:
            site = self.text.extent(error.at, error.at + 1)
            line = 0
            if site is not None and site.path in self.parsed.texts:
                line = self.parsed.texts[site.path].count("\n", 0, site.start) + 1
            raise unreadable(site.path if site else self.path, line, error.what) from None
        for start, end in script.heredocs:
            site = self.text.extent(start, end)
            if site is not None:
                self.parsed.hidden.append((site, self.text.text[start:end]))
        for name, body in script.functions.items():
            self.functions[name] = (self, body)
        for command in script.commands:
            self.simple(command)
        for name, body in script.functions.items():
            if name not in self.called:
                self._call(name, body, None)

    def _call(self, name: str, body: list[Simple], arguments: tuple[Word, ...] | None) -> None:
        if self.depth >= _DEEPEST:
            return
        self.called.add(name)
        self.active.add(name)
        saved = (self.positional, self.label, self.depth)
        self.positional, self.label, self.depth = arguments, name, self.depth + 1
        for command in body:
            self.simple(command)
        self.positional, self.label, self.depth = saved
        self.active.discard(name)

    def simple(self, command: Simple) -> None:
        """One simple command."""
        self.conditional = command.conditional
        if not command.words:
            for assignment in command.assignments:
                self.assign(assignment)
            return
        own = {a.name: self.held_by(a) for a in command.assignments}
        for assignment in command.assignments:
            self._record(assignment, own[assignment.name], exported=True)
        first = command.words[0]
        program = first.plain if isinstance(first, RawWord) else None
        if program in _DECLARERS:
            self._declare(command.words[1:], exported=program == "export")
            return
        words = [
            word
            for raw in command.words
            for word in (self.expand(raw) if isinstance(raw, RawWord) else self._as_word(raw))
        ]
        if words:
            self._run(words, own, self.text.extent(command.start, command.end))

    def _run(self, words: list[Word], own: Mapping[str, _Held], site: Site | None) -> None:
        words = _without_transparent(words)
        if not words:
            return
        program = words[0].text.text
        if program in self.functions and program not in self.functions[program][0].active:
            walk, body = self.functions[program]
            walk._call(program, body, tuple(words[1:]))
            return
        if program in ("source", ".") and len(words) > 1:
            self._source(words[1], tuple(words[2:]))
        elif program == "set":
            self._set(words[1:])
        elif program == "shift":
            if self.positional:
                self.positional = self.positional[1:]
        elif program == "eval" and len(words) > 1:
            joined = Traced.join([w.text for w in words[1:]], Traced.made(" "))
            self._nested(joined, self.positional, self.held)
        else:
            environment = self._environment(own)
            environment.update(_given_on_the_line(words))
            self.parsed.commands.append(
                Command(tuple(words), environment, site, self.label, self.conditional)
            )
            self._inner_shell(words, environment)

    def _inner_shell(self, words: list[Word], environment: Mapping[str, Variable]) -> None:
        """``bash -c 'string' name args`` anywhere in the command."""
        found = shell_string(words)
        if found is not None:
            string, arguments = found
            held = {n: _Held(v.value, None, v.token, True) for n, v in environment.items()}
            self._nested(string, arguments, held)

    def _nested(
        self, text: Traced, positional: tuple[Word, ...] | None, held: Mapping[str, _Held]
    ) -> None:
        if self.depth >= _DEEPEST:
            return
        walk = _Walk(self.path, text, self.parsed, self.others, self.depth + 1)
        walk.held = dict(held)
        walk.positional = positional
        walk.label = self.label
        walk.functions = dict(self.functions)
        walk.run()

    def _source(self, word: Word, arguments: tuple[Word, ...]) -> None:
        path = word.text.text
        if word.text.unknown:
            self.parsed.warnings.append(f"A sourced file could not be named: {path}")
            return
        self.parsed.references.append(Reference("sourced", path, word.token))
        data = self.others.get(path)
        if data is None or self.depth >= _DEEPEST:
            return
        source = decode(path, data)
        self.parsed.texts[path] = source.text
        walk = _Walk(
            path, Traced.of_file(path, source.text), self.parsed, self.others, self.depth + 1
        )
        walk.held = self.held
        walk.positional = arguments or self.positional
        walk.functions = self.functions
        walk.all_exported = self.all_exported
        walk.run()

    def _set(self, words: list[Word]) -> None:
        texts = [word.text.text for word in words]
        if texts in (["-a"], ["-o", "allexport"], ["+a"], ["+o", "allexport"]):
            self.all_exported = texts[0].startswith("-")
        if "--" in texts:
            self.positional = tuple(words[texts.index("--") + 1 :])

    # -- variables -----------------------------------------------------------------------

    def _declare(self, words: Sequence[RawWord | Assignment], *, exported: bool) -> None:
        for word in words:
            if isinstance(word, Assignment):
                self.assign(word, exported=exported)
            elif exported and (name := word.plain or "") in self.held:
                self.held[name] = replace(self.held[name], exported=True)
                self._publish(name)

    def assign(self, assignment: Assignment, *, exported: bool = False) -> None:
        """Set a variable; a branch that sets it again makes rivals."""
        new = self.held_by(assignment)
        old = self.held.get(assignment.name)
        exported = exported or self.all_exported
        if old is not None:
            exported = exported or old.exported
            if self.conditional and _is_empty(new) and not _is_empty(old):
                # A branch that empties it (a baseline) takes nothing away from the place that
                # holds the value.
                self._record(assignment, new, exported=exported)
                return
            if (
                self.conditional
                and not assignment.append
                and old.site is not None
                and _may_hold(old)
            ):
                new = replace(
                    new,
                    value=new.value.with_rivals((old.site,)),
                    words=None
                    if new.words is None
                    else tuple(Word(w.text.with_rivals((old.site,)), w.token) for w in new.words),
                )
        self.held[assignment.name] = replace(new, exported=exported)
        self._record(assignment, new, exported=exported)

    def held_by(self, assignment: Assignment) -> _Held:
        """What an assignment gives its variable."""
        site = self.text.extent(assignment.start, assignment.end)
        old = self.held.get(assignment.name) if assignment.append else None
        if assignment.words is not None:
            words = tuple(w for raw in assignment.words for w in self.expand(raw))
            if old is not None:
                words = (
                    *(old.words or ((Word(old.value, old.site),) if old.value.text else ())),
                    *words,
                )
            return _Held(Traced.made(""), words, site)
        value = self.joined(assignment.value.parts)
        if old is not None:
            if old.words is not None:
                return _Held(Traced.made(""), old.words, site)
            value = old.value + value
        return _Held(value, None, site)

    def _record(self, assignment: Assignment, held: _Held, *, exported: bool) -> None:
        value = held.value
        if held.words is not None:
            value = Traced.join([w.text for w in held.words], Traced.made(" "))
        self.parsed.variables.append(
            Variable(assignment.name, value, held.site, exported, held.words)
        )

    def _publish(self, name: str) -> None:
        held = self.held[name]
        self.parsed.variables.append(Variable(name, held.value, held.site, True))

    def _environment(self, own: Mapping[str, _Held]) -> dict[str, Variable]:
        # A variable that is not exported does not reach the engine.
        reaching = {n: h for n, h in self.held.items() if h.exported and h.words is None}
        reaching |= {n: h for n, h in own.items() if h.words is None}
        return {n: Variable(n, h.value, h.site, True) for n, h in reaching.items()}

    def _as_word(self, assignment: Assignment) -> list[Word]:
        """``NAME=value`` as an argument (of ``env``)."""
        site = self.text.extent(assignment.start, assignment.end)
        name = self.text[assignment.start : assignment.value.start]
        return [Word(name + self.joined(assignment.value.parts), site)]

    # -- expansion -----------------------------------------------------------------------

    def expand(self, raw: RawWord) -> list[Word]:
        """The fields of one word: quotes removed, unquoted variables split."""
        token = self.text.extent(raw.start, raw.end)
        fields = _Fields()
        for part in raw.parts:
            if isinstance(part, Parameter) and self._is_list(part):
                self._expand_list(part, fields)
            else:
                value = self.value_of(part)
                quoted = isinstance(part, Literal) or part.quoted or bool(value.unknown)
                fields.add(value, split=not quoted)
        found = fields.done()
        if len(found) == 1:
            return [Word(found[0].text, token)]
        return tokens_apart(found)

    def _is_list(self, part: Parameter) -> bool:
        if part.name in "@*":
            return True
        held = self.held.get(part.name)
        return part.index in ("@", "*") and held is not None and held.words is not None

    def _expand_list(self, part: Parameter, fields: _Fields) -> None:
        site = self.text.extent(part.start, part.end)
        if part.name in "@*":
            words = self.positional
            if words is None:
                words = ()
                if part.argument:
                    fields.add(self.joined(part.argument), split=not part.quoted)
        else:
            words = self.held[part.name].words or ()
        if part.quoted and "*" in (part.name, part.index):
            joined = Traced.join([word.text for word in words], Traced.made(" "))
            fields.add(joined.used_at(site), split=False)
            return
        fields.add_list(words, site, split=not part.quoted)

    def joined(self, parts: Sequence[Part]) -> Traced:
        """Parts put together without splitting: the value of an assignment."""
        values: list[Traced] = []
        for part in parts:
            if isinstance(part, Parameter) and self._is_list(part):
                fields = _Fields()
                self._expand_list(part, fields)
                values.append(Traced.join([w.text for w in fields.done()], Traced.made(" ")))
            else:
                values.append(self.value_of(part))
        return Traced.join(values)

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
        origins: list[Origin] = []
        for start, end in part.spans:
            first = self.text.origin(start)
            site = self.text.extent(start, end)
            sites = () if site is None else (site, *first.sites[1:])
            origins.append(Origin(sites, first.unknown, first.rivals))
        return Traced(part.text, tuple(origins))

    def _parameter(self, part: Parameter, site: Site | None) -> Traced:
        value = self._value_named(part)
        empty = value is not None and not value.text
        operator = part.operator
        if (operator in (":-", ":=") and empty) or (
            operator in (":-", ":=", "-", "=") and value is None
        ):
            value = self.joined(part.argument)
        elif operator in (":+", "+"):
            value = Traced.made("") if value is None or empty else self.joined(part.argument)
        elif operator in (":?", "?", ""):
            pass
        elif value is not None and operator not in (":-", ":=", "-", "="):
            return _unknown(self.text, part.start, part.end, part.name)
        if operator in (":=", "=") and value is not None and part.name not in self.held:
            self.held[part.name] = _Held(value, None, site)
        if value is None:
            if part.name.isdigit() and self.positional is not None:
                return Traced.made("")
            return _unknown(self.text, part.start, part.end, part.name)
        return value.used_at(site)

    def _value_named(self, part: Parameter) -> Traced | None:
        if part.name.isdigit():
            number = int(part.name)
            if number == 0:
                return Traced.made(self.path)
            if self.positional is None:
                return None
            if number > len(self.positional):
                return None
            return self.positional[number - 1].text
        held = self.held.get(part.name)
        if held is None:
            return None
        if held.words is None:
            return held.value
        index = int(part.index) if part.index.isdigit() else 0
        return held.words[index].text if index < len(held.words) else Traced.made("")

    def _number(self, name: str) -> str | None:
        held = self.held.get(name)
        return None if held is None or held.value.unknown else held.value.text


class _Fields:
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
    for level in range(1, _DEEPEST * 2):
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


def shell_string(words: Sequence[Word]) -> tuple[Traced, tuple[Word, ...]] | None:
    """The script of ``sh -c SCRIPT NAME ARGS`` in a command, and its positional arguments."""
    for at, word in enumerate(words):
        if word.text.text.rsplit("/", 1)[-1] not in SHELLS:
            continue
        for here in range(at + 1, len(words) - 1):
            option = words[here].text.text
            if not option.startswith("-"):
                break
            if not option.startswith("--") and option.endswith("c"):
                return words[here + 1].text, tuple(words[here + 3 :])
    return None


def _without_transparent(words: list[Word]) -> list[Word]:
    """The command behind ``exec`` and its like."""
    at = 0
    while at < len(words) and words[at].text.text in _TRANSPARENT:
        at += 1
        asks = words[at - 1].text.text == "command"
        while at < len(words) and words[at].text.text.startswith("-"):
            if asks and words[at].text.text in ("-v", "-V"):
                return []
            at += 2 if words[at].text.text == "-a" else 1
    return words[at:]


def _given_on_the_line(words: Sequence[Word]) -> dict[str, Variable]:
    """``env A=b program`` and ``docker run -e A=b``: variables given as arguments."""
    found: dict[str, Variable] = {}
    for word in words:
        match = _NAME_VALUE.match(word.text.text)
        if match is not None:
            name = match.group(1)
            found[name] = Variable(name, word.text[match.end() :], word.token)
    return found


def _is_empty(held: _Held) -> bool:
    return not held.value.text and not held.words


def _may_hold(held: _Held) -> bool:
    """Whether an earlier assignment could be the one that counts."""
    known = held.words is not None or not held.value.unknown
    return known and not _is_empty(held)


def _computed(text: str, site: Site | None) -> Traced:
    return Traced.made(text, Origin(() if site is None else (site,), computed=True))


def _unknown(text: Traced, start: int, end: int, name: str) -> Traced:
    site = text.extent(start, end)
    return Traced.made(text.text[start:end], Origin(() if site is None else (site,), name))


__all__ = ["SHELLS", "Opaque", "evaluate_script", "shell_string"]
