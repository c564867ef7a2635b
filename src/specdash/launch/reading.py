"""Read a launch config: what it says about speculation, and exactly where.

``read_config`` takes the bytes of one file and, where the caller has them, of the files it leads
to (environment files, scripts). It does no I/O: a caller that wants to follow reads
``Reading.references`` and asks again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from specdash.core.settings import OFF, Settings
from specdash.launch.absence import check_plainly_off
from specdash.launch.choose import Choice, Lines, choose
from specdash.launch.errors import (
    AmbiguousKnobError,
    KnobElsewhereError,
    KnobNotFoundError,
    LaunchConfigError,
    UnreadableConfigError,
    UnsupportedFormError,
)
from specdash.launch.flags import Spellings, Use, last_uses
from specdash.launch.follow import parse_all
from specdash.launch.jsontext import members
from specdash.launch.knobs import Field, KnobTable
from specdash.launch.source import Source, decode
from specdash.launch.trace import Reference, Site, Variable, Word

_WHOLE = re.compile(r"[0-9]{1,9}\Z")
_NUMBERS: tuple[Field, ...] = ("num_steps", "eagle_topk", "num_draft_tokens")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is written: 1-based line, byte offsets ``[start, end)`` in ``path``."""

    path: str
    line: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What a launch config says.

    ``settings``: None where it says nothing (or leaves it to something unread); core's OFF where
    the engine is started without speculation. ``argv``: the command's arguments as the launcher
    will see them, as far as the files tell; for an environment file the arguments in its
    variables. ``places``: where each setting's value is written. ``references``: files it leads
    to. ``words`` and ``uses`` are the editor's.
    """

    path: str
    data: bytes
    form: str
    settings: Settings
    argv: tuple[str, ...]
    places: Mapping[Field, Place]
    references: tuple[Reference, ...]
    variables: tuple[Variable, ...]
    warnings: tuple[str, ...]
    knobs: KnobTable
    service: str | None = None
    others: Mapping[str, bytes] = field(default_factory=dict)
    words: tuple[Word, ...] = ()
    uses: tuple[Use, ...] = ()
    start: int = 0
    holders: tuple[str, ...] = ()
    rest: tuple[tuple[str, ...], ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def off(self) -> bool:
        """Whether the engine is started without speculation."""
        return self.settings.enabled is False

    def source(self, path: str) -> Source:
        """One of the files that were read."""
        return Source(path, self.texts[path])

    def where(self, site: Site | None) -> str:
        """``path:line`` of a place."""
        if site is None or site.path not in self.texts:
            return self.path
        return f"{site.path}:{self.source(site.path).line_of(site.start)}"

    def again(self, changed: Mapping[str, bytes]) -> Reading:
        """The reading with some of its files' bytes replaced."""
        return _read(
            self.path,
            changed.get(self.path, self.data),
            self.knobs,
            self.service,
            {path: changed.get(path, data) for path, data in self.others.items()},
            known_off=True,
            holders=self.holders,
        )


def read_config(
    path: str,
    data: bytes,
    knobs: KnobTable,
    *,
    service: str | None = None,
    others: Mapping[str, bytes] | None = None,
    known_off: bool = False,
) -> Reading:
    """What the file says about speculation for the engine of ``knobs``.

    ``service`` settles which of several commands is meant. ``others``: the bytes of files this
    one leads to, by the path as it is written there. ``known_off``: a file that says nothing at
    all reads as off (it held the settings before they were removed).

    Raises UnreadableConfigError, UnsupportedFormError, KnobNotFoundError, KnobElsewhereError and
    AmbiguousKnobError, all with the lines that were looked at.
    """
    return _read(path, data, knobs, service, dict(others or {}), known_off=known_off)


def _read(
    path: str,
    data: bytes,
    knobs: KnobTable,
    service: str | None,
    others: Mapping[str, bytes],
    *,
    known_off: bool,
    holders: tuple[str, ...] = (),
) -> Reading:
    source = decode(path, data)
    spellings = Spellings(knobs)
    parsed = parse_all(source, knobs.anchors, others)
    choice = choose(parsed, path, spellings, service, holders)
    lines = Lines(parsed.texts)
    warnings = [*parsed.warnings, *choice.warnings]
    settings = _settings(choice, path, knobs, lines, warnings)
    if settings is None:
        check_plainly_off(choice, parsed, path, knobs, lines, known_off)
        settings = OFF
    warnings += _remarks(choice, knobs)
    return Reading(
        path=path,
        data=data,
        form=parsed.form,
        settings=settings,
        argv=tuple(word.text.text for word in choice.words),
        places=_places(choice, parsed.texts),
        references=tuple(dict.fromkeys(parsed.references)),
        variables=tuple(parsed.variables),
        warnings=tuple(dict.fromkeys(warnings)),
        knobs=knobs,
        service=service,
        others=others,
        words=choice.words,
        uses=tuple(choice.uses),
        start=choice.start,
        holders=choice.holders,
        rest=tuple(command.argv for command in choice.others),
        texts=parsed.texts,
    )


# -- values ----------------------------------------------------------------------------------


def _settings(
    choice: Choice, path: str, knobs: KnobTable, lines: Lines, warnings: list[str]
) -> Settings | None:
    """The settings that the uses give; None where there are none."""
    if not choice.uses:
        return None
    counting = last_uses(choice.uses)
    _say_repeated(choice, lines, warnings)
    texts: dict[Field, str] = {}
    numbers: dict[Field, int] = {}
    for knob, use in counting.items():
        value = use.value
        if value is None or value.unknown:
            continue
        if value.rivals and knob in _NUMBERS:
            raise AmbiguousKnobError(
                f"{path} sets {use.spelling} to {value.text} or to something else, as a branch"
                " decides.",
                remedy="Set the value in one place.",
                evidence=[lines.show(site, path) for site in (*value.rivals, value.outer_extent())],
            )
        if knob not in _NUMBERS:
            texts[knob] = value.text
        elif _WHOLE.match(value.text):
            numbers[knob] = int(value.text)
        else:
            warnings.append(f"{use.spelling} is {value.text!r}, which is not a whole number.")
    for knob, off in knobs.off_values:
        if texts.get(knob, "").lower() == off:
            return OFF
    if numbers.get("num_steps") == 0:
        return OFF
    return Settings(
        algorithm=texts.get("algorithm"),
        num_steps=numbers.get("num_steps"),
        eagle_topk=numbers.get("eagle_topk"),
        num_draft_tokens=numbers.get("num_draft_tokens"),
        draft_model=texts.get("draft_model"),
        enabled=True,
    )


def _say_repeated(choice: Choice, lines: Lines, warnings: list[str]) -> None:
    counting = last_uses(choice.uses)
    for use in choice.uses:
        if use.field is None or counting[use.field] is use:
            continue
        last = counting[use.field]
        number = lines.number(None if last.value is None else last.value.outer_extent())
        warnings.append(
            f"{use.spelling} is given more than once; the last one, on line {number}, counts."
        )


def _remarks(choice: Choice, knobs: KnobTable) -> list[str]:
    said: list[str] = []
    for name, remark in knobs.remarks:
        for use in choice.uses:
            inside = members(use.value) if use.field is None and use.value is not None else None
            if use.name == name or (inside is not None and name in inside):
                said.append(remark)
    return said


def _places(choice: Choice, texts: Mapping[str, str]) -> dict[Field, Place]:
    places: dict[Field, Place] = {}
    for knob, use in last_uses(choice.uses).items():
        site = None if use.value is None else use.value.written()
        if site is not None and site.path in texts:
            source = Source(site.path, texts[site.path])
            start, end = source.byte_span(site.start, site.end)
            places[knob] = Place(site.path, source.line_of(site.start), start, end)
    return places


__all__ = [
    "AmbiguousKnobError",
    "KnobElsewhereError",
    "KnobNotFoundError",
    "LaunchConfigError",
    "Place",
    "Reading",
    "UnreadableConfigError",
    "UnsupportedFormError",
    "read_config",
]
