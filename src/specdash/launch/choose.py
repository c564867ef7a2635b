"""Which command or variable of a file holds an engine's speculation settings. Never a guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from specdash.launch.command import Command, Parsed
from specdash.launch.errors import AmbiguousKnobError
from specdash.launch.flags import Spellings, Use, anchor_at, environment_uses, find_uses
from specdash.launch.jsontext import members
from specdash.launch.knobs import Field
from specdash.launch.systemd_words import words_of
from specdash.launch.trace import Site, Variable, Word

_SHOWN = 160
_TALKERS = frozenset(
    [
        "echo",
        "printf",
        "grep",
        "egrep",
        "fgrep",
        "sed",
        "awk",
        "test",
        "[",
        "[[",
        "cat",
        "logger",
        "log",
        ":",
        "tee",
        "tail",
        "head",
        "pkill",
        "pgrep",
        "kill",
        "killall",
        "which",
        "type",
        "hash",
        "cd",
        "ls",
        "mkdir",
        "cp",
        "mv",
        "rm",
        "chmod",
        "chown",
        "ln",
        "install",
        "pip",
        "pip3",
        "uv",
        "curl",
        "wget",
        "systemctl",
        "journalctl",
        "ps",
        "alias",
        "trap",
        "exit",
    ]
)
"""Programs that are given an engine's name or flags without starting it."""
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_CONTAINER_STARTS = frozenset({"run", "create", "exec", "container", "compose"})


@dataclass(slots=True)
class Choice:
    """What holds the settings: a command, or variables. ``words`` are what ``uses`` index.

    ``anchored``: the engine's program was seen, so that its flags are all there are. ``holders``
    are the names of the variables that ``words`` come from.
    """

    words: tuple[Word, ...] = ()
    uses: list[Use] = field(default_factory=list)
    command: Command | None = None
    anchored: bool = False
    start: int = 0
    others: list[Command] = field(default_factory=list)
    holders: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)


class Lines:
    """Says where something is, as ``path:line``."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def number(self, site: Site | None) -> int:
        if site is None or site.path not in self._texts:
            return 0
        return self._texts[site.path].count("\n", 0, site.start) + 1

    def show(self, site: Site | None, path: str) -> str:
        """``12: the line`` (with its path where that is another file)."""
        number = self.number(site)
        if site is None or not number:
            return f"{path}: (not written in a file)"
        line = self._texts[site.path].split("\n")[number - 1].strip()
        line = line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
        where = f"{number}" if site.path == path else f"{site.path}:{number}"
        return f"{where}: {line}"


def choose(
    parsed: Parsed,
    path: str,
    spellings: Spellings,
    service: str | None,
    holders: tuple[str, ...] = (),
) -> Choice:
    """The command or the variables that count. Raises AmbiguousKnobError where several may.

    ``holders``: variables that are known to hold arguments, whatever they look like now. A choice without uses and without a command means that nothing was found.
    """
    lines = Lines(parsed.texts)
    anchored: list[Choice] = []
    for command in parsed.commands:
        at = engine_at(command, spellings.knobs.anchors)
        if at is not None:
            uses = _uses(command, spellings, at, lines, path)
            anchored.append(Choice(command.words, uses, command, True, at))
    flagged: list[Choice] = []
    for command in () if anchored else parsed.commands:
        if not only_talks(command):
            uses = _uses(command, spellings, 0, lines, path)
            if any(use.words for use in uses):
                flagged.append(Choice(command.words, uses, command))
    candidates = _named(anchored or flagged, service)
    if candidates:
        chosen = _only(candidates, path, lines)
        chosen.others = [c.command for c in anchored if c is not chosen and c.command is not None]
        return chosen
    return _in_variables(parsed.variables, path, spellings, lines, holders)


def _uses(command: Command, spellings: Spellings, start: int, lines: Lines, path: str) -> list[Use]:
    try:
        return find_uses(command.words, spellings, command.environment, start)
    except AmbiguousKnobError as error:
        raise AmbiguousKnobError(
            f"{path}:{lines.number(command.site)}: {error.message}",
            remedy=error.remedy,
            evidence=(lines.show(command.site, path),),
        ) from None


def engine_at(command: Command, anchors: Sequence[str]) -> int | None:
    """The word by which a command starts an engine, if it does."""
    return None if only_talks(command) else anchor_at(command.argv, anchors)


def only_talks(command: Command) -> bool:
    """Whether a command is one that names engines and flags without starting anything."""
    program = command.argv[0].rsplit("/", 1)[-1]
    if program in _CONTAINERS:
        return not _CONTAINER_STARTS.intersection(command.argv[1:3])
    return program in _TALKERS


def _named(choices: list[Choice], service: str | None) -> list[Choice]:
    """Those an operator means by ``service``; all where the name fits none of them."""
    if service is None or len(choices) < 2:
        return choices
    named = [c for c in choices if c.command is not None and _means(c.command, service)]
    return named or choices


def _means(command: Command, service: str) -> bool:
    names = {command.label, *command.argv, *(word.rsplit("=", 1)[-1] for word in command.argv)}
    return service in names


def _only(choices: list[Choice], path: str, lines: Lines) -> Choice:
    if len(choices) == 1:
        return choices[0]
    speculating = [choice for choice in choices if choice.uses]
    sites = [choice.command.site for choice in choices if choice.command is not None]
    if len(speculating) == 1:
        other = ", ".join(str(lines.number(s)) for s in sites)
        speculating[0].warnings.append(
            f"The engine is started on lines {other}; only one of them has speculation flags,"
            " and that one is meant."
        )
        return speculating[0]
    if not speculating:
        return max(choices, key=lambda choice: len(choice.words))
    raise AmbiguousKnobError(
        f"{path} starts the engine {len(choices)} times, and it is not clear which is meant.",
        remedy="Name it with --service (config.service in the rig file): a function, the served"
        " model name or the port it is started with.",
        evidence=[lines.show(site, path) for site in sites],
    )


def variable_words(variable: Variable, spellings: Spellings) -> tuple[Word, ...]:
    """A variable's value as the arguments it would become."""
    if variable.words is not None:
        return variable.words
    value = variable.value
    pieces = words_of(value, c_escapes=False, relaxed=True)
    words = tuple(Word(p.text, value.extent(p.start, p.end)) for p in pieces)
    if _json_is_whole(words, spellings):
        return words
    # A shell does not look at quotes inside a variable; JSON written for one stays JSON so.
    plain: list[Word] = []
    at = 0
    for part in value.text.split():
        at = value.text.index(part, at)
        plain.append(Word(value[at : at + len(part)], value.extent(at, at + len(part))))
        at += len(part)
    return tuple(plain) if _json_is_whole(plain, spellings) else words


def _json_is_whole(words: Sequence[Word], spellings: Spellings) -> bool:
    for number, word in enumerate(words):
        flag, equals, rest = word.text.text.partition("=")
        if flag not in spellings.json_flags:
            continue
        value = word.text[len(word.text) - len(rest) :] if equals else None
        if value is None and number + 1 < len(words):
            value = words[number + 1].text
        if value is None or members(value) is None:
            return False
    return True


def _in_variables(
    variables: Sequence[Variable],
    path: str,
    spellings: Spellings,
    lines: Lines,
    known: tuple[str, ...],
) -> Choice:
    """Settings that are only given as the values of variables, for something that is not here."""
    last = {variable.name: variable for variable in variables}
    choice = Choice()
    holders: dict[Field, list[Variable]] = {}
    for variable in last.values():
        words = variable_words(variable, spellings)
        try:
            uses = find_uses(words, spellings, {})
        except AmbiguousKnobError as error:
            raise AmbiguousKnobError(
                f"{path}:{lines.number(variable.token)}: {error.message}", remedy=error.remedy
            ) from None
        arguments = any(word.text.text.startswith("-") for word in words)
        if not uses and not arguments and variable.name not in known:
            continue
        choice.holders += (variable.name,)
        for use in uses:
            if use.field is not None:
                holders.setdefault(use.field, []).append(variable)
        offset = len(choice.words)
        choice.words += words
        choice.uses += [_shifted(use, offset) for use in uses]
    given = set(holders)
    choice.uses += [u for u in environment_uses(last, spellings) if u.field not in given]
    for knob, found in holders.items():
        if len({variable.name for variable in found}) > 1:
            raise AmbiguousKnobError(
                f"{path} gives {knob} in {len(found)} variables, and which one the engine is"
                " started with is not written here.",
                remedy="Name the file that starts the engine, with --follow.",
                evidence=[lines.show(variable.token, path) for variable in found],
            )
    return choice


def _shifted(use: Use, offset: int) -> Use:
    return replace(use, words=tuple(index + offset for index in use.words))
