"""Read a launch config: what it says about speculation, and exactly where.

``read_config`` takes the bytes of one file and, where the caller has them, of the files it leads
to (environment files, scripts). It does no I/O: a caller that wants to follow reads
``Reading.references`` and asks again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from specdash.core.settings import OFF, Settings
from specdash.launch.choose import Choice, Lines, choose
from specdash.launch.command import Command, Parsed
from specdash.launch.errors import (
    AmbiguousKnobError,
    KnobElsewhereError,
    KnobNotFoundError,
    LaunchConfigError,
    UnreadableConfigError,
    UnsupportedFormError,
)
from specdash.launch.flags import Spellings, Use, anchor_at, last_uses
from specdash.launch.forms import parse
from specdash.launch.jsontext import members
from specdash.launch.knobs import Field, KnobTable
from specdash.launch.shell_eval import SHELLS, evaluate_script, shell_string
from specdash.launch.source import Source, decode
from specdash.launch.trace import Reference, Site, Traced, Variable, Word

_WHOLE = re.compile(r"[0-9]{1,9}\Z")
_HOLDS_FLAGS = re.compile(r"ARG|OPT|FLAG|EXTRA|SPEC|PARAM|CMD", re.IGNORECASE)
_SPECULATION_NAME = re.compile(r"SPEC|DRAFT|EAGLE", re.IGNORECASE)
_NUMBERS: tuple[Field, ...] = ("num_steps", "eagle_topk", "num_draft_tokens")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is written: 1-based line, byte offsets ``[start, end)`` in ``path``."""

    path: str
    line: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What a launch config says.

    ``settings``: None where it says nothing (or leaves it to something unread); core's OFF where
    the engine is started without speculation. ``argv``: the command's arguments as the launcher
    will see them, as far as the files tell; for an environment file the arguments in its
    variables. ``places``: where each setting's value is written. ``references``: files it leads
    to. ``words`` and ``uses`` are the editor's.
    """

    path: str
    data: bytes
    form: str
    settings: Settings
    argv: tuple[str, ...]
    places: Mapping[Field, Place]
    references: tuple[Reference, ...]
    variables: tuple[Variable, ...]
    warnings: tuple[str, ...]
    knobs: KnobTable
    service: str | None = None
    others: Mapping[str, bytes] = field(default_factory=dict)
    words: tuple[Word, ...] = ()
    uses: tuple[Use, ...] = ()
    start: int = 0
    rest: tuple[tuple[str, ...], ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def off(self) -> bool:
        """Whether the engine is started without speculation."""
        return self.settings.enabled is False

    def source(self, path: str) -> Source:
        """One of the files that were read."""
        return Source(path, self.texts[path])

    def where(self, site: Site | None) -> str:
        """``path:line`` of a place."""
        if site is None or site.path not in self.texts:
            return self.path
        return f"{site.path}:{self.source(site.path).line_of(site.start)}"

    def again(self, changed: Mapping[str, bytes]) -> Reading:
        """The reading with some of its files' bytes replaced."""
        return read_config(
            self.path,
            changed.get(self.path, self.data),
            self.knobs,
            service=self.service,
            others={path: changed.get(path, data) for path, data in self.others.items()},
            known_off=True,
        )


def read_config(
    path: str,
    data: bytes,
    knobs: KnobTable,
    *,
    service: str | None = None,
    others: Mapping[str, bytes] | None = None,
    known_off: bool = False,
) -> Reading:
    """What the file says about speculation for the engine of ``knobs``.

    ``service`` settles which of several commands is meant. ``others``: the bytes of files this
    one leads to, by the path as it is written there. ``known_off``: a file that says nothing at
    all reads as off (it held the settings before they were removed).

    Raises UnreadableConfigError, UnsupportedFormError, KnobNotFoundError, KnobElsewhereError and
    AmbiguousKnobError, all with the lines that were looked at.
    """
    others = dict(others or {})
    source = decode(path, data)
    if not source.text.strip("\ufeff \t\r\n"):
        raise KnobNotFoundError(
            f"{path} is empty.", remedy="Name the file that holds the engine's flags."
        )
    spellings = Spellings(knobs)
    parsed = parse(source, others)
    _follow_scripts(parsed, source, knobs, others)
    choice = choose(parsed, path, spellings, service)
    lines = Lines(parsed.texts)
    warnings = [*parsed.warnings, *choice.warnings]
    settings = _settings(choice, path, knobs, lines, warnings)
    if settings is None:
        _check_plainly_off(choice, parsed, path, knobs, lines, known_off)
        settings = OFF
    warnings += _remarks(choice, knobs)
    return Reading(
        path=path,
        data=data,
        form=parsed.form,
        settings=settings,
        argv=tuple(word.text.text for word in choice.words),
        places=_places(choice, parsed.texts),
        references=tuple(dict.fromkeys(parsed.references)),
        variables=tuple(parsed.variables),
        warnings=tuple(dict.fromkeys(warnings)),
        knobs=knobs,
        service=service,
        others=others,
        words=choice.words,
        uses=tuple(choice.uses),
        start=choice.start,
        rest=tuple(command.argv for command in choice.others),
        texts=parsed.texts,
    )


# -- scripts a unit or a script starts -------------------------------------------------------


def _follow_scripts(
    parsed: Parsed, source: Source, knobs: KnobTable, others: Mapping[str, bytes]
) -> None:
    """Read ``sh -c`` strings; name the scripts that commands run, and read those that are given."""
    if any(anchor_at(command.argv, knobs.anchors) is not None for command in parsed.commands):
        return
    seen: set[str] = {source.path}
    at = 0
    while at < len(parsed.commands):
        command = parsed.commands[at]
        at += 1
        inner = shell_string(command.words) if parsed.form == "systemd" else None
        if inner is not None:
            evaluate_script(
                source.path,
                inner[0],
                parsed,
                others,
                environment=command.environment,
                positional=inner[1],
            )
            continue
        found = _script_of(command, any_program=parsed.form == "systemd")
        if found is None:
            continue
        number, path = found
        parsed.references.append(Reference("script", path, command.words[number].token))
        data = others.get(path)
        if data is None or path in seen:
            continue
        seen.add(path)
        text = decode(path, data).text
        parsed.texts[path] = text
        evaluate_script(
            path,
            Traced.of_file(path, text),
            parsed,
            others,
            environment=command.environment,
            positional=command.words[number + 1 :],
        )


def _script_of(command: Command, *, any_program: bool) -> tuple[int, str] | None:
    """The script a command runs, by its word's number, if it runs one."""
    shell = False
    for number, word in enumerate(command.argv):
        base = word.rsplit("/", 1)[-1]
        if base in SHELLS:
            shell = True
        elif base in ("env", "nohup", "sudo") or word.startswith("-") or "=" in word:
            if shell and word.endswith("c") and not word.startswith("--"):
                return None
        elif "/" in word and (any_program or shell or base.endswith((".sh", ".bash"))):
            return None if command.words[number].text.unknown else (number, word)
        else:
            return None
    return None


# -- values ----------------------------------------------------------------------------------


def _settings(
    choice: Choice, path: str, knobs: KnobTable, lines: Lines, warnings: list[str]
) -> Settings | None:
    """The settings that the uses give; None where there are none."""
    if not choice.uses:
        return None
    counting = last_uses(choice.uses)
    _say_repeated(choice, lines, warnings)
    texts: dict[Field, str] = {}
    numbers: dict[Field, int] = {}
    for knob, use in counting.items():
        value = use.value
        if value is None or value.unknown:
            continue
        if value.rivals and knob in _NUMBERS:
            raise AmbiguousKnobError(
                f"{path} sets {use.spelling} to {value.text} or to something else, as a branch"
                " decides.",
                remedy="Set the value in one place.",
                evidence=[lines.show(site, path) for site in (*value.rivals, value.outer_extent())],
            )
        if knob not in _NUMBERS:
            texts[knob] = value.text
        elif _WHOLE.match(value.text):
            numbers[knob] = int(value.text)
        else:
            warnings.append(f"{use.spelling} is {value.text!r}, which is not a whole number.")
    for knob, off in knobs.off_values:
        if texts.get(knob, "").lower() == off:
            return OFF
    if numbers.get("num_steps") == 0:
        return OFF
    return Settings(
        algorithm=texts.get("algorithm"),
        num_steps=numbers.get("num_steps"),
        eagle_topk=numbers.get("eagle_topk"),
        num_draft_tokens=numbers.get("num_draft_tokens"),
        draft_model=texts.get("draft_model"),
        enabled=True,
    )


def _say_repeated(choice: Choice, lines: Lines, warnings: list[str]) -> None:
    counting = last_uses(choice.uses)
    for use in choice.uses:
        if use.field is None or counting[use.field] is use:
            continue
        last = counting[use.field]
        number = lines.number(None if last.value is None else last.value.outer_extent())
        warnings.append(
            f"{use.spelling} is given more than once; the last one, on line {number}, counts."
        )


def _remarks(choice: Choice, knobs: KnobTable) -> list[str]:
    said: list[str] = []
    for name, remark in knobs.remarks:
        for use in choice.uses:
            inside = members(use.value) if use.field is None and use.value is not None else None
            if use.name == name or (inside is not None and name in inside):
                said.append(remark)
    return said


def _places(choice: Choice, texts: Mapping[str, str]) -> dict[Field, Place]:
    places: dict[Field, Place] = {}
    for knob, use in last_uses(choice.uses).items():
        site = None if use.value is None else use.value.written()
        if site is not None and site.path in texts:
            source = Source(site.path, texts[site.path])
            start, end = source.byte_span(site.start, site.end)
            places[knob] = Place(site.path, source.line_of(site.start), start, end)
    return places


# -- nothing found ---------------------------------------------------------------------------


def _check_plainly_off(
    choice: Choice,
    parsed: Parsed,
    path: str,
    knobs: KnobTable,
    lines: Lines,
    known_off: bool,
) -> None:
    """Return where the file says that speculation is off; raise where it may be elsewhere."""
    if choice.command is None:
        if known_off or (parsed.form != "systemd" and _emptied(parsed)):
            return
        raise _not_found(parsed, path, knobs, lines)
    for number in range(choice.start + 1, len(choice.words)):
        word = choice.words[number]
        argv = choice.command.argv
        if any(argv[number].split("=", 1)[0] == flag for flag in knobs.config_flags):
            file = argv[number].partition("=")[2] or "".join(argv[number + 1 : number + 2])
            raise KnobElsewhereError(
                f"{path} has no speculation flags, but {argv[number]} names a file that may have"
                f" them: {file or 'unnamed'}.",
                path=file,
                remedy="Name that file; YAML is not edited yet.",
                evidence=(lines.show(word.token, path),),
            )
        if _may_hold_flags(choice, number):
            raise _hidden_in(word, parsed, path, lines)


def _may_hold_flags(choice: Choice, number: int) -> bool:
    """Whether an unknown word could be more flags, and not just a value."""
    word = choice.words[number]
    text = word.text.text
    unknown = word.text.unknown
    if not unknown or not text.startswith("$") or not all(o.unknown for o in word.text.origins):
        return False
    before = choice.words[number - 1].text.text
    is_value = before.startswith("-") and "=" not in before
    return _HOLDS_FLAGS.search(unknown) is not None or not is_value


def _hidden_in(word: Word, parsed: Parsed, path: str, lines: Lines) -> KnobNotFoundError:
    name = word.text.unknown
    evidence = [lines.show(word.token, path)]
    unread = [r for r in parsed.references if r.path not in parsed.texts]
    if unread:
        evidence += [lines.show(reference.site, path) for reference in unread]
        return KnobElsewhereError(
            f"{path} has no speculation flags of its own; {name} may hold them, and it is set in"
            f" {' or '.join(r.path for r in unread)}.",
            path=unread[0].path,
            remedy=f"Edit {unread[0].path}, or use --follow.",
            evidence=evidence,
        )
    return KnobNotFoundError(
        f"{path} has no speculation flags of its own, and {name}, which may hold them, is set"
        " outside it.",
        remedy="Name the file that sets it.",
        evidence=evidence,
    )


def _emptied(parsed: Parsed) -> bool:
    """Whether a variable that is named for speculation is there and empty."""
    return any(
        not variable.value.text and _SPECULATION_NAME.search(variable.name)
        for variable in parsed.variables
    )


def _not_found(parsed: Parsed, path: str, knobs: KnobTable, lines: Lines) -> KnobNotFoundError:
    looked = [lines.show(command.site, path) for command in parsed.commands]
    looked += [lines.show(variable.token, path) for variable in parsed.variables]
    names = [flag.name for flag in knobs.flags]
    for site, body in parsed.hidden:
        if any(name in body for name in names):
            looked.append(f"{lines.number(site)}: a here-document that is not edited has them")
    unread = [r for r in parsed.references if r.path not in parsed.texts]
    scripts = [r for r in unread if r.kind != "env-file"] or unread
    if scripts:
        named = " or ".join(dict.fromkeys(r.path for r in scripts))
        return KnobElsewhereError(
            f"{path} has no speculation flags for {knobs.engine}; it leads to {named}.",
            path=scripts[0].path,
            remedy=f"Edit {scripts[0].path}, or use --follow.",
            evidence=[*(lines.show(r.site, path) for r in scripts), *looked][:12],
        )
    return KnobNotFoundError(
        f"{path} has no speculation flags for {knobs.engine} and does not start it.",
        remedy="Name the file that holds them, or another engine with --engine. A plain value in"
        " an environment file is found from the unit or script that uses it, with --follow.",
        evidence=looked[:12] or ("nothing in it sets or starts anything",),
    )


__all__ = [
    "AmbiguousKnobError",
    "KnobElsewhereError",
    "KnobNotFoundError",
    "LaunchConfigError",
    "Place",
    "Reading",
    "UnreadableConfigError",
    "UnsupportedFormError",
    "read_config",
]
