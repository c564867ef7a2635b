"""Which form a launch config has, and who reads it. A new form is one row here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from specdash.launch.command import Parsed
from specdash.launch.envfile import is_env_file, parse_env_file
from specdash.launch.errors import KnobNotFoundError, UnsupportedFormError
from specdash.launch.shell_eval import SHELLS, evaluate_script
from specdash.launch.source import Source
from specdash.launch.systemd_unit import is_unit, parse_unit
from specdash.launch.trace import Traced

Reader = Callable[[Source, Mapping[str, bytes]], Parsed]

_SHEBANG = re.compile(r"\ufeff?#!\s*(\S+)([^\r\n]*)")


def parse(source: Source, others: Mapping[str, bytes]) -> Parsed:
    """Read a file by its form.

    Raises KnobNotFoundError for an empty file, and UnsupportedFormError, naming the form the file
    seems to have.
    """
    if not source.text.strip("\ufeff \t\r\n"):
        raise KnobNotFoundError(
            f"{source.path} is empty.", remedy="Name the file that holds the engine's flags."
        )
    for recognises, read in _READERS:
        if recognises(source.path, source.text):
            return read(source, others)
    form = _foreign_form(source.path, source.text) or "a form specdash does not know"
    raise UnsupportedFormError(
        f"{source.path} looks like {form}; it cannot be edited yet.",
        remedy="Name a systemd unit or drop-in, an environment file or a shell script.",
    )


def _interpreter(text: str) -> str | None:
    """The program of the first line ``#!...``, without folder; None where there is no such line."""
    match = _SHEBANG.match(text)
    if match is None:
        return None
    words = [match.group(1), *match.group(2).split()]
    names = [word.rsplit("/", 1)[-1] for word in words if not word.startswith("-")]
    if names and names[0] == "env":
        names = [name for name in names[1:] if "=" not in name]
    return names[0] if names else ""


def _is_script(path: str, text: str) -> bool:
    interpreter = _interpreter(text)
    if interpreter is not None:
        return interpreter in SHELLS
    if path.endswith((".sh", ".bash", ".dash", ".ksh", ".zsh")):
        return True
    return _foreign_form(path, text) is None


_FOREIGN_NAMES = (
    (re.compile(r"(^|/)(docker-)?compose[^/]*\.ya?ml$", re.I), "a Docker Compose file"),
    (re.compile(r"(^|/)Dockerfile[^/]*$|\.dockerfile$", re.I), "a Dockerfile"),
    (re.compile(r"\.py$"), "a Python program"),
    (re.compile(r"\.fish$"), "a fish script"),
    (re.compile(r"\.json$"), "JSON"),
    (re.compile(r"\.toml$"), "TOML"),
    (re.compile(r"\.(container|pod|kube)$"), "a Podman quadlet"),
)
_KUBERNETES = re.compile(r"^apiVersion:\s*\S+", re.MULTILINE)
_COMPOSE = re.compile(r"^services:\s*(#.*)?\r?$", re.MULTILINE)
_YAML_KEY = re.compile(r"[\w.\-]+:(\s|$)|- |---|\.\.\.")
_INI_SECTION = re.compile(r"^\s*\[[^\]\r\n]+\]\s*$", re.MULTILINE)


def _foreign_form(path: str, text: str) -> str | None:
    """The name of a form that is known and not edited, or None."""
    if _KUBERNETES.search(text) and re.search(r"^kind:", text, re.MULTILINE):
        return "a Kubernetes manifest"
    if _COMPOSE.search(text):
        return "a Docker Compose file"
    for pattern, form in _FOREIGN_NAMES:
        if pattern.search(path):
            return form
    interpreter = _interpreter(text)
    if interpreter is not None and interpreter not in SHELLS:
        return f"a {interpreter} program" if interpreter else "a program"
    lines = [line for line in text.lstrip("\ufeff").splitlines() if line.strip()]
    said = [line for line in lines if not line.lstrip().startswith("#")]
    if path.endswith((".yaml", ".yml")) or (said and _YAML_KEY.match(said[0])):
        return "YAML"
    if (
        said
        and said[0].lstrip().startswith("{")
        and said[-1].rstrip().endswith("}")
        and '"' in text
    ):
        return "JSON"
    if said and re.match(r"(FROM|ARG)\s+\S", said[0]):
        return "a Dockerfile"
    if said and _INI_SECTION.match(said[0]):
        return "an INI file"
    return None


def _read_unit(source: Source, others: Mapping[str, bytes]) -> Parsed:
    return parse_unit(source, others)


def _read_env(source: Source, others: Mapping[str, bytes]) -> Parsed:
    parsed = Parsed("env", texts={source.path: source.text})
    parsed.variables += parse_env_file(source.path, source.text)
    return parsed


def _read_script(source: Source, others: Mapping[str, bytes]) -> Parsed:
    parsed = Parsed("shell", texts={source.path: source.text})
    evaluate_script(source.path, Traced.of_file(source.path, source.text), parsed, others)
    return parsed


def _is_unit(path: str, text: str) -> bool:
    return _interpreter(text) is None and is_unit(text)


def _is_env(path: str, text: str) -> bool:
    return (
        _interpreter(text) is None
        and not path.endswith((".sh", ".bash"))
        and is_env_file(path, text)
    )


_READERS: tuple[tuple[Callable[[str, str], bool], Reader], ...] = (
    (_is_unit, _read_unit),
    (_is_env, _read_env),
    (_is_script, _read_script),
)
