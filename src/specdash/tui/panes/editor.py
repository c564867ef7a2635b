"""Pane 3: the next candidate, with the engine's rule applied as it is typed."""

from __future__ import annotations

from textual.content import Content

from specdash.core.settings import Settings
from specdash.tui.editor import Field
from specdash.tui.frame import Frame
from specdash.tui.paint import (
    BAD,
    DIM,
    FAINT,
    GOOD,
    NEXT,
    NOW,
    STRONG,
    TEXT,
    WARN,
    fit,
    line,
    outside,
    right,
    wrap,
)
from specdash.tui.panes.base import Pane


class EditorPane(Pane):
    """``now`` against ``next``, the refusal or the verdict, the note and the queue."""

    NUMBER = 3
    NAME = "Candidate"

    def slice(self, frame: Frame) -> tuple[object, ...]:
        view = frame.view
        return (
            frame.editor,
            frame.check,
            view.now,
            view.config,
            view.starting,
            view.queue,
            view.cycle is not None and view.cycle.running,
            self.has_focus,
        )

    def title(self, frame: Frame) -> Content:
        if frame.check.resolution is not None and frame.base is None:
            return line((next_words(frame), DIM))
        return line((next_words(frame), NEXT if frame.check.resolution else BAD))

    def subtitle(self, frame: Frame) -> Content:
        waiting = len(frame.view.queue)
        return line((f"{waiting} queued", NEXT)) if waiting else Content("")

    def draw(self, frame: Frame, width: int, height: int) -> list[Content]:
        return editor_lines(frame, width, height, focused=self.has_focus)


def next_words(frame: Frame) -> str:
    """``next 4/1/5`` as the engine's rule leaves it, once a config was read for the rest of it."""
    resolution = frame.check.resolution
    if resolution is not None and frame.base is None:
        return "not read yet"
    return "next is refused" if resolution is None else f"next {resolution.settings.short()}"


def editor_lines(frame: Frame, width: int, height: int, *, focused: bool) -> list[Content]:
    """The editor in ``height`` lines; the fields and the verdict come first."""
    now = "now" if frame.view.starting is None else "starts"
    head = [fit(line((f"{'':<9}{now:>6}{'next':>10}", FAINT)), width)]
    fields = [_field_line(frame, field, width, focused) for field in frame.editor.fields]
    tail: list[Content] = []
    room = height - len(head) - len(fields)
    verdict = _verdict(frame, width, max(1, min(4, room)))
    tail.extend(verdict)
    room -= len(verdict)
    if frame.editor.note and room > 0:
        tail.append(fit(line(("note ", DIM), (outside(frame.editor.note), TEXT)), width))
        room -= 1
    queue = _queue(frame, width)
    if queue and room > 0:
        tail.extend(queue[:room])
        room -= len(queue)
    if room > 1:
        tail.append(Content(""))
        hint = "↑↓ field  ←→ change  0-9 type" if focused else "+ and - change the depth anywhere"
        tail.append(fit(line((hint, FAINT)), width))
    return [*head, *fields, *tail]


def _field_line(frame: Frame, field: Field, width: int, focused: bool) -> Content:
    editor = frame.editor
    chosen = focused and editor.field == field
    resolved = None if frame.check.resolution is None else frame.check.resolution.settings
    now = _value(frame.base, field)
    typed = {"steps": editor.steps, "topk": editor.topk, "draft": editor.draft}[field]
    if frame.base is None:
        # What is not typed comes from a config that was not read yet.
        value = typed if field != "steps" or editor.touched else None
    else:
        value = typed if typed is not None else _value(resolved, field)
    shown = "–" if value is None else str(value)
    if field == "steps" and value == 0:
        shown = "off"
    word = frame.words.knob if field == "steps" else {"topk": "topk", "draft": "draft"}[field]
    changed = value is not None and value != now
    style = f"bold {NEXT}" if changed else STRONG
    if frame.check.resolution is None:
        style = f"bold {BAD}"
    cell = f"◂ {shown:>3} ▸" if chosen else f"  {shown:>3}  "
    rule = ""
    if field == "draft" and typed is None and value is not None:
        steps = None if resolved is None else resolved.num_steps
        rule = f"= {word_of(frame)} + 1" if steps is not None and value == steps + 1 else "by rule"
    elif field == "topk" and typed is None and value is not None:
        rule = "kept"
    parts: list[str | tuple[str, str]] = [
        (f"{'▸ ' if chosen else '  '}", NEXT),
        (f"{outside(word)[:7]:<7}", STRONG if chosen else TEXT),
        (
            right("–" if now is None else "off" if field == "steps" and now == 0 else str(now), 6),
            NOW,
        ),
        "   ",
        (cell, f"{style} on $sd-selected" if chosen else style),
        (f"  {rule}", DIM),
    ]
    return fit(line(*parts), width)


def word_of(frame: Frame) -> str:
    """The engine's own word for the depth."""
    return outside(frame.words.knob)


def _value(settings: Settings | None, field: Field) -> int | None:
    if settings is None:
        return None
    if field == "steps":
        return 0 if settings.enabled is False else settings.num_steps
    return settings.eagle_topk if field == "topk" else settings.num_draft_tokens


def _verdict(frame: Frame, width: int, limit: int) -> list[Content]:
    resolution = frame.check.resolution
    if resolution is None:
        reason = frame.check.refusal or "refused by the engine's rules"
        rows = wrap(f"✗ {reason}", width, limit)
        return [line((text, BAD)) for text in rows]
    if frame.base is None:
        words = "What runs and the launch config are not read yet."
        return [line((text, DIM)) for text in wrap(words, width, limit)]
    settings = resolution.settings
    if settings.short() == "off":
        words = "✓ the baseline: speculation off"
    else:
        algorithm = f" {outside(settings.algorithm)}" if settings.algorithm else ""
        words = f"✓ the engine takes {settings.short()}{algorithm}"
    out = [fit(line((words[:2], GOOD), (words[2:], TEXT)), width)]
    base = frame.base
    if base is not None and base.short() == settings.short():
        what = "runs" if frame.view.starting is None else "starts"
        out = [fit(line(("= ", DIM), (f"the same as what {what} now", DIM)), width)]
    for note in resolution.notes:
        if len(out) >= limit:
            break
        out.extend(line((text, WARN)) for text in wrap(outside(note), width, limit - len(out)))
    return out


def _queue(frame: Frame, width: int) -> list[Content]:
    out: list[Content] = []
    for index, candidate in enumerate(frame.view.queue, 1):
        depth = "off" if candidate.num_steps == 0 else f"{word_of(frame)} {candidate.num_steps}"
        topk = "" if candidate.eagle_topk is None else f" topk {candidate.eagle_topk}"
        note = f"  {outside(candidate.note)}" if candidate.note else ""
        label = "then " if index == 1 else "     "
        out.append(fit(line((label, DIM), (f"{depth}{topk}", NEXT), (note, DIM)), width))
    return out
