"""From the requests of a cell to its figures. Pure; the moments are given.

The steady window. At concurrency 1 it holds whole requests: it opens when the first measured
request is sent and closes when the last one that ended within the budget ends, so that time to
first token and generation stand in their true proportion. At higher concurrency it opens when
every stream has its first token (the streams' first requests are of staggered length, so that
they do not move in step) and closes when the budget ends or, for a fixed number of requests,
when the first stream finds nothing left to send. All streams are busy in between; ramp and
tail lie outside. Tokens count by their arrival, whether or not their request has ended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from specdash.bench.meter import Meter
from specdash.bench.reading import Draft
from specdash.bench.statistics import batch_means, slice_rates, spread
from specdash.core.records import Cell, CellFlag, RequestCounts, Spread

FEWEST_TOKENS = 16
"""A request cut by the window's end says something of its speed from this many tokens on."""


@dataclass(frozen=True, slots=True)
class Window:
    """(opened, closed] in monotonic seconds."""

    opened: float
    closed: float

    @property
    def seconds(self) -> float:
        return max(0.0, self.closed - self.opened)


def ramp_end(meters: Sequence[Meter], streams: int) -> float | None:
    """When ``streams`` different streams had their first token, or None while they have not."""
    firsts: dict[int, float] = {}
    for meter in meters:
        if meter.first is not None and meter.stream not in firsts:
            firsts[meter.stream] = meter.first
    if len(firsts) < streams:
        return None
    return sorted(firsts.values())[streams - 1]


def whole_requests(meters: Sequence[Meter], opened: float, limit: float) -> Window | None:
    """At concurrency 1: from ``opened`` to the end of the last request that ended by ``limit``."""
    ends = [
        meter.ended
        for meter in meters
        if meter.state == "good" and meter.ended is not None and opened < meter.ended <= limit
    ]
    return Window(opened, max(ends)) if ends else None


@dataclass(frozen=True, slots=True)
class Counters:
    """What the engine's own counters say of the window: verify rounds, tokens accepted in
    them, and rounds by drafts accepted."""

    rounds: int
    accepted: int
    histogram: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything a cell is made of. ``meters`` without the warm-up."""

    concurrency: int
    meters: Sequence[Meter]
    window: Window | None
    flags: tuple[CellFlag, ...] = ()
    counters: Counters | None = None
    lost: dict[str, int] = field(default_factory=dict)
    """Causes of failures before the window, where nothing else can tell of them."""


def build_cell(measured: Measured) -> Cell:
    """The figures of a cell, with unknown ones None."""
    sound = [meter for meter in measured.meters if meter.state != "failed"]
    counts = _counts(measured, sound)
    flags = list(measured.flags)
    window = measured.window
    if window is None or counts.ok == 0 or window.seconds <= 0:
        flags.append("failed")
        return Cell(concurrency=measured.concurrency, requests=counts, flags=tuple(flags))
    arrivals = _arrivals(sound, window)
    tokens = sum(count for _, count in arrivals)
    rate = tokens / window.seconds
    curves = [(meter.times, meter.totals) for meter in sound if meter.times]
    slices = slice_rates(curves, window.opened, window.closed)
    interval = batch_means(slices, rate, len(arrivals))
    if interval is None:
        flags.append("short")
    gaps, per_token, weights = _gaps(sound, window)
    tpots = [value for value in map(tpot_s, _finished_sample(sound, window)) if value]
    length, histogram = acceptance(sound, measured.counters)
    return Cell(
        concurrency=measured.concurrency,
        output_tok_s=rate,
        output_tok_s_low=None if interval is None else interval.low,
        output_tok_s_high=None if interval is None else interval.high,
        per_request_tok_s=math.fsum(1 / value for value in tpots) / len(tpots) if tpots else None,
        ttft_ms=_milliseconds(_first_tokens(sound, window)),
        tpot_ms=_milliseconds(tpots),
        itl_ms=_milliseconds(per_token, weights),
        chunk_gap_ms=_milliseconds(gaps),
        accept_length=length,
        accept_histogram=histogram,
        output_tokens=tokens,
        chunks=len(arrivals),
        requests=counts,
        window_s=window.seconds,
        flags=tuple(flags),
    )


def tpot_s(meter: Meter) -> float | None:
    """(latency - TTFT) / (tokens - 1) in seconds, as ``sglang.bench_serving``; of a request we
    cut, up to its last token. None where it cannot be told."""
    if meter.first is None or meter.tokens < 2 or not meter.times:
        return None
    end = meter.ended if meter.state == "good" and meter.ended is not None else meter.times[-1]
    seconds = (end - meter.first) / (meter.tokens - 1)
    return seconds if seconds > 0 else None


def acceptance(
    meters: Sequence[Meter], counters: Counters | None
) -> tuple[float | None, tuple[int, ...] | None]:
    """Mean tokens a verify round emitted, bonus token included, and the rounds by drafts
    accepted: over the requests' own reports, else the engine's counters."""
    drafts = [meter.draft for meter in meters if meter.draft is not None and not meter.ignored]
    if not drafts:
        drafts = [meter.draft for meter in meters if meter.draft is not None]
    rounds = sum(draft.rounds for draft in drafts)
    if rounds:
        histogram = _sum_histograms(drafts)
        if histogram is None and counters is not None:
            histogram = counters.histogram
        return sum(draft.tokens for draft in drafts) / rounds, histogram
    if counters is not None and counters.rounds > 0:
        return 1 + counters.accepted / counters.rounds, counters.histogram
    return None, None


def _sum_histograms(drafts: Sequence[Draft]) -> tuple[int, ...] | None:
    histograms = [draft.histogram for draft in drafts if draft.histogram is not None]
    if len(histograms) < len(drafts):
        return None
    width = max(len(histogram) for histogram in histograms)
    return tuple(
        sum(histogram[place] for histogram in histograms if place < len(histogram))
        for place in range(width)
    )


def _counts(measured: Measured, sound: Sequence[Meter]) -> RequestCounts:
    errors: dict[str, int] = dict(measured.lost)
    for meter in measured.meters:
        if meter.state == "failed":
            errors[meter.cause] = errors.get(meter.cause, 0) + 1
    ok = sum(meter.state == "good" and not meter.ignored for meter in sound)
    if not ok and measured.window is not None:
        # A window shorter than a request: those that were giving tokens when it closed.
        window = measured.window
        ok = sum(meter.tokens_by(window.closed) > meter.tokens_by(window.opened) for meter in sound)
    return RequestCounts(ok=ok, failed=sum(errors.values()), errors=errors)


def _arrivals(meters: Sequence[Meter], window: Window) -> list[tuple[float, int]]:
    found: list[tuple[float, int]] = []
    for meter in meters:
        before = 0
        for moment, total in zip(meter.times, meter.totals, strict=True):
            if window.opened < moment <= window.closed and total > before:
                found.append((moment, total - before))
            before = total
    found.sort()
    return found


def _gaps(meters: Sequence[Meter], window: Window) -> tuple[list[float], list[float], list[int]]:
    """Seconds between chunks that carry tokens; the same per token; tokens of each."""
    gaps: list[float] = []
    per_token: list[float] = []
    weights: list[int] = []
    for meter in meters:
        last: float | None = None
        before = 0
        for moment, total in zip(meter.times, meter.totals, strict=True):
            new = total - before
            before = total
            if new <= 0:
                continue
            if last is not None and window.opened < moment <= window.closed:
                gaps.append(moment - last)
                per_token.append((moment - last) / new)
                weights.append(new)
            last = moment
    return gaps, per_token, weights


def _first_tokens(meters: Sequence[Meter], window: Window) -> list[float]:
    """TTFT in seconds of the requests sent in the window; where it is shorter than a request,
    of those sent before it."""
    waits = [
        (meter.started, meter.first - meter.started)
        for meter in meters
        if meter.first is not None and meter.first <= window.closed
    ]
    inside = [wait for started, wait in waits if started >= window.opened]
    return inside or [wait for _, wait in waits]


def _finished_sample(meters: Sequence[Meter], window: Window) -> list[Meter]:
    """Requests whose speed counts: those that ended well; where there are none, those that
    were cut or sent to fill the ramp and gave enough tokens."""
    good = [
        meter
        for meter in meters
        if meter.state == "good" and not meter.ignored and meter.started <= window.closed
    ]
    if good:
        return good
    enough = [meter for meter in meters if meter.tokens >= FEWEST_TOKENS]
    return [meter for meter in enough if not meter.ignored] or enough


def _milliseconds(seconds: Sequence[float], weights: Sequence[int] | None = None) -> Spread:
    return spread([value * 1000 for value in seconds], weights)
