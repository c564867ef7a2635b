"""SGLang's rules for speculation settings, as its argument hooks and its verifier apply them.

Read in SGLang 0.5.23 (``srt/arg_groups/speculative_hook.py``); the same rules are older.
"""

from __future__ import annotations

from specdash.core.settings import OFF, Candidate, Resolution, Settings
from specdash.engines.domain import check_domain
from specdash.engines.protocol import IllegalCandidateError

# steps, topk and draft tokens are free, within the rules of a chain or a tree.
TREE_ALGORITHMS = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "FROZEN_KV_MTP"})

# The depth is the number of draft tokens; SGLang overrides or ignores steps.
BLOCK_ALGORITHMS = {
    "DFLASH": "SGLang forces steps and topk to 1 under DFLASH",
    "DSPARK": "SGLang forces steps and topk to 1 under DSPARK",
    "UNO": "SGLang forces steps and topk to 1 under UNO's linear mode",
    "NGRAM": "under NGRAM SGLang sets topk to the match breadth and steps follow draft tokens",
    "LOOKAHEAD": "LOOKAHEAD is NGRAM's old name, and steps follow draft tokens there",
}


def resolve(current: Settings, candidate: Candidate) -> Resolution:
    """Apply the rules to ``candidate`` on top of ``current``, the launch config's settings.

    Raises UsageError for a number outside its domain, IllegalCandidateError where SGLang would
    refuse, change or die of the combination.
    """
    check_domain(candidate)
    if candidate.num_steps == 0:
        return _off(candidate)
    algorithm = None if current.algorithm is None else current.algorithm.upper()
    if algorithm in BLOCK_ALGORITHMS:
        return _block(algorithm, current, candidate)
    notes: list[str] = []
    if algorithm is not None and algorithm not in TREE_ALGORITHMS:
        notes.append(
            f"specdash does not know the rules of the algorithm {algorithm}; "
            "EAGLE's are applied and the engine's answer is compared after the start."
        )
    topk = _topk(current, candidate, notes)
    tokens = _chain(current, candidate, notes) if topk == 1 else _tree(current, candidate, topk)
    settings = Settings(
        algorithm=current.algorithm,
        num_steps=candidate.num_steps,
        eagle_topk=topk,
        num_draft_tokens=tokens,
        draft_model=current.draft_model,
        enabled=True,
    )
    return Resolution(candidate, settings, tuple(notes))


def tree_capacity(steps: int, topk: int) -> int:
    """The most draft tokens a round can hold, the root included.

    The first step proposes ``topk`` tokens, each later one ``topk`` for each of ``topk``
    branches; asking for more starts fine and dies on the first request ("selected index k
    out of range").
    """
    return 1 + topk + (steps - 1) * topk * topk


def _off(candidate: Candidate) -> Resolution:
    if candidate.eagle_topk is not None or candidate.num_draft_tokens is not None:
        raise IllegalCandidateError(
            "With 0 steps speculation is off, and topk and draft tokens have no meaning.",
            remedy="Leave topk and draft tokens out, or give at least 1 step.",
        )
    return Resolution(candidate, OFF, ("0 steps: speculation is turned off (the baseline).",))


def _topk(current: Settings, candidate: Candidate, notes: list[str]) -> int:
    if candidate.eagle_topk is not None:
        return candidate.eagle_topk
    if current.eagle_topk is not None and current.eagle_topk >= 1:
        return current.eagle_topk
    notes.append(
        "topk is set to 1 with the steps: SGLang wants steps, topk and draft tokens "
        "all given or none."
    )
    return 1


def _chain(current: Settings, candidate: Candidate, notes: list[str]) -> int:
    forced = candidate.num_steps + 1
    asked = candidate.num_draft_tokens
    if asked is not None and asked != forced:
        raise IllegalCandidateError(
            f"With topk 1 SGLang forces draft tokens to steps + 1 = {forced}; "
            f"{asked} would be changed silently.",
            remedy=f"Leave draft tokens out, give {forced}, or give {max(asked - 1, 1)} steps"
            " instead.",
        )
    if asked is None and current.num_draft_tokens != forced:
        notes.append(f"topk 1: draft tokens = steps + 1 = {forced}.")
    return forced


def _tree(current: Settings, candidate: Candidate, topk: int) -> int:
    steps = candidate.num_steps
    most = tree_capacity(steps, topk)
    tokens = candidate.num_draft_tokens
    origin = "asked for"
    if tokens is None:
        tokens = current.num_draft_tokens
        origin = "in the launch config"
    if tokens is None:
        raise IllegalCandidateError(
            f"With topk {topk} the number of draft tokens has to be given.",
            remedy=f"Give draft tokens from 2 to {most} (steps {steps}, topk {topk}).",
        )
    if tokens > most:
        raise IllegalCandidateError(
            f"{tokens} draft tokens ({origin}) do not fit: with steps {steps} and topk {topk} "
            f"the tree holds 1 + topk + (steps - 1) x topk x topk = {most}, and SGLang would "
            "start and then die on the first request.",
            remedy=f"Give draft tokens from 2 to {most}, or raise steps or topk.",
        )
    if tokens < 2:
        raise IllegalCandidateError(
            "1 draft token holds only the root: nothing would be speculated.",
            remedy=f"Give draft tokens from 2 to {most}.",
        )
    return tokens


def _block(algorithm: str, current: Settings, candidate: Candidate) -> Resolution:
    tokens = candidate.num_draft_tokens
    if tokens is None or candidate.num_steps != 1:
        raise IllegalCandidateError(
            f"Steps are not the depth here: {BLOCK_ALGORITHMS[algorithm]}.",
            remedy="Set the depth with --draft-tokens and leave --steps at 1.",
        )
    if candidate.eagle_topk not in (None, 1) and algorithm not in ("NGRAM", "LOOKAHEAD"):
        raise IllegalCandidateError(
            f"topk {candidate.eagle_topk} would be overridden: {BLOCK_ALGORITHMS[algorithm]}.",
            remedy="Leave topk out.",
        )
    if tokens < 2:
        raise IllegalCandidateError(
            f"{algorithm} needs at least 2 draft tokens; 1 holds only the root.",
            remedy="Give 2 or more draft tokens.",
        )
    settings = Settings(
        algorithm=current.algorithm,
        num_steps=current.num_steps,
        eagle_topk=current.eagle_topk,
        num_draft_tokens=tokens,
        draft_model=current.draft_model,
        enabled=True,
    )
    return Resolution(
        candidate,
        settings,
        (
            (
                f"{algorithm}: the depth is the number of draft tokens; a block size in the launch "
                "config has to agree with it."
            ),
        ),
    )
