"""What a candidate's numbers may be at all, before any engine has a say."""

from __future__ import annotations

from specdash.core.errors import UsageError
from specdash.core.settings import Candidate

# No deployed engine verifies this many tokens a round; larger numbers are slips of the finger,
# and some engines would take them and allocate accordingly.
MAX_STEPS = 1000
MAX_TOPK = 1000
MAX_DRAFT_TOKENS = 10_000


def check_domain(candidate: Candidate, word: str = "steps") -> None:
    """Raise UsageError where a number is outside every engine's domain.

    ``word`` is the engine's own word for the depth.
    """
    _check(word, candidate.num_steps, 0, MAX_STEPS)
    if candidate.eagle_topk is not None:
        _check("topk", candidate.eagle_topk, 1, MAX_TOPK)
    if candidate.num_draft_tokens is not None:
        _check("draft tokens", candidate.num_draft_tokens, 1, MAX_DRAFT_TOKENS)


def _check(name: str, value: int, low: int, high: int) -> None:
    if low <= value <= high:
        return
    raise UsageError(
        f"{name} must be a whole number from {low} to {high}, not {value}.",
        remedy="Use 0 steps to turn speculation off."
        if low == 0
        else f"Give a number from {low} up, or leave it out.",
        code="out-of-domain",
    )
