"""Server-sent events out of a byte stream. Pure: bytes in, events out, however they were cut.

Framing as the WHATWG standard has it (lines end with LF, CRLF or CR; comments; several data
lines joined by LF; a blank line ends an event), with no limit on a line but on the memory of one
unfinished event. Decoding is left to the reader, so a character cut in two by the network heals
by itself.
"""

from __future__ import annotations

Event = tuple[bytes, bytes]
"""Name (empty where the server gave none) and data."""

MAX_EVENT_BYTES = 64 * 1024 * 1024


class OversizeError(ValueError):
    """One event is larger than :data:`MAX_EVENT_BYTES`."""


class SseFramer:
    """Feed it what the socket gave; it returns the events that this completed."""

    __slots__ = ("_data", "_data_held", "_line_held", "_name", "_pieces", "_skip_lf", "_started")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._line_held = 0
        self._data_held = 0
        self._data: list[bytes] = []
        self._name = b""
        self._skip_lf = False
        self._started = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Raises OversizeError for an event that would not end."""
        if chunk.startswith(b"data: ") and chunk.endswith(b"\n\n") and self._between_events():
            # By far the commonest: the chunk is one whole event of one data line, or a few.
            if chunk.find(b"\n") == len(chunk) - 2 and b"\r" not in chunk:
                self._started = True
                return [(b"", chunk[6:-2])]
            blocks = chunk[:-2].split(b"\n\n")
            if b"\r" not in chunk and all(
                block.startswith(b"data: ") and b"\n" not in block for block in blocks
            ):
                self._started = True
                return [(b"", block[6:]) for block in blocks]
        return self._feed_lines(chunk)

    def finish(self) -> list[Event]:
        """The event the stream ended in, if it has data.

        The standard drops it; servers that close right after their last data line exist, and
        whether it is whole is for its reader to see.
        """
        events: list[Event] = []
        if self._pieces:
            line = b"".join(self._pieces)
            self._pieces.clear()
            self._line(line, events)
        self._line(b"", events)
        return events

    def _between_events(self) -> bool:
        return not self._pieces and not self._data and not self._name and not self._skip_lf

    def _feed_lines(self, chunk: bytes) -> list[Event]:
        events: list[Event] = []
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        for line in chunk.splitlines(keepends=True):
            last = line[-1:]
            if last not in (b"\n", b"\r"):
                self._hold(line)
                continue
            line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
            if self._pieces:
                line = b"".join([*self._pieces, line])
                self._pieces.clear()
                self._line_held = 0
            self._line(line, events)
        # A CR at the very end may be the first half of a CRLF.
        self._skip_lf = chunk.endswith(b"\r")
        return events

    def _hold(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._line_held += len(piece)
        self._check_size()

    def _check_size(self) -> None:
        if self._line_held + self._data_held > MAX_EVENT_BYTES:
            raise OversizeError(f"one event is larger than {MAX_EVENT_BYTES} bytes")

    def _line(self, line: bytes, events: list[Event]) -> None:
        if not self._started:
            self._started = True
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if self._data:
                events.append((self._name, b"\n".join(self._data)))
            self._data.clear()
            self._name = b""
            self._data_held = 0
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._data_held += len(value)
            self._check_size()
        elif field == b"event":
            self._name = value
        elif field == b"error":
            # Older llama.cpp reports an error of the stream in a field of this name.
            events.append((b"error", value))
