"""Which words of a command are speculation flags, by an engine's table of spellings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from specdash.launch.errors import AmbiguousKnobError
from specdash.launch.jsontext import members
from specdash.launch.knobs import Field, Flag, KnobTable
from specdash.launch.trace import Traced, Variable, Word

Style = Literal["space", "equals", "json", "env"]

_SHORTEST_PREFIX = 8
"""An abbreviation shorter than this could mean a flag outside the table."""
_LOOKS_LIKE_FLAG = re.compile(r"--?[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Use:
    """One speculation flag as it is given.

    ``field`` is None for the extras. ``words`` are the indices of its words in the command (none
    for an environment variable); ``value`` is the text that sets it, None for a switch.
    ``variable`` is the assignment of an environment variable.
    """

    field: Field | None
    name: str
    spelling: str
    style: Style
    words: tuple[int, ...] = ()
    value: Traced | None = None
    variable: Variable | None = None


class Spellings:
    """Every way one engine's speculation flags can be written."""

    def __init__(self, knobs: KnobTable) -> None:
        self.knobs = knobs
        self._fields: dict[str, Flag] = {}
        for flag in knobs.flags:
            for spelling in flag.spellings:
                self._fields[spelling] = flag
        self._extras = dict.fromkeys(knobs.extras)
        self._switches = frozenset(knobs.switches)
        self.json_flags = {
            spelling.partition(".")[0] for spelling in self._fields if "." in spelling
        }

    def json_field(self, flag: str, key: str) -> Flag | None:
        """The setting that ``key`` holds in the JSON value of ``flag``."""
        return self._fields.get(f"{flag}.{key}")

    def find(self, name: str) -> str | None:
        """The full spelling of a flag word, or None. Raises AmbiguousKnobError for a prefix
        that fits more than one setting."""
        if name in self._fields or name in self._extras:
            return name
        if (
            not self.knobs.prefix_matching
            or not name.startswith("--")
            or len(name) < _SHORTEST_PREFIX
        ):
            return None
        full = [s for s in (*self._fields, *self._extras) if s.startswith(name)]
        meanings = {self._fields[s].name if s in self._fields else s for s in full}
        if len(meanings) > 1:
            # Where one field alone fits, extras are newer flags that the engine may not have.
            meanings = {self._fields[s].name for s in full if s in self._fields} or meanings
            if len(meanings) > 1:
                raise AmbiguousKnobError(
                    f"{name} may stand for {' or '.join(sorted(meanings))}.",
                    remedy="Write the flag out in full.",
                )
        return next((s for s in full if s in meanings), full[0] if full else None)

    def flag_of(self, spelling: str) -> Flag | None:
        return self._fields.get(spelling)

    def takes_value(self, spelling: str) -> bool:
        return spelling not in self._switches


def find_uses(
    words: Sequence[Word], spellings: Spellings, environment: Mapping[str, Variable], start: int = 0
) -> list[Use]:
    """Every speculation flag of a command from word ``start`` on, in order.

    Environment variables come last, and only for settings that no flag gives: a flag wins.
    """
    uses: list[Use] = []
    at = start
    while at < len(words):
        found = _use_at(words, at, spellings)
        if found is None:
            at += 1
            continue
        uses.append(found)
        uses += _inside_json(found, spellings)
        at = found.words[-1] + 1
    given = {use.field for use in uses}
    return [*uses, *(u for u in environment_uses(environment, spellings) if u.field not in given)]


def _use_at(words: Sequence[Word], at: int, spellings: Spellings) -> Use | None:
    raw = words[at].text.text
    if not raw.startswith("-") or words[at].text.origin(0).unknown:
        return None
    name, equals, _ = raw.partition("=")
    spelling = spellings.find(name)
    if spelling is None:
        return None
    flag = spellings.flag_of(spelling)
    field = None if flag is None else flag.field
    if equals:
        value = words[at].text[len(name) + 1 :]
        return Use(field, spelling, name, "equals", (at,), value)
    if not spellings.takes_value(spelling):
        return Use(field, spelling, name, "space", (at,))
    follower = words[at + 1].text if at + 1 < len(words) else None
    if follower is None or (field is not None and _LOOKS_LIKE_FLAG.match(follower.text)):
        if field is not None or spelling in spellings.json_flags:
            raise AmbiguousKnobError(
                f"{name} has no value.",
                remedy="Give the flag its value, or remove it.",
            )
        return Use(field, spelling, name, "space", (at,))
    if _LOOKS_LIKE_FLAG.match(follower.text):
        return Use(field, spelling, name, "space", (at,))
    return Use(field, spelling, name, "space", (at, at + 1), follower)


def _inside_json(use: Use, spellings: Spellings) -> list[Use]:
    if use.name not in spellings.json_flags or use.value is None:
        return []
    out: list[Use] = []
    for key, member in (members(use.value) or {}).items():
        flag = spellings.json_field(use.name, key)
        if flag is not None:
            name = f"{use.name}.{key}"
            out.append(Use(flag.field, name, use.spelling, "json", use.words, member.bare))
    return out


def environment_uses(environment: Mapping[str, Variable], spellings: Spellings) -> list[Use]:
    """Settings given by environment variables the engine itself reads."""
    out: list[Use] = []
    for flag in spellings.knobs.flags:
        for name in flag.env:
            variable = environment.get(name)
            if variable is not None:
                out.append(Use(flag.field, name, name, "env", (), variable.value, variable))
                break
    return out


def last_uses(uses: Sequence[Use]) -> dict[Field, Use]:
    """The use that counts for each setting: of repeated flags the last."""
    return {use.field: use for use in uses if use.field is not None}


def anchor_at(argv: Sequence[str], anchors: Sequence[str]) -> int | None:
    """Where a command names the engine's program or module, if it does."""
    for at, word in enumerate(argv):
        for anchor in anchors:
            parts = anchor.split()
            if _names(word, parts[0]) and list(argv[at + 1 : at + len(parts)]) == parts[1:]:
                return at
    return None


def _names(word: str, anchor: str) -> bool:
    if word == anchor:
        return True
    if "=" in word or word.startswith("-"):
        return False
    base = word.rsplit("/", 1)[-1]
    return anchor in (base, base.partition(":")[0])
