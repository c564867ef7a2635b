"""Text that knows where each of its characters is written.

An argument of a command can be put together from quotes, escapes, variables and defaults spread
over several lines and files. Reading it character by character with its origin makes every edit
a splice of exactly the bytes that hold the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload


@dataclass(frozen=True, slots=True)
class Site:
    """A half-open range of characters of one file (``path`` is the file's name as it was given)."""

    path: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where one character comes from.

    ``sites`` runs from the place it is written at to the outermost place that uses it.
    ``unknown`` names the variable or substitution whose value the files do not tell.
    ``rivals`` are other assignments that may hold instead. ``computed``: the place holds a
    formula, not the character.
    """

    sites: tuple[Site, ...] = ()
    unknown: str = ""
    rivals: tuple[Site, ...] = ()
    computed: bool = False


NOWHERE = Origin()


class _FileOrigins(Sequence[Origin]):
    """The origins of a file's own text, made when asked for."""

    def __init__(self, path: str, start: int, length: int) -> None:
        self._path = path
        self._start = start
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Origin: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Origin]: ...
    def __getitem__(self, index: int | slice) -> Origin | Sequence[Origin]:
        if isinstance(index, slice):
            start, stop, _ = index.indices(self._length)
            return _FileOrigins(self._path, self._start + start, max(0, stop - start))
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(index)
        at = self._start + index
        return Origin((Site(self._path, at, at + 1),))

    def site(self, start: int, end: int) -> Site:
        """The range of the file behind ``[start, end)``."""
        return Site(self._path, self._start + start, self._start + end)


class Traced:
    """Immutable text with one :class:`Origin` a character."""

    __slots__ = ("_origins", "text")

    def __init__(self, text: str, origins: Sequence[Origin]) -> None:
        if len(text) != len(origins):
            raise ValueError("every character needs an origin")
        self.text = text
        self._origins = origins

    @classmethod
    def of_file(cls, path: str, text: str) -> Traced:
        """A whole file."""
        return cls(text, _FileOrigins(path, 0, len(text)))

    @classmethod
    def made(cls, text: str, origin: Origin = NOWHERE) -> Traced:
        """Text that is written nowhere as it stands: computed, or standing for ``origin``."""
        return cls(text, (origin,) * len(text))

    @classmethod
    def join(cls, parts: Sequence[Traced], separator: Traced | None = None) -> Traced:
        text: list[str] = []
        origins: list[Origin] = []
        for number, part in enumerate(parts):
            if number and separator is not None:
                text.append(separator.text)
                origins.extend(separator.origins)
            text.append(part.text)
            origins.extend(part.origins)
        return cls("".join(text), tuple(origins))

    @property
    def origins(self) -> Sequence[Origin]:
        return self._origins

    def __len__(self) -> int:
        return len(self.text)

    def __getitem__(self, index: slice) -> Traced:
        return Traced(self.text[index], self._origins[index])

    def __add__(self, other: Traced) -> Traced:
        return Traced(self.text + other.text, (*self._origins, *other.origins))

    def __iter__(self) -> Iterator[tuple[str, Origin]]:
        return zip(self.text, self._origins, strict=True)

    def __repr__(self) -> str:
        return f"Traced({self.text!r})"

    def origin(self, index: int) -> Origin:
        return self._origins[index]

    def used_at(self, site: Site | None) -> Traced:
        """The same text, used at ``site`` through a variable."""
        if site is None:
            return self
        return Traced(self.text, tuple(replace(o, sites=(*o.sites, site)) for o in self._origins))

    def with_rivals(self, rivals: tuple[Site, ...]) -> Traced:
        """The same text, which other assignments may replace."""
        if not rivals:
            return self
        return Traced(
            self.text,
            tuple(
                replace(o, rivals=tuple(dict.fromkeys((*o.rivals, *rivals)))) for o in self._origins
            ),
        )

    @property
    def unknown(self) -> str:
        """The first variable or substitution in it that the files do not tell; "" if none."""
        return next((o.unknown for o in self._origins if o.unknown), "")

    @property
    def rivals(self) -> tuple[Site, ...]:
        """Every other assignment that may hold for a part of it."""
        return tuple(dict.fromkeys(site for o in self._origins for site in o.rivals))

    def written(self) -> Site | None:
        """The one unbroken range that holds exactly this text, if there is one."""
        return unbroken(
            [
                o.sites[0] if o.sites and not o.unknown and not o.computed else None
                for o in self._origins
            ]
        )

    @property
    def computed(self) -> bool:
        """Whether a part of it is the result of a formula."""
        return any(o.computed for o in self._origins)

    def extent(self, start: int, end: int) -> Site | None:
        """The range of a file that covers ``[start, end)``, quotes and breaks between included."""
        if isinstance(self._origins, _FileOrigins) and 0 <= start < end <= len(self):
            return self._origins.site(start, end)
        return covering([o.sites[0] if o.sites else None for o in self._origins[start:end]])

    def extent_at(self, level: int) -> Site | None:
        """The range that covers its characters ``level`` uses further in than the outermost."""
        chains = [origin.sites for origin in self._origins]
        return covering(
            [chain[max(0, len(chain) - 1 - level)] if chain else None for chain in chains]
        )

    def outer_extent(self) -> Site | None:
        """The range that covers the outermost places of all its characters."""
        return self.extent_at(0)


def unbroken(sites: Sequence[Site | None]) -> Site | None:
    """One range from ranges that touch in order; None where they do not."""
    first = sites[0] if sites else None
    if first is None:
        return None
    end = first.start
    for site in sites:
        if site is None or site.path != first.path or site.start != end:
            return None
        end = site.end
    return Site(first.path, first.start, end)


def covering(sites: Sequence[Site | None]) -> Site | None:
    """The smallest range that covers all of them; None where one has no place in the same file."""
    known = [site for site in sites if site is not None]
    if not known or len(known) != len(sites) or len({site.path for site in known}) != 1:
        return None
    return Site(known[0].path, min(s.start for s in known), max(s.end for s in known))


@dataclass(frozen=True, slots=True)
class Word:
    """One argument. ``token`` is the range that writes it, with its quotes, where it is alone."""

    text: Traced
    token: Site | None


@dataclass(frozen=True, slots=True)
class Variable:
    """One assignment. ``token`` covers name, ``=`` and value; ``exported``: the engine sees it.

    ``words`` are the elements of an array.
    """

    name: str
    value: Traced
    token: Site | None
    exported: bool = True
    words: tuple[Word, ...] | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """Another file this one leads to. ``optional``: its absence is no fault."""

    kind: str  # "env-file" | "script" | "sourced"
    path: str
    site: Site | None = None
    optional: bool = False
