"""From a file to the scripts its commands run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specdash.launch.choose import engine_at
from specdash.launch.command import Command, Parsed
from specdash.launch.forms import parse
from specdash.launch.shell_eval import SHELLS, evaluate_script, shell_string
from specdash.launch.source import Source, decode
from specdash.launch.trace import Reference, Traced


def parse_all(source: Source, anchors: Sequence[str], others: Mapping[str, bytes]) -> Parsed:
    """Read a file by its form, with the scripts its commands run as far as they are given.

    ``anchors`` are the engines' program words: where one of them is started in the file itself,
    no script is looked into. Raises UnsupportedFormError and UnreadableConfigError.
    """
    parsed = parse(source, others)
    if not any(engine_at(command, anchors) is not None for command in parsed.commands):
        _follow_scripts(parsed, source, others)
    return parsed


def _follow_scripts(parsed: Parsed, source: Source, others: Mapping[str, bytes]) -> None:
    """Read ``sh -c`` strings; name the scripts that commands run, and read those that are given."""
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
