"""What can be said about speculation: what is set, and what is to be tried."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Settings:
    """Speculation settings as a launch config or an engine states them.

    None means "it says nothing". For vLLM and llama.cpp ``num_steps`` is
    ``num_speculative_tokens`` / ``draft-n-max`` and topk and draft tokens are None.
    """

    algorithm: str | None = None
    num_steps: int | None = None
    eagle_topk: int | None = None
    num_draft_tokens: int | None = None
    draft_model: str | None = None
    enabled: bool | None = None

    def to_json(self) -> dict[str, object]:
        """The SETTINGS object of the contract."""
        return {
            "algorithm": self.algorithm,
            "num_steps": self.num_steps,
            "eagle_topk": self.eagle_topk,
            "num_draft_tokens": self.num_draft_tokens,
            "draft_model": self.draft_model,
            "enabled": self.enabled,
        }

    def short(self) -> str:
        """``3/1/4`` as operators write it; ``off``; ``?`` where unknown."""
        if self.enabled is False or self.num_steps == 0:
            return "off"
        parts = [self.num_steps, self.eagle_topk, self.num_draft_tokens]
        known = ["?" if part is None else str(part) for part in parts]
        while len(known) > 1 and known[-1] == "?":
            known.pop()
        return "/".join(known)


OFF = Settings(num_steps=0, enabled=False)
"""Speculation off: the baseline, k = 0."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One set of speculation settings to try.

    A field that is None is derived by the engine's rules or kept as the launch config has it.
    ``num_steps`` 0 asks for the baseline.
    """

    num_steps: int
    eagle_topk: int | None = None
    num_draft_tokens: int | None = None
    note: str = ""

    def with_note(self, note: str) -> Candidate:
        """The same candidate with another note."""
        return replace(self, note=note)


@dataclass(frozen=True, slots=True)
class Resolution:
    """A candidate after the engine's rules: what will be set, and what the rules did to it."""

    candidate: Candidate
    settings: Settings
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the engine can hold at once; None where it does not say."""

    max_running_requests: int | None = None
    kv_tokens: int | None = None

    def to_json(self) -> dict[str, object]:
        return {"max_running_requests": self.max_running_requests, "kv_tokens": self.kv_tokens}
