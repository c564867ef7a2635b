"""A file without speculation flags: plainly off, or the flags are somewhere else."""

from __future__ import annotations

import re

from specdash.launch.choose import Choice, Lines
from specdash.launch.command import Parsed
from specdash.launch.errors import KnobElsewhereError, KnobNotFoundError
from specdash.launch.knobs import KnobTable
from specdash.launch.trace import Word

_HOLDS_FLAGS = re.compile(r"ARG|OPT|FLAG|EXTRA|SPEC|PARAM|CMD", re.IGNORECASE)
_SHOWN = 12
_SPECULATION_NAME = re.compile(r"SPEC|DRAFT|EAGLE", re.IGNORECASE)


def check_plainly_off(
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
    sites = [command.site for command in parsed.commands[:_SHOWN]]
    sites += [variable.token for variable in parsed.variables[:_SHOWN]]
    looked = [lines.show(site, path) for site in sites]
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
            evidence=[*(lines.show(r.site, path) for r in scripts), *looked][:_SHOWN],
        )
    return KnobNotFoundError(
        f"{path} has no speculation flags for {knobs.engine} and does not start it.",
        remedy="Name the file that holds them, or another engine with --engine. A plain value in"
        " an environment file is found from the unit or script that uses it, with --follow.",
        evidence=looked[:_SHOWN] or ("nothing in it sets or starts anything",),
    )
