"""The engine's own counters in Prometheus text: acceptance over a window, and requests that
wait. Pure. Names as vLLM, SGLang and llama.cpp publish them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from specdash.bench.window import Counters

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_POSITION = re.compile(r'(?:^|,)\s*position="(\d+)"')

_ROUNDS = ("vllm:spec_decode_num_drafts_total", "llamacpp:spec_decode_num_drafts_total")
_ACCEPTED = (
    "vllm:spec_decode_num_accepted_tokens_total",
    "llamacpp:spec_decode_num_accepted_tokens_total",
)
_BY_POSITION = (
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
)
_WAITING = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred")


@dataclass(frozen=True, slots=True)
class Scrape:
    """The sums that matter, over all labels; None where a name is absent."""

    rounds: float | None = None
    accepted: float | None = None
    by_position: Mapping[int, float] = field(default_factory=dict)
    waiting: float | None = None
    engine: str | None = None


def read_metrics(text: str) -> Scrape:
    """Lines it does not understand are passed over."""
    sums: dict[str, float] = {}
    positions: dict[int, float] = {}
    engine: str | None = None
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = _SAMPLE.match(line)
        if match is None:
            continue
        name, labels, raw = match.groups()
        if engine is None and ":" in name:
            engine = name.partition(":")[0]
        try:
            value = float(raw)
        except ValueError:
            continue
        if not math.isfinite(value):
            continue
        if name in _BY_POSITION:
            place = _POSITION.search(labels or "")
            if place is not None and int(place[1]) < 1024:
                positions[int(place[1])] = positions.get(int(place[1]), 0.0) + value
        else:
            sums[name] = sums.get(name, 0.0) + value
    return Scrape(
        rounds=_first(sums, _ROUNDS),
        accepted=_first(sums, _ACCEPTED),
        by_position=positions,
        waiting=_first(sums, _WAITING),
        engine=engine,
    )


def between(before: Scrape, after: Scrape) -> Counters | None:
    """What happened between two scrapes. None without rounds, or where a counter went back (the
    engine was restarted)."""
    if None in (before.rounds, before.accepted, after.rounds, after.accepted):
        return None
    rounds = (after.rounds or 0.0) - (before.rounds or 0.0)
    accepted = (after.accepted or 0.0) - (before.accepted or 0.0)
    if rounds <= 0 or accepted < 0:
        return None
    return Counters(round(rounds), round(accepted), _histogram(before, after, rounds))


def _histogram(before: Scrape, after: Scrape, rounds: float) -> tuple[int, ...] | None:
    depth = max(after.by_position, default=-1) + 1
    reached = [rounds] + [
        after.by_position.get(place, 0.0) - before.by_position.get(place, 0.0)
        for place in range(depth)
    ]
    ends = [*reached[1:], 0.0]
    counts = [round(here - further) for here, further in zip(reached, ends, strict=True)]
    if depth == 0 or any(count < 0 for count in counts):
        return None
    return tuple(counts)


def _first(sums: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    return next((sums[name] for name in names if name in sums), None)
