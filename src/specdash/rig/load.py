"""From the bytes of a rig file to a Rig, or to one error that names file, line, key and cure."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from specdash.core.errors import UsageError
from specdash.rig.fields import ANY_HOST, NEEDED_TABLES, TABLES, Field
from specdash.rig.lines import key_lines
from specdash.rig.schema import (
    BenchSpec,
    CleanSpec,
    ConfigSpec,
    EngineSpec,
    GpusSpec,
    HostSpec,
    LimitsSpec,
    Rig,
    SafetySpec,
    ServiceSpec,
)

_ENTER = re.compile(r"(pct:\d+|(?:docker|lxc):[A-Za-z0-9][A-Za-z0-9_.-]*)")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_LINE = re.compile(r"at line ([0-9]+)")
MAX_BYTES = 1024 * 1024


class RigFileError(UsageError):
    """The rig file is not a rig. ``evidence`` holds every problem found, a line each."""

    default_code = "rig-file"


@dataclass(frozen=True, slots=True)
class _Problem:
    path: tuple[str, ...]
    message: str
    allowed: str


def load_rig(path: Path) -> Rig:
    """Read and check a rig file.

    Raises RigFileError (exit 2) where it cannot be read, is not TOML, or says something a rig
    cannot be.
    """
    try:
        data = _read(path)
    except OSError as error:
        raise RigFileError(
            f"{path}: cannot be read: {error.strerror or error}.",
            remedy="Give the path of a readable rig file.",
        ) from error
    return parse_rig(data, path)


def _read(path: Path) -> bytes:
    # Without O_NONBLOCK opening a FIFO would wait for a writer.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise RigFileError(f"{path}: not a file.", remedy="Give the path of a rig file.")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise RigFileError(
            f"{path}: larger than {MAX_BYTES // 1024} KiB, which no rig file is.",
            remedy="Give the path of a rig file.",
        )
    return data


def parse_rig(data: bytes, path: Path, *, name: str | None = None) -> Rig:
    """The same for bytes at hand; ``path`` names them in errors."""
    try:
        text = data.decode("utf-8-sig")
        document = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RigFileError(
            f"{path}:{line}: not UTF-8 at byte {error.start}.", remedy="Save the file as UTF-8."
        ) from error
    except tomllib.TOMLDecodeError as error:
        at = _LINE.search(str(error))
        where = f"{path}:{at[1]}" if at else str(path)
        raise RigFileError(
            f"{where}: not TOML: {error}.", remedy="Mend the file at the place named."
        ) from error
    except RecursionError as error:
        raise RigFileError(
            f"{path}: nested too deep to be read.", remedy="A rig file has tables and lists only."
        ) from error
    problems = _check_tables(document)
    if not problems:
        problems = _check_sense(document, path)
    if problems:
        raise _as_error(problems, text, path)
    return _build(document, path, name or path.stem)


def _as_error(problems: list[_Problem], text: str, path: Path) -> RigFileError:
    places = key_lines(text)

    def line_of(problem: _Problem) -> int:
        """Its line, or the nearest table's; 0 where neither stands in the file."""
        lengths = range(len(problem.path), 0, -1)
        return next((n for k in lengths if (n := places.get(problem.path[:k]))), 0)

    def said(problem: _Problem) -> str:
        line = line_of(problem)
        return f"{path}:{line}: {problem.message}" if line else f"{path}: {problem.message}"

    first, *rest = problems
    more = f" ({len(rest)} more below)" if rest else ""
    return RigFileError(
        said(first) + more,
        remedy=first.allowed,
        evidence=[f"{said(problem)} {problem.allowed}" for problem in rest],
    )


def _check_tables(document: Mapping[str, Any]) -> list[_Problem]:
    problems: list[_Problem] = []
    known = sorted({table.split(".")[0] for table in TABLES})
    for table, body in document.items():
        if table not in known:
            problems.append(
                _Problem(
                    (table,), f"unknown table or key {table!r}.", f"Allowed: {', '.join(known)}."
                )
            )
        elif not isinstance(body, Mapping):
            problems.append(
                _Problem(
                    (table,), f"{table!r} must be a table, not {_kind(body)}.", f"Write [{table}]."
                )
            )
        elif table == "hosts":
            for name, host in body.items():
                if not isinstance(host, Mapping):
                    problems.append(
                        _Problem(
                            (table, name),
                            f"host {name!r} must be a table.",
                            f"Write [hosts.{name}].",
                        )
                    )
                    continue
                if not _NAME.fullmatch(name):
                    problems.append(
                        _Problem(
                            (table, name),
                            f"{name!r} is no host name for a rig.",
                            "Letters, digits, dot, dash and underscore.",
                        )
                    )
                problems += _check_keys((table, name), host, TABLES[ANY_HOST])
        else:
            problems += _check_keys((table,), body, TABLES[table])
    problems += [
        _Problem((table,), f"[{table}] is missing.", f"Add [{table}].")
        for table in NEEDED_TABLES
        if table not in document
    ]
    if "hosts" not in document:
        problems.append(
            _Problem(
                ("hosts",), "[hosts.NAME] is missing.", 'Add [hosts.svc] with ssh = "user@host".'
            )
        )
    return problems


def _check_keys(
    table: tuple[str, ...], body: Mapping[str, Any], fields: Mapping[str, Field]
) -> list[_Problem]:
    problems: list[_Problem] = []
    shown = ".".join(table)
    for key, value in body.items():
        field = fields.get(key)
        if field is None:
            problems.append(
                _Problem(
                    (*table, key),
                    f"unknown key {key!r} in [{shown}].",
                    f"Allowed in [{shown}]: {', '.join(fields)}.",
                )
            )
        elif (fault := field.fault(value)) is not None:
            problems.append(
                _Problem((*table, key), f"{shown}.{key} {fault}.", f"Allowed: {field.allowed}.")
            )
    for key, field in fields.items():
        if field.required and key not in body:
            problems.append(
                _Problem(table, f"{key!r} is missing in [{shown}].", f"Needed: {field.allowed}.")
            )
    return problems


def _kind(value: object) -> str:
    return {
        bool: "true/false",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a table",
    }.get(type(value), type(value).__name__)


def _check_sense(document: Mapping[str, Any], path: Path) -> list[_Problem]:
    """What single keys cannot show: references, exclusions, places."""
    hosts: Mapping[str, Mapping[str, Any]] = document["hosts"]
    problems: list[_Problem] = []
    names = ", ".join(hosts)

    def refer(where: tuple[str, ...], name: str) -> None:
        if name not in hosts:
            problems.append(
                _Problem(
                    where, f"{'.'.join(where)} names no host: {name!r}.", f"Hosts here: {names}."
                )
            )

    for name, host in hosts.items():
        problems += _check_host(name, host, hosts)
    for table in ("service", "config", "gpus"):
        if table in document:
            refer((table, "host"), document[table]["host"])
    engine = document["engine"]
    if "tunnel" in engine:
        refer(("engine", "tunnel"), engine["tunnel"])
    for name in document.get("clean", {}).get("hosts", []):
        refer(("clean", "hosts"), name)
    if (fault := _url_fault(engine["url"])) is not None:
        problems.append(
            _Problem(("engine", "url"), f"engine.url {fault}.", "Write http://HOST:PORT.")
        )
    if "api_key_env" in engine and not _ENV_NAME.fullmatch(engine["api_key_env"]):
        problems.append(
            _Problem(
                ("engine", "api_key_env"),
                "engine.api_key_env is no name of an environment variable.",
                "Put the key in a variable and name it here; never the key itself.",
            )
        )
    gpus = document.get("gpus", {})
    if "uuids" in gpus and "indices" in gpus:
        problems.append(
            _Problem(
                ("gpus", "indices"), "gpus has both uuids and indices.", "Keep one of the two."
            )
        )
    config = document["config"]
    if not config["path"].startswith("/"):
        problems.append(
            _Problem(
                ("config", "path"),
                f"config.path is not absolute: {config['path']!r}.",
                "Write the whole path as the host sees it.",
            )
        )
    source = config.get("source")
    if source is not None and not _local(source, path).is_file():
        problems.append(
            _Problem(
                ("config", "source"),
                f"config.source is no file here: {source!r}.",
                "Name the local file that is copied to config.path, or drop the key.",
            )
        )
    prompts = document.get("bench", {}).get("prompts", "")
    if _is_path(prompts) and not _local(prompts, path).is_file():
        problems.append(
            _Problem(
                ("bench", "prompts"),
                f"bench.prompts is no file here: {prompts!r}.",
                "Name a file of prompts, or a built-in kind.",
            )
        )
    return problems


def _check_host(
    name: str, host: Mapping[str, Any], hosts: Mapping[str, Mapping[str, Any]]
) -> list[_Problem]:
    where = ("hosts", name)
    ways = [key for key in ("ssh", "local", "via") if host.get(key)]
    if len(ways) != 1:
        said = " and ".join(ways) if ways else "none"
        return [
            _Problem(
                where,
                f"hosts.{name} needs exactly one of ssh, local, via; it has {said}.",
                'ssh = "user@host", or local = true, or via = "HOST" with enter = "pct:ID".',
            )
        ]
    if "via" not in host:
        if "enter" in host:
            return [_Problem((*where, "enter"), f"hosts.{name}.enter needs via.", "Add via.")]
        return []
    problems: list[_Problem] = []
    if "enter" not in host:
        problems.append(
            _Problem(where, f"hosts.{name} has via but no enter.", 'Add enter = "pct:ID".')
        )
    elif not _ENTER.fullmatch(host["enter"]):
        problems.append(
            _Problem(
                (*where, "enter"),
                f"hosts.{name}.enter is not understood: {host['enter']!r}.",
                "Allowed: pct:ID, docker:NAME, lxc:NAME.",
            )
        )
    seen = [name]
    outer = host["via"]
    while True:
        if outer not in hosts:
            problems.append(
                _Problem(
                    (*where, "via"),
                    f"hosts.{name}.via names no host: {outer!r}.",
                    f"Hosts here: {', '.join(hosts)}.",
                )
            )
            return problems
        if outer in seen:
            problems.append(
                _Problem(
                    (*where, "via"), f"hosts.{name}.via goes in a circle.", "Break the circle."
                )
            )
            return problems
        seen.append(outer)
        if "via" not in hosts[outer]:
            return problems
        outer = hosts[outer]["via"]


def _url_fault(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return f"has no valid port: {url!r}"
    if parts.scheme not in ("http", "https"):
        return "does not begin with http:// or https://"
    if not parts.hostname:
        return "names no host"
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        return "names no possible host"
    if port == 0:
        return "has port 0"
    if parts.username or parts.password:
        return "must not hold a user name or password"
    return None


def _is_path(prompts: str) -> bool:
    return "/" in prompts or "." in prompts


def _local(source: str, rig_path: Path) -> Path:
    expanded = Path(source).expanduser()
    return expanded if expanded.is_absolute() else rig_path.parent / expanded


def _build(document: Mapping[str, Any], path: Path, name: str) -> Rig:
    hosts = {key: HostSpec(name=key, **body) for key, body in document["hosts"].items()}
    config = dict(document["config"])
    if "source" in config:
        config["source"] = str(_local(config["source"], path))
    gpus = document.get("gpus")
    bench = dict(document.get("bench", {}))
    if _is_path(bench.get("prompts", "")):
        bench["prompts"] = str(_local(bench["prompts"], path))
    return Rig(
        name=name,
        path=path,
        hosts=hosts,
        service=ServiceSpec(**document["service"]),
        config=ConfigSpec(**config),
        engine=EngineSpec(**document["engine"]),
        gpus=None if gpus is None else GpusSpec(**_tuples(gpus)),
        clean=CleanSpec(**_tuples(document.get("clean", {}))),
        safety=SafetySpec(**document.get("safety", {})),
        bench=BenchSpec(**_tuples(bench)),
        limits=LimitsSpec(**{k: float(v) for k, v in document.get("limits", {}).items()}),
    )


def _tuples(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(v) if isinstance(v, list) else v for key, v in body.items()}
