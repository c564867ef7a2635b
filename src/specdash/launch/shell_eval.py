"""What the commands of a shell script become, as far as the files tell.

The script is walked once from top to bottom, every branch taken. Nothing is run: a command
substitution or a variable from outside stays as written and is marked as unknown. A variable
that a branch sets again has rivals: both assignments may hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from specdash.launch.command import Command, Parsed
from specdash.launch.errors import UnreadableConfigError
from specdash.launch.shell_expand import Expander, Held, State
from specdash.launch.shell_parse import parse_script
from specdash.launch.shell_syntax import Assignment, RawWord, Simple
from specdash.launch.shell_words import ShellTextError, unreadable
from specdash.launch.source import decode
from specdash.launch.trace import Reference, Site, Traced, Variable, Word

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
_DECLARERS = frozenset({"export", "declare", "local", "readonly", "typeset"})
_TRANSPARENT = frozenset({"exec", "command", "builtin"})
_EXPORTS_ALL = re.compile(r"[-+][a-zA-Z]*a[a-zA-Z]*\Z")
_NAME_VALUE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_DEEPEST = 8


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
    state = State(positional=None if positional is None else tuple(positional))
    for name, variable in (environment or {}).items():
        state.held[name] = Held(variable.value, None, variable.token, True)
    _Walk(path, text, parsed, others, state, depth).run()


class _Walk:
    """One text, command by command. Sourced files share the state, ``sh -c`` has its own."""

    def __init__(
        self,
        path: str,
        text: Traced,
        parsed: Parsed,
        others: Mapping[str, bytes],
        state: State,
        depth: int,
    ) -> None:
        self.path = path
        self.text = text
        self.parsed = parsed
        self.others = others
        self.state = state
        self.depth = depth
        self.expander = Expander(path, text, state)
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
        except RecursionError:
            raise UnreadableConfigError(
                f"{self.path} nests quotes and substitutions too deeply to be read.",
                remedy="Write the command in a plainer way.",
            ) from None
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
        saved = (self.state.positional, self.label, self.depth)
        self.state.positional, self.label, self.depth = arguments, name, self.depth + 1
        for command in body:
            self.simple(command)
        self.state.positional, self.label, self.depth = saved
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
            for word in (
                self.expander.expand(raw) if isinstance(raw, RawWord) else self._as_word(raw)
            )
        ]
        if words:
            self._run(words, own, self.text.extent(command.start, command.end))

    def _run(self, words: list[Word], own: Mapping[str, Held], site: Site | None) -> None:
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
            if self.state.positional:
                self.state.positional = self.state.positional[1:]
        elif program == "eval" and len(words) > 1:
            joined = Traced.join([w.text for w in words[1:]], Traced.made(" "))
            self._nested(joined, self.state)
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
            held = {n: Held(v.value, None, v.token, True) for n, v in environment.items()}
            self._nested(found[0], State(held, found[1]))

    def _nested(self, text: Traced, state: State) -> None:
        if self.depth >= _DEEPEST:
            return
        walk = _Walk(self.path, text, self.parsed, self.others, state, self.depth + 1)
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
        text = Traced.of_file(path, source.text)
        walk = _Walk(path, text, self.parsed, self.others, self.state, self.depth + 1)
        walk.functions = self.functions
        walk.all_exported = self.all_exported
        saved = self.state.positional
        self.state.positional = arguments or saved
        walk.run()
        self.state.positional = saved

    def _set(self, words: list[Word]) -> None:
        texts = [word.text.text for word in words]
        first = texts[0] if texts else ""
        if _EXPORTS_ALL.match(first) or (first[1:] == "o" and texts[1:2] == ["allexport"]):
            self.all_exported = first.startswith("-")
        if "--" in texts:
            self.state.positional = tuple(words[texts.index("--") + 1 :])

    # -- variables -----------------------------------------------------------------------

    def _declare(self, words: Sequence[RawWord | Assignment], *, exported: bool) -> None:
        for word in words:
            if isinstance(word, Assignment):
                self.assign(word, exported=exported)
            elif exported and (name := word.plain or "") in self.state.held:
                self.state.held[name] = replace(self.state.held[name], exported=True)
                self._publish(name)

    def assign(self, assignment: Assignment, *, exported: bool = False) -> None:
        """Set a variable; a branch that sets it again makes rivals."""
        new = self.held_by(assignment)
        old = self.state.held.get(assignment.name)
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
        self.state.held[assignment.name] = replace(new, exported=exported)
        self._record(assignment, new, exported=exported)

    def held_by(self, assignment: Assignment) -> Held:
        """What an assignment gives its variable."""
        site = self.text.extent(assignment.start, assignment.end)
        old = self.state.held.get(assignment.name) if assignment.append else None
        if assignment.words is not None:
            words = tuple(w for raw in assignment.words for w in self.expander.expand(raw))
            if old is not None:
                words = (
                    *(old.words or ((Word(old.value, old.site),) if old.value.text else ())),
                    *words,
                )
            self.expander.spend(sum(len(word.text) for word in words))
            return Held(Traced.made(""), words, site)
        value = self.expander.joined(assignment.value.parts)
        if old is not None:
            if old.words is not None:
                return Held(Traced.made(""), old.words, site)
            value = old.value + value
            self.expander.spend(len(value))
        return Held(value, None, site)

    def _record(self, assignment: Assignment, held: Held, *, exported: bool) -> None:
        value = held.value
        if held.words is not None:
            value = Traced.join([w.text for w in held.words], Traced.made(" "))
        self.parsed.variables.append(
            Variable(assignment.name, value, held.site, exported, held.words)
        )

    def _publish(self, name: str) -> None:
        held = self.state.held[name]
        self.parsed.variables.append(Variable(name, held.value, held.site, True))

    def _environment(self, own: Mapping[str, Held]) -> dict[str, Variable]:
        # A variable that is not exported does not reach the engine.
        reaching = {n: h for n, h in self.state.held.items() if h.exported and h.words is None}
        reaching |= {n: h for n, h in own.items() if h.words is None}
        return {n: Variable(n, h.value, h.site, True) for n, h in reaching.items()}

    def _as_word(self, assignment: Assignment) -> list[Word]:
        """``NAME=value`` as an argument (of ``env``)."""
        site = self.text.extent(assignment.start, assignment.end)
        name = self.text[assignment.start : assignment.value.start]
        return [Word(name + self.expander.joined(assignment.value.parts), site)]


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


def _is_empty(held: Held) -> bool:
    return not held.value.text and not held.words


def _may_hold(held: Held) -> bool:
    """Whether an earlier assignment could be the one that counts."""
    known = held.words is not None or not held.value.unknown
    return known and not _is_empty(held)
