"""From a file to the scripts its commands run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specdash.launch.choose import engine_at, only_talks
from specdash.launch.command import Command, Parsed
from specdash.launch.forms import parse
from specdash.launch.shell_eval import SHELLS, evaluate_script, shell_string
from specdash.launch.source import Source, decode
from specdash.launch.trace import Reference, Traced, Word

_MOST_INSIDE = 64


def parse_all(source: Source, anchors: Sequence[str], others: Mapping[str, bytes]) -> Parsed:
    """Read a file by its form, with the scripts its commands run as far as they are given.

    ``anchors`` are the engines' program words: where one of them is started in the file itself,
    no script is looked into. Raises UnsupportedFormError and UnreadableConfigError.
    """
    parsed = parse(source, others)
    if not any(engine_at(command, anchors) is not None for command in parsed.commands):
        _follow_scripts(parsed, source, anchors, others)
    return parsed


def _follow_scripts(
    parsed: Parsed, source: Source, anchors: Sequence[str], others: Mapping[str, bytes]
) -> None:
    """Read ``sh -c`` strings; name the scripts that commands run, and read those that are given."""
    seen: set[str] = {source.path}
    inside: set[str] = set()
    at = 0
    while at < len(parsed.commands):
        command = parsed.commands[at]
        at += 1
        inner = _inner_script(command, anchors, parsed.form)
        if inner is not None:
            # What cannot be split any further would lead to itself for ever.
            if inner[0].text in inside or len(inside) >= _MOST_INSIDE:
                continue
            inside.add(inner[0].text)
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


def _inner_script(
    command: Command, anchors: Sequence[str], form: str
) -> tuple[Traced, tuple[Word, ...]] | None:
    """A script given as one argument: ``sh -c '...'``, ``tmux new -d '...'``, ``ssh host '...'``."""
    # In a script the shell's own strings were read along with it.
    found = shell_string(command.words)
    if found is not None:
        return found if form == "systemd" else None
    if only_talks(command):
        return None
    programs = [anchor.split()[0] for anchor in anchors]
    for word in command.words:
        text = word.text.text
        if any(char.isspace() for char in text) and any(name in text for name in programs):
            return word.text, ()
    return None


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
