"""How fast the simulated engine is, and how much it can hold. Pure.

Up to five steps the speed at one request is an operator's measured table; the step time is what
that table and the accept lengths imply. Beyond, and over batch sizes, it follows
``T(k, c) = c * tau(k) / (t_v(c) + k * t_d(c))``: the draft costs a fixed time a step, acceptance decays
geometrically, and verification grows with the tokens of the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MEASURED_TOK_S = (123.0, 186.0, 234.0, 277.0, 282.0)
"""Output tok/s at one request, steps 1 to 5."""

SURVIVAL = (0.88, 0.80, 0.73, 0.66, 0.55)
"""P(at least j draft tokens accepted), j = 1 to 5."""

SURVIVAL_DECAY = 0.70
"""The ratio of neighbours beyond."""

DRAFT_MS = 1.6
"""Time of one more draft step beyond five."""

PLAIN_MS = 11.1
"""Time of one token without speculation."""

MAX_RUNNING_BASELINE = 32
MAX_RUNNING_FIRST = 26.0
MAX_RUNNING_DECAY = 0.1135


@dataclass(frozen=True, slots=True)
class Shape:
    """The speculation an engine runs: ``steps`` 0 is off. ``tp``: GPUs it is spread over."""

    steps: int = 0
    topk: int = 1
    draft_tokens: int = 0
    tp: int = 4

    @property
    def verified(self) -> int:
        """Tokens a verify round looks at, the root included."""
        return 1 if self.steps == 0 else max(2, self.draft_tokens or self.steps + 1)

    @property
    def reach(self) -> int:
        """Draft tokens a round can accept at the most."""
        return 0 if self.steps == 0 else min(self.steps, self.verified - 1)


def _chain(depth: int) -> list[float]:
    values = list(SURVIVAL[:depth])
    while len(values) < depth:
        values.append(values[-1] * SURVIVAL_DECAY)
    return values


def survival(shape: Shape) -> tuple[float, ...]:
    """P(at least j draft tokens are accepted in a round), j = 1 to ``shape.reach``."""
    chain = _chain(shape.reach)
    if shape.topk <= 1:
        return tuple(chain)
    # A tree offers more than one guess a level: fewer misses, with falling returns.
    tries = 1 + 0.25 * math.log2(shape.topk)
    out: list[float] = []
    before, alive = 1.0, 1.0
    for value in chain:
        alive *= 1 - (1 - value / before) ** tries
        before = value
        out.append(alive)
    return tuple(out)


def accept_length(shape: Shape) -> float:
    """Mean tokens a round emits, the bonus token included: 1 to ``reach + 1``."""
    return 1.0 + sum(survival(shape))


def step_s(shape: Shape, batch: int = 1) -> float:
    """Seconds of one engine step for a batch of ``batch`` requests."""
    others = max(0, batch - 1)
    if shape.steps == 0:
        one = PLAIN_MS
    else:
        measured = min(shape.steps, len(MEASURED_TOK_S))
        chain = 1.0 + sum(_chain(measured))
        one = 1000 * chain / MEASURED_TOK_S[measured - 1] + DRAFT_MS * (shape.steps - measured)
        if shape.topk > 1:
            one *= 1 + 0.09 * math.log2(shape.topk)
        one += 0.2 * max(0, shape.verified - shape.steps - 1)
    whole = one * (1 + 0.035 * others) + 0.06 * others * math.pow(shape.verified, 1.6)
    return whole * math.pow(4 / shape.tp, 0.6) / 1000


def tok_s(shape: Shape, batch: int = 1) -> float:
    """Output tok/s of a full batch, all requests together."""
    return max(1, batch) * accept_length(shape) / step_s(shape, batch)


def max_running(shape: Shape, asked: int | None = None) -> int:
    """Requests that run at once: 26 at one step, fewer with depth (each reserves draft slots)."""
    if shape.steps == 0:
        held = MAX_RUNNING_BASELINE
    else:
        depth = max(shape.steps, shape.verified - 1)
        held = max(1, int(MAX_RUNNING_FIRST * math.exp(-MAX_RUNNING_DECAY * (depth - 1))))
    return held if asked is None else max(1, min(held, asked))


class AcceptSequence:
    """Accepted lengths of one request's rounds: the right distribution, little variance.

    A golden-ratio sequence fed through the inverse distribution keeps the mean of any short
    window near the true one, so that a two-second measurement is not a lottery.
    """

    _STRIDE = (math.sqrt(5) - 1) / 2

    def __init__(self, shape: Shape, start: float = 0.5) -> None:
        self._survival = survival(shape)
        self._at = start % 1.0

    def next(self) -> int:
        """Tokens of the next round: 1 to ``reach + 1``."""
        self._at = (self._at + self._STRIDE) % 1.0
        tokens = 1
        for alive in self._survival:
            if self._at >= alive:
                break
            tokens += 1
        return tokens
