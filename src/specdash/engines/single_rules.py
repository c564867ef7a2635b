"""The rules of engines with one number: vLLM's speculative tokens, llama.cpp's draft length."""

from __future__ import annotations

from dataclasses import replace

from specdash.core.settings import OFF, Candidate, Resolution, Settings
from specdash.engines.domain import check_domain
from specdash.engines.protocol import IllegalCandidateError


def refuse_tree(candidate: Candidate, engine: str) -> None:
    """Raise IllegalCandidateError where topk or draft tokens are given."""
    for name, value in (
        ("topk", candidate.eagle_topk),
        ("draft tokens", candidate.num_draft_tokens),
    ):
        if value is not None:
            raise IllegalCandidateError(
                f"{engine} drafts a chain and has one number, its length; it knows no {name}.",
                remedy=f"Leave {name} out and give the length with --steps.",
            )


def resolve_single(
    current: Settings, candidate: Candidate, *, engine: str, word: str, notes: tuple[str, ...] = ()
) -> Resolution:
    """One number, 0 for off. Raises UsageError and IllegalCandidateError."""
    check_domain(candidate, word)
    refuse_tree(candidate, engine)
    if candidate.num_steps == 0:
        return Resolution(candidate, OFF, ("0: speculation is turned off (the baseline).",))
    settings = replace(
        current,
        num_steps=candidate.num_steps,
        eagle_topk=None,
        num_draft_tokens=None,
        enabled=True,
    )
    return Resolution(candidate, settings, notes)
