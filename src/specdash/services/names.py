"""Unit names: what is one, and what systemd would make of it."""

from __future__ import annotations

import re

from specdash.core.errors import UsageError

_ALLOWED = re.compile(r"[A-Za-z0-9:_.\\-]+(?:@[A-Za-z0-9:_.\\-]+)?")
_OTHER_KINDS = (
    ".socket",
    ".target",
    ".timer",
    ".slice",
    ".scope",
    ".mount",
    ".automount",
    ".swap",
    ".path",
    ".device",
)
_LONGEST = 255


def unit_name(text: str) -> str:
    """``name`` as ``name.service``; instances of templates stay (``name@inst.service``).

    Raises UsageError for what cannot be a service unit. A name never begins with a dash, so
    that it is never taken for an option.
    """
    name = text.strip()
    if "/" in name:
        raise _bad(text, "that is a path", "Give the unit's name alone, as systemctl shows it.")
    if name.endswith(_OTHER_KINDS):
        raise _bad(text, "that is not a service unit", "Name the .service that runs the engine.")
    stem = name.removesuffix(".service")
    if stem.endswith("@"):
        raise _bad(text, "that is a template", f"Name an instance of it: {stem}INSTANCE.service.")
    if not stem or stem.startswith("-") or _ALLOWED.fullmatch(stem) is None:
        raise _bad(
            text,
            "systemd has no such names",
            "Use letters, digits and : _ . - only, with one @ for an instance.",
        )
    if len(stem) + len(".service") > _LONGEST:
        raise _bad(
            text[:40] + "…", "it is too long", f"A unit name has at most {_LONGEST} letters."
        )
    return stem + ".service"


def _bad(text: str, why: str, remedy: str) -> UsageError:
    return UsageError(f"{text!r} is no unit name: {why}.", remedy=remedy, code="bad-unit")
