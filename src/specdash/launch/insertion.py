"""Where and how a missing speculation flag is written: beside the others, in their style."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from specdash.launch.flags import Use, last_uses
from specdash.launch.jsontext import members
from specdash.launch.knobs import Field
from specdash.launch.reading import Reading
from specdash.launch.source import Splice
from specdash.launch.trace import Site

_BLANK_BEFORE = re.compile(r"(?:[ \t]|\\?\r?\n)+\Z")
_BLANK = re.compile(r"(?:[ \t]|\\?\r?\n)+")
_PREFERRED: tuple[Field, ...] = (
    "algorithm",
    "draft_model",
    "num_steps",
    "eagle_topk",
    "num_draft_tokens",
)


@dataclass(frozen=True, slots=True)
class Insertion:
    """One way to write the missing flags; ``after`` is the flag they follow."""

    path: str
    splice: Splice
    after: str


def insertions(reading: Reading, missing: Sequence[tuple[Field, str]]) -> Iterator[Insertion]:
    """Ways to insert the flags, the best first; the caller proves each by reading again."""
    beside = _neighbour(reading)
    if beside is None:
        return
    if beside.style == "json":
        yield from _into_json(reading, beside, missing)
        return
    first, last = reading.words[beside.words[0]].token, reading.words[beside.words[-1]].token
    if first is None or last is None or first.path != last.path:
        return
    text = reading.texts[first.path]
    for gap in _gaps(text, first, last):
        written = "".join(
            gap + _written(reading, beside, text, (first, last), item) for item in missing
        )
        yield Insertion(first.path, Splice(last.end, last.end, written), beside.spelling)


def _neighbour(reading: Reading) -> Use | None:
    """The flag to write after: the algorithm, else what there is."""
    uses = last_uses(reading.uses)
    for knob in _PREFERRED:
        use = uses.get(knob)
        if use is not None and use.words:
            return use
    return next((use for use in reading.uses if use.words and use.value is not None), None)


def _gaps(text: str, first: Site, last: Site) -> Iterator[str]:
    """What separates words here: as before the flag, as after it, one blank."""
    seen: set[str] = set()
    before = _BLANK_BEFORE.search(text, max(0, first.start - 400), first.start)
    after = _BLANK.match(text, last.end)
    for match in (before, after):
        if match is not None and match.group() not in seen:
            seen.add(match.group())
            yield match.group()
    if " " not in seen:
        yield " "


def _written(
    reading: Reading, beside: Use, text: str, place: tuple[Site, Site], item: tuple[Field, str]
) -> str:
    knob, value = item
    flag = reading.knobs.flag(knob)
    name = knob if flag is None else flag.name
    if beside.style == "equals":
        return f"{name}={value}"
    between = _BLANK.match(text, place[0].end)
    separate = between is not None and "\n" in between.group() and between.end() == place[1].start
    return f"{name}{between.group() if between is not None and separate else ' '}{value}"


def _into_json(
    reading: Reading, beside: Use, missing: Sequence[tuple[Field, str]]
) -> Iterator[Insertion]:
    """New members after the neighbour's, with quotes written as its own quotes are."""
    holder = next(
        (u for u in reading.uses if u.words == beside.words and u.field is None and u.value), None
    )
    if holder is None or holder.value is None:
        return
    key = beside.name.partition(".")[2]
    member = (members(holder.value) or {}).get(key)
    if member is None:
        return
    end = member.written.extent(len(member.written) - 1, len(member.written))
    raw = holder.value.text
    quote = holder.value.extent(raw.index('"'), raw.index('"') + 1)
    if end is None or quote is None or quote.path != end.path:
        return
    mark = reading.texts[quote.path][quote.start : quote.end]
    separator, colon = (", ", ": ") if re.search(r'":\s', raw) else (",", ":")
    written = ""
    for knob, value in missing:
        flag = reading.knobs.flag(knob)
        if flag is None:
            return
        name = flag.name.partition(".")[2]
        shown = value if value.isdecimal() else f"{mark}{value}{mark}"
        written += f"{separator}{mark}{name}{mark}{colon}{shown}"
    yield Insertion(end.path, Splice(end.end, end.end, written), key)
