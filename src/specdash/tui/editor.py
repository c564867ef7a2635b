"""The next candidate as it is edited: pure values, keys in, candidate out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from specdash.core.settings import Candidate, Settings

Field = Literal["steps", "topk", "draft"]

LIMIT = 999


@dataclass(frozen=True, slots=True)
class Editor:
    """What is typed. ``topk`` and ``draft`` None: as the config has it, or by the engine's rule.

    ``fresh`` is True where the next digit starts a new number instead of extending it.
    """

    steps: int = 1
    topk: int | None = None
    draft: int | None = None
    note: str = ""
    field: Field = "steps"
    has_topk: bool = True
    fresh: bool = True
    touched: bool = False

    @property
    def fields(self) -> tuple[Field, ...]:
        return ("steps", "topk", "draft") if self.has_topk else ("steps",)

    def candidate(self) -> Candidate:
        """The candidate as it stands now."""
        if self.steps == 0:
            return Candidate(0, note=self.note)
        return Candidate(
            self.steps,
            self.topk if self.has_topk else None,
            self.draft if self.has_topk else None,
            self.note,
        )

    def follow(self, settings: Settings) -> Editor:
        """Start from what runs, unless the operator already typed something."""
        if self.touched:
            return self
        if settings.enabled is False:
            return replace(self, steps=0, topk=None, draft=None)
        if settings.num_steps is None:
            return self
        return replace(self, steps=settings.num_steps, topk=None, draft=None)

    def move(self, delta: int) -> Editor:
        """Choose another field; stops at the ends."""
        place = self.fields.index(self.field) if self.field in self.fields else 0
        place = max(0, min(len(self.fields) - 1, place + delta))
        return replace(self, field=self.fields[place], fresh=True)

    def nudge(self, delta: int, base: Settings | None = None) -> Editor:
        """Change the chosen field by ``delta``.

        A field that is derived starts from the value on screen, which ``base`` holds.
        """
        if self.field == "steps":
            return self._set(max(0, min(LIMIT, self.steps + delta)))
        shown = None
        if base is not None:
            shown = base.eagle_topk if self.field == "topk" else base.num_draft_tokens
        typed = self.topk if self.field == "topk" else self.draft
        value = typed if typed is not None else shown
        return self._set(max(1, min(LIMIT, (1 if value is None else value + delta))))

    def nudge_steps(self, delta: int) -> Editor:
        """Change the depth whatever field is chosen."""
        steps = max(0, min(LIMIT, self.steps + delta))
        return replace(self, steps=steps, fresh=True, touched=True)

    def digit(self, digit: int) -> Editor:
        """Type one digit into the chosen field."""
        typed = {"steps": self.steps, "topk": self.topk, "draft": self.draft}[self.field]
        value = digit if self.fresh or typed is None else typed * 10 + digit
        if value > LIMIT:
            value = digit
        if self.field != "steps" and value == 0:
            return self
        return replace(self._set(value), fresh=False)

    def backspace(self) -> Editor:
        """Take the last digit away; an emptied topk or draft tokens is derived again."""
        if self.field == "steps":
            return replace(self._set(self.steps // 10), fresh=False)
        typed = self.topk if self.field == "topk" else self.draft
        left = 0 if typed is None else typed // 10
        return replace(self._put(left or None), fresh=False)

    def with_note(self, note: str) -> Editor:
        return replace(self, note=note.strip(), touched=True)

    def _set(self, value: int) -> Editor:
        return self._put(value)

    def _put(self, value: int | None) -> Editor:
        if self.field == "steps":
            return replace(self, steps=value or 0, fresh=True, touched=True)
        if self.field == "topk":
            return replace(self, topk=value, fresh=True, touched=True)
        return replace(self, draft=value, fresh=True, touched=True)
