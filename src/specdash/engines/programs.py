"""Which command lines are an engine's own processes, from ``ps``. Pure.

A word somewhere in a command line proves nothing (``tail -f sglang.log``): the program itself,
the Python module it runs, or the title that workers give themselves has to be the engine's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*")


@dataclass(frozen=True, slots=True)
class ProgramForms:
    """How an engine's processes look.

    ``titles``: beginnings of rewritten titles. ``programs``: names of programs, each with the
    subcommand it needs ("" for none). ``modules``: Python modules given with ``-m``, or as
    scripts by the end of their path.
    """

    titles: tuple[str, ...] = ()
    programs: tuple[tuple[str, str], ...] = ()
    modules: tuple[str, ...] = ()


def matches(command: str, forms: ProgramForms) -> bool:
    """Whether ``command``, the arguments as ps joins them, is one of these."""
    if command.startswith(forms.titles):
        return True
    words = command.split()
    if not words:
        return False
    if _is_program(words, forms):
        return True
    if _INTERPRETER.fullmatch(_name(words[0])) is None:
        return False
    return _runs_module(words[1:], forms)


def _is_program(words: Sequence[str], forms: ProgramForms) -> bool:
    return any(
        _name(words[0]) == name and (not verb or words[1:2] == [verb])
        for name, verb in forms.programs
    )


def _runs_module(arguments: Sequence[str], forms: ProgramForms) -> bool:
    for index, word in enumerate(arguments):
        if word == "-m":
            return bool(arguments[index + 1 :]) and arguments[index + 1] in forms.modules
        if word == "-c":
            return False
        if not word.startswith("-"):
            scripts = (module.replace(".", "/") + ".py" for module in forms.modules)
            return _is_program(arguments[index:], forms) or any(
                word == script or word.endswith("/" + script) for script in scripts
            )
    return False


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
