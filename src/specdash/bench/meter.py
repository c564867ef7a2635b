"""One request under measurement. Pure: bytes and moments in, tokens by moment out.

This is the hot path: it is called for every piece the socket gives, by whatever transport.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

from specdash.bench.reading import BadEventError, Draft, Reader
from specdash.bench.sse import OversizeError, SseFramer

State = Literal["open", "good", "failed", "cut"]


class Meter:
    """Counts one streamed request.

    ``times`` are the moments (monotonic seconds) at which tokens arrived, ``totals`` the tokens
    received by then, this arrival included. ``waiting`` are arrivals whose count the server has
    not told yet: the next cumulative figure is divided among them by the size of their text.
    """

    __slots__ = (
        "_framer",
        "_reader",
        "_total",
        "bytes_seen",
        "cached",
        "cause",
        "detail",
        "done",
        "draft",
        "ended",
        "events",
        "finish",
        "first",
        "heard",
        "ignored",
        "index",
        "reply",
        "started",
        "state",
        "stream",
        "text_size",
        "times",
        "totals",
        "waiting",
    )

    def __init__(
        self,
        reader: Reader,
        started: float,
        *,
        stream: int = 0,
        index: int = 0,
        ignored: bool = False,
    ) -> None:
        self._reader = reader
        self._framer = SseFramer()
        self._total = 0
        self.stream = stream
        """Which of the concurrent streams sent it."""
        self.index = index
        """Its place in the order of the cell."""
        self.ignored = ignored
        """Sent to fill the ramp: not counted among the requests."""
        self.started = started
        self.ended: float | None = None
        self.first: float | None = None
        """When the first token arrived."""
        self.heard = started
        """When a token last arrived (or when it started)."""
        self.times: list[float] = []
        self.totals: list[int] = []
        self.waiting: list[tuple[float, int]] = []
        self.text_size = 0
        self.events = 0
        self.bytes_seen = 0
        self.state: State = "open"
        self.cause = ""
        self.detail = ""
        self.reply = ""
        """The body of an answer that was no stream."""
        self.done = False
        self.finish: str | None = None
        self.draft: Draft | None = None
        self.cached: int | None = None

    @property
    def tokens(self) -> int:
        """Tokens the server has counted so far."""
        return self._total

    @property
    def over(self) -> bool:
        """Good, failed or cut."""
        return self.state != "open"

    @property
    def counted(self) -> bool:
        """Whether every arrival has its count."""
        return not self.waiting

    def feed(self, data: bytes, now: float) -> bool:
        """Take what arrived at ``now``. True when the request is over (good or failed)."""
        self.bytes_seen += len(data)
        try:
            events = self._framer.feed(data)
            for name, body in events:
                self._take(name, body, now)
        except BadEventError as error:
            self.fail("bad-json", now, str(error))
        except OversizeError as error:
            self.fail("broken-sse", now, str(error))
        return self.done or self.over

    def end(self, now: float) -> None:
        """The server closed the stream."""
        if not self.over:
            self._take_rest(now)
        if not self.over:
            self._judge(now)

    def _take_rest(self, now: float) -> None:
        try:
            for name, body in self._framer.finish():
                self._take(name, body, now)
        except (BadEventError, OversizeError) as error:
            self.fail("broken-sse", now, f"the stream ended inside an event: {error}")

    def _judge(self, now: float) -> None:
        if not self.events and self.bytes_seen:
            self.fail("broken-sse", now, "the answer is not an event stream")
        elif not self.done and self.finish is None:
            self.fail("early-close", now, "the stream ended before the request had finished")
        elif not self._total and not self.waiting:
            self.fail("no-tokens", now, "the request finished without a token")
        else:
            self.state = "good"
            if self.ended is None:
                self.ended = now

    def fail(self, cause: str, now: float, detail: str = "") -> None:
        """The request failed. The first cause stands."""
        if self.state == "open":
            self.state = "failed"
            self.cause = cause
            self.detail = detail
            self.ended = now

    def cut(self, now: float) -> None:
        """We ended it; what it gave until now stands."""
        if self.state == "open":
            self.state = "cut"
            self.ended = now

    def settle(self, total: int) -> None:
        """Say how many tokens the request had in all, learned in another way."""
        self._counted(max(total, self._total))

    def tokens_by(self, moment: float) -> int:
        """Tokens received until ``moment``, that moment included."""
        place = bisect_right(self.times, moment)
        return self.totals[place - 1] if place else 0

    def _take(self, name: bytes, body: bytes, now: float) -> None:
        if self.done or self.state != "open":
            return
        note = self._reader(name, body)
        self.events += 1
        if note.error is not None:
            self.fail("server-error", now, note.error)
            return
        self.ended = now
        if note.done:
            self.done = True
            return
        if note.finish is not None:
            self.finish = note.finish
        if note.draft is not None:
            self.draft = note.draft
        if note.cached is not None:
            self.cached = note.cached
        if note.size:
            self.text_size += note.size
            self._arrived(now)
            self.waiting.append((now, note.size))
        if note.total is not None and note.total > self._total:
            if note.timed and not note.size:
                # Tokens without text: held back by the server, or special ones.
                self._arrived(now)
                self.waiting.append((now, 0))
            self._counted(note.total)
        elif note.total and note.total == self._total:
            # The text since the last count held no new token (one token's text, cut in two).
            self.waiting = []

    def _arrived(self, now: float) -> None:
        if self.first is None:
            self.first = now
        self.heard = now

    def _counted(self, total: int) -> None:
        new = total - self._total
        if new <= 0:
            return
        waiting = self.waiting
        if len(waiting) == 1:
            self.times.append(waiting[0][0])
            self.totals.append(total)
        elif waiting:
            for (moment, _), running in zip(waiting, _divide(new, waiting), strict=True):
                self.times.append(moment)
                self.totals.append(self._total + running)
        elif self.times:
            # Nothing new arrived with it: it corrects what came before (a special token).
            self.totals[-1] = total
        else:
            moment = self.ended if self.ended is not None else self.started
            self.times.append(moment)
            self.totals.append(total)
            self._arrived(moment)
        self.waiting = []
        self._total = total


def _divide(new: int, waiting: Sequence[tuple[float, int]]) -> list[int]:
    """Running totals of ``new`` tokens over arrivals in proportion to their text."""
    sizes = [max(size, 1) for _, size in waiting]
    whole = sum(sizes)
    running: list[int] = []
    passed = 0
    for size in sizes:
        passed += size
        running.append(round(new * passed / whole))
    return running
