"""Taking words out of a launch config so that they can be put back byte for byte."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdash.core.settings import Settings
from specdash.launch.errors import NothingToRestoreError
from specdash.launch.source import Splice, apply_splices

_CONTEXT = 120
_BETWEEN = re.compile(r"(?:[ \t]|\\?\r?\n)*\Z")
_ENDS_CONTINUED = re.compile(r"[ \t]*\\[ \t]*\Z")
_ASSIGNS_ALONE = re.compile(r"[ \t]*(?:(?:export|declare(?: -\w+)*|Environment[ \t]*=)[ \t]*)?\Z")


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that stood before character ``at`` of the file without it, and its neighbourhood."""

    at: int
    text: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Removed:
    """What turning speculation off took out of ``path``, and the settings it held.

    ``digest`` is the SHA-256 of the file without it. JSON-serialisable.
    """

    path: str
    settings: Settings
    pieces: tuple[Piece, ...]
    digest: str

    def to_json(self) -> dict[str, object]:
        return {
            "path": self.path,
            "settings": self.settings.to_json(),
            "pieces": [
                {"at": p.at, "text": p.text, "before": p.before, "after": p.after}
                for p in self.pieces
            ],
            "digest": self.digest,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Removed:
        """Raises NothingToRestoreError where ``body`` is not what :meth:`to_json` gave."""
        try:
            return cls(
                str(body["path"]),
                Settings(**body["settings"]),
                tuple(Piece(**piece) for piece in body["pieces"]),
                str(body["digest"]),
            )
        except (KeyError, TypeError) as error:
            raise NothingToRestoreError(
                f"The record of the removed speculation flags is damaged ({error}).",
                remedy="Restore the launch config from its backup.",
            ) from None

    def restore(self, text: str) -> str:
        """``text`` with the pieces back in place.

        Where the file changed since, each piece goes to the one place with the same
        neighbourhood. Raises NothingToRestoreError where there is no such place.
        """
        same = hashlib.sha256(text.encode("utf-8")).hexdigest() == self.digest
        splices: list[Splice] = []
        for piece in self.pieces:
            at = piece.at if same else _find(text, piece)
            splices.append(Splice(at, at, piece.text))
        return apply_splices(text, splices)


def _find(text: str, piece: Piece) -> int:
    around = piece.before + piece.after
    first = text.find(around)
    if first < 0 or text.find(around, first + 1) >= 0:
        raise NothingToRestoreError(
            "The launch config changed since speculation was turned off, and the place of"
            f" {piece.text.strip()!r} is no longer certain.",
            remedy="Put the flags back by hand, or restore the backup.",
            evidence=(piece.text.strip(),),
        )
    return first + len(piece.before)


def remove(
    path: str,
    text: str,
    tokens: Sequence[tuple[int, int]],
    assignments: Sequence[tuple[int, int]],
    settings: Settings,
) -> tuple[str, Removed]:
    """``text`` without the given ranges, each with the blanks or the line that only it needs.

    ``tokens`` are words of commands, ``assignments`` whole ``NAME=value`` of variables.
    """
    spans = [_word_span(text, *run) for run in _runs(text, tokens)]
    spans += [_assignment_span(text, *span) for span in assignments]
    spans = _merged(spans)
    left = apply_splices(text, [Splice(start, end, "") for start, end in spans])
    pieces: list[Piece] = []
    gone = 0
    for start, end in spans:
        at = start - gone
        gone += end - start
        pieces.append(
            Piece(at, text[start:end], left[max(0, at - _CONTEXT) : at], left[at : at + _CONTEXT])
        )
    digest = hashlib.sha256(left.encode("utf-8")).hexdigest()
    return left, Removed(path, settings, tuple(pieces), digest)


def _runs(text: str, tokens: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Tokens with nothing but blanks and line joins between them, taken together."""
    runs: list[tuple[int, int]] = []
    for start, end in sorted(set(tokens)):
        if runs and start >= runs[-1][1] and _BETWEEN.match(text[runs[-1][1] : start]):
            runs[-1] = (runs[-1][0], end)
        elif runs and start < runs[-1][1]:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        else:
            runs.append((start, end))
    return runs


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _line(text: str, start: int, end: int) -> tuple[int, int]:
    """The start of the line of ``start`` and the end (before the break) of the line of ``end``."""
    stop = text.find("\n", end)
    return text.rfind("\n", 0, start) + 1, len(text) if stop < 0 else stop


def _word_span(text: str, start: int, end: int) -> tuple[int, int]:
    first, last = _line(text, start, end)
    before, after = text[first:start], text[end:last].rstrip("\r")
    if not before.strip(" \t") and after.strip(" \t") in ("", "\\"):
        return _whole_lines(text, (first, start, end, last), continued=bool(after.strip(" \t")))
    blank_before = len(before) - len(before.rstrip(" \t"))
    blank_after = len(after) - len(after.lstrip(" \t"))
    if blank_after and after.strip(" \t") not in ("", "\\"):
        return start, end + blank_after
    if blank_before < len(before):
        return start - blank_before, end
    return start, end


def _whole_lines(
    text: str, place: tuple[int, int, int, int], *, continued: bool
) -> tuple[int, int]:
    """The span of words that have their lines for themselves."""
    first, _, end, last = place
    if continued:
        return first, min(last + 1, len(text))
    above = text[:first].removesuffix("\n").removesuffix("\r")
    join = _ENDS_CONTINUED.search(above)
    if join is not None and first > 0:
        return join.start(), end  # the last argument: the join before it goes too
    while above:
        line_start = above.rfind("\n") + 1
        line = above[line_start:].strip(" \t\r")
        if not line.startswith(("#", ";")):
            break
        above = above[:line_start].removesuffix("\n").removesuffix("\r")
        if _ENDS_CONTINUED.search(above):
            # Comment lines stand between; an empty line has to end the command.
            return first, end
    return first, min(last + 1, len(text))


def _assignment_span(text: str, start: int, end: int) -> tuple[int, int]:
    first, last = _line(text, start, end)
    after = text[end:last].strip(" \t\r;")
    if _ASSIGNS_ALONE.match(text[first:start]) and not after:
        return first, min(last + 1, len(text))
    return _word_span(text, start, end)
