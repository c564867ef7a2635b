"""Themes as TOML files: read, checked key by key, turned into Textual themes.

name = "night"          # letters, digits, - and _
dark = true
[colors]                # primary is required
primary = "#6cb6ff"     # any colour Textual parses: #rgb, #rrggbb, rgb(...), a name
[roles]                 # optional: overrides of the cockpit's own roles
series = ["#6cb6ff"]    # lines of a chart, one to four
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from textual.color import Color, ColorParseError
from textual.theme import Theme

from specdash.core.errors import UsageError

DEFAULT_DARK = "night"
DEFAULT_LIGHT = "day"

COLORS = (
    "primary",
    "secondary",
    "accent",
    "success",
    "warning",
    "error",
    "foreground",
    "background",
    "surface",
    "panel",
    "boost",
)
ROLES = (
    "text",
    "dim",
    "faint",
    "frame",
    "track",
    "tint",
    "trace",
    "selected",
    "good",
    "warn",
    "bad",
    "now",
    "next",
    "key",
    "badge",
    "badge-text",
)
_TOP = ("name", "dark", "colors", "roles")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_MAX_BYTES = 64 * 1024
_COLOR_HELP = 'a colour such as "#6cb6ff", "rgb(108,182,255)" or "teal"'


class ThemeFileError(UsageError):
    """A theme file that cannot be used; the message names file, key, value and what is allowed."""

    default_code = "theme"


@dataclass(frozen=True, slots=True)
class ThemeFile:
    """A theme and the file it came from."""

    theme: Theme
    path: str
    shipped: bool


@dataclass(frozen=True, slots=True)
class Themes:
    """What was found. A file that is wrong is in ``problems`` and harms no other."""

    found: tuple[ThemeFile, ...]
    problems: tuple[ThemeFileError, ...] = ()

    @property
    def themes(self) -> tuple[Theme, ...]:
        return tuple(item.theme for item in self.found)


def load_themes(user_directory: Path | None = None) -> Themes:
    """The themes that ship with specdash and the ``*.toml`` of ``user_directory``.

    A user's theme replaces a shipped one of the same name. A missing directory means none.
    """
    found: dict[str, ThemeFile] = {}
    problems: list[ThemeFileError] = []
    for source, shipped in ((_shipped(), True), (_user(user_directory), False)):
        for path, data in source:
            try:
                if isinstance(data, ThemeFileError):
                    raise data
                item = ThemeFile(parse_theme(data, path), path, shipped)
            except ThemeFileError as error:
                problems.append(error)
                continue
            twin = found.get(item.theme.name)
            if twin is not None and twin.shipped == shipped:
                problems.append(
                    ThemeFileError(
                        f'{path}: name = "{item.theme.name}" is also the name in {twin.path}',
                        remedy="Give each theme a name of its own.",
                    )
                )
                continue
            found[item.theme.name] = item
    return Themes(tuple(found[name] for name in sorted(found)), tuple(problems))


def parse_theme(data: bytes, path: str) -> Theme:
    """One theme file's bytes as a Textual theme. Raises ThemeFileError."""
    try:
        body = tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ThemeFileError(
            f"{path}: not UTF-8 (byte {error.start})", remedy="Save the file as UTF-8."
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ThemeFileError(f"{path}: not TOML: {error}", remedy="Correct the line.") from error
    _known(body, _TOP, path, "")
    name = body.get("name")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise _wrong(path, "name", name, 'letters, digits, "-" and "_", at most 40')
    dark = body.get("dark")
    if not isinstance(dark, bool):
        raise _wrong(path, "dark", dark, "true or false")
    colors = _section(body, "colors", path)
    _known(colors, COLORS, path, "colors.")
    if "primary" not in colors:
        raise _wrong(path, "colors.primary", None, _COLOR_HELP)
    values = {key: _color(colors[key], path, f"colors.{key}") for key in COLORS if key in colors}
    roles = _section(body, "roles", path)
    _known(roles, (*ROLES, "series"), path, "roles.")
    variables = {
        f"sd-{key}": _color(roles[key], path, f"roles.{key}") for key in ROLES if key in roles
    }
    variables |= _series(roles.get("series"), path)
    return Theme(
        name=name,
        dark=dark,
        primary=values["primary"],
        secondary=values.get("secondary"),
        accent=values.get("accent"),
        success=values.get("success"),
        warning=values.get("warning"),
        error=values.get("error"),
        foreground=values.get("foreground"),
        background=values.get("background"),
        surface=values.get("surface"),
        panel=values.get("panel"),
        boost=values.get("boost"),
        variables=variables,
    )


def _series(value: object, path: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, list) or not 1 <= len(value) <= 4:
        raise _wrong(path, "roles.series", value, "a list of one to four colours")
    given = [_color(item, path, f"roles.series[{i}]") for i, item in enumerate(value)]
    return {f"sd-series-{i + 1}": given[i % len(given)] for i in range(4)}


def _section(body: Mapping[str, object], key: str, path: str) -> dict[str, object]:
    value = body.get(key, {})
    if not isinstance(value, dict):
        raise _wrong(path, key, value, f"a table, [{key}]")
    return value


def _known(body: Mapping[str, object], allowed: Sequence[str], path: str, prefix: str) -> None:
    for key in body:
        if key not in allowed:
            raise ThemeFileError(
                f"{path}: unknown key {prefix}{key}",
                remedy=f"Allowed here: {', '.join(allowed)}.",
            )


def _color(value: object, path: str, key: str) -> str:
    if not isinstance(value, str):
        raise _wrong(path, key, value, _COLOR_HELP)
    try:
        color = Color.parse(value)
    except ColorParseError as error:
        raise _wrong(path, key, value, _COLOR_HELP) from error
    if color.ansi is not None or color.auto:
        raise _wrong(path, key, value, _COLOR_HELP)
    return color.hex


def _wrong(path: str, key: str, value: object, allowed: str) -> ThemeFileError:
    shown = "missing" if value is None else repr(value)
    return ThemeFileError(f"{path}: {key} is {shown}", remedy=f"Allowed: {allowed}.")


def _shipped() -> Iterator[tuple[str, bytes | ThemeFileError]]:
    package = files("specdash")
    inside = package / "themes"
    # In a source checkout the themes lie at the repository's top, in the wheel in the package.
    folder: Traversable = inside if inside.is_dir() else _checkout(package)
    if not folder.is_dir():
        return
    for item in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if item.name.endswith(".toml"):
            yield str(item), item.read_bytes()


def _checkout(package: Traversable) -> Traversable:
    return Path(str(package)).parent.parent / "themes"


def _user(directory: Path | None) -> Iterator[tuple[str, bytes | ThemeFileError]]:
    if directory is None or not directory.is_dir():
        return
    for path in sorted(directory.glob("*.toml")):
        try:
            if not path.is_file() or path.stat().st_size > _MAX_BYTES:
                raise ThemeFileError(
                    f"{path}: not a file of at most {_MAX_BYTES // 1024} KiB",
                    remedy="A theme is a short TOML file.",
                )
            data: bytes | ThemeFileError = path.read_bytes()
        except ThemeFileError as error:
            data = error
        except OSError as error:
            data = ThemeFileError(
                f"{path}: {error.strerror}", remedy="Make the file readable, or remove it."
            )
        yield str(path), data
