"""A launch config's bytes as text and back, without loss."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from specdash.launch.errors import AmbiguousKnobError, UnreadableConfigError

MAX_BYTES = 1 << 19
"""A launch config larger than this is something else."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its name, and its text with line ends and byte order mark as they are."""

    path: str
    text: str

    @property
    def data(self) -> bytes:
        return self.text.encode("utf-8")

    def line_of(self, position: int) -> int:
        """The 1-based line that holds the character at ``position``."""
        return self.text.count("\n", 0, position) + 1

    def line_text(self, number: int) -> str:
        """The text of a 1-based line without its end."""
        return self.text.split("\n")[number - 1].rstrip("\r")

    def byte_span(self, start: int, end: int) -> tuple[int, int]:
        """Byte offsets of a range of characters."""
        first = len(self.text[:start].encode("utf-8"))
        return first, first + len(self.text[start:end].encode("utf-8"))


def decode(path: str, data: bytes) -> Source:
    """The file as text. Raises UnreadableConfigError for what is no text of a sane size."""
    if len(data) > MAX_BYTES:
        raise UnreadableConfigError(
            f"{path} is {len(data)} bytes; a launch config of more than {MAX_BYTES} is not read.",
            remedy="Name the file that holds the engine's flags.",
        )
    if b"\0" in data:
        raise UnreadableConfigError(
            f"{path} is a binary file (it holds NUL bytes).",
            remedy="Name the text file that holds the engine's flags.",
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UnreadableConfigError(
            f"{path} is not UTF-8: byte {error.start} on line {line}.",
            remedy="Convert it to UTF-8 first; it was left as it is.",
        ) from None
    return Source(path, text)


@dataclass(frozen=True, slots=True)
class Splice:
    """Replace the characters ``[start, end)`` by ``text``."""

    start: int
    end: int
    text: str


def apply_splices(text: str, splices: Iterable[Splice]) -> str:
    """``text`` with all splices applied at once. Raises AmbiguousKnobError where two overlap."""
    out: list[str] = []
    at = 0
    for splice in sorted(set(splices), key=lambda s: (s.start, s.end)):
        if splice.start < at:
            raise AmbiguousKnobError(
                "Two settings are written at the same place of the file.",
                remedy="Give each setting a value of its own.",
            )
        out += (text[at : splice.start], splice.text)
        at = splice.end
    out.append(text[at:])
    return "".join(out)
