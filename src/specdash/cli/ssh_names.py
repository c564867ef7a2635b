"""Whether a word names an SSH host: ``user@host``, or a ``Host`` of the ssh config."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

_USER_AT_HOST = re.compile(r"[^@\s/:-][^@\s/:]*@[A-Za-z0-9\[][A-Za-z0-9._:%\[\]-]*")
_INCLUDES_DEEP = 8


def is_ssh_host(word: str, config_files: Sequence[Path] | None) -> bool:
    """``user@host[:port]``, or an alias of the given config files (None: the user's own)."""
    if _USER_AT_HOST.fullmatch(word):
        return True
    return any(_matches(word, patterns) for patterns in _host_lines(_files(config_files)))


def aliases(config_files: Sequence[Path] | None) -> list[str]:
    """The plain names (no patterns) of the ``Host`` lines."""
    names = {name for line in _host_lines(_files(config_files)) for name in line}
    return sorted(name for name in names if not set(name) & set("*?!"))


def _files(config_files: Sequence[Path] | None) -> list[Path]:
    return [Path.home() / ".ssh" / "config"] if config_files is None else list(config_files)


def _matches(word: str, patterns: Sequence[str]) -> bool:
    """As OpenSSH: any pattern, none that is negated; a bare ``*`` names no host."""
    if any(p.startswith("!") and fnmatch.fnmatchcase(word, p[1:]) for p in patterns):
        return False
    return any(fnmatch.fnmatchcase(word, p) for p in patterns if p.strip("*") and p[0] != "!")


def _host_lines(files: Iterable[Path], depth: int = 0) -> list[list[str]]:
    found: list[list[str]] = []
    for path in files:
        try:
            text = path.read_text("utf-8", "replace")
        except OSError:
            continue  # who connects reports a config that cannot be read
        for line in text.splitlines():
            words = line.split("#", 1)[0].replace("=", " ", 1).split()
            keyword = words[0].lower() if words else ""
            if keyword == "host":
                found.append([word.strip('"') for word in words[1:]])
            elif keyword == "include" and depth < _INCLUDES_DEEP:
                found += _host_lines(_included(words[1:], path), depth + 1)
    return found


def _included(patterns: Sequence[str], config: Path) -> list[Path]:
    paths: list[Path] = []
    for pattern in patterns:
        whole = Path(pattern.strip('"')).expanduser()
        if not whole.is_absolute():
            whole = config.parent / whole
        paths += sorted(whole.parent.glob(whole.name)) if whole.name else []
    return paths
