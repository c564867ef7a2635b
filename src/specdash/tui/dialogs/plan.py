"""The plan: the exact commands and the diff, before anything is touched."""

from __future__ import annotations

from typing import Literal

from rich.cells import cell_len
from textual import events
from textual.content import Content

from specdash.core.errors import SpecdashError
from specdash.core.plan import Plan, PlannedStage, command_text
from specdash.core.settings import Settings
from specdash.tui import fmt
from specdash.tui.dialogs.base import Choice, Dialog, heading
from specdash.tui.dialogs.difftext import diff_lines
from specdash.tui.paint import (
    BAD,
    DIM,
    NEXT,
    NOW,
    STRONG,
    TEXT,
    WARN,
    command,
    line,
    lines,
    outside,
    pad,
    visible,
    wrap,
)
from specdash.tui.panes.service import describe, same_settings

_WHOLE = 400
"""Lines a command shown whole may take."""

PlanAnswer = Literal["no", "run", "queue", "cut"]


class PlanDialog(Dialog[PlanAnswer]):
    """Shows what would run. ``y`` goes, once there is a plan without refusals.

    While a cycle runs, ``y`` queues the candidate behind it and ``a`` cuts what is measured.
    """

    def __init__(
        self, title: str, *, busy: bool, preview: bool, simulated: bool, cell_runs: bool = False
    ) -> None:
        super().__init__(title, "no", leave="Close" if preview else "Cancel", simulated=simulated)
        self._busy = busy
        self._preview = preview
        self._cell_runs = cell_runs
        self._plan: Plan | None = None
        self._error: SpecdashError | None = None
        self._waited = 0.0
        self._whole = False

    @property
    def ready(self) -> bool:
        """The plan is there and nothing refuses it."""
        return self._plan is not None and not self._plan.refusals

    def waiting(self, seconds: float) -> None:
        """Still reading the rig, for this long."""
        self._waited = seconds
        if self._plan is None and self._error is None:
            self.paint()

    def set_plan(self, plan: Plan) -> None:
        """The rig was read."""
        self._plan = plan
        if not self._busy and changes_nothing(plan) and plan.resolution is not None:
            self.retitle(f"Restart unchanged: {describe(plan.resolution.settings)}")
        self.hints = (("f", "in full"),) if plan.stages else ()
        if self.ready and not self._preview:
            self.choices = self._ways()
        self.paint()

    def set_error(self, error: SpecdashError) -> None:
        """The rig could not be read."""
        self._error = error
        self.paint()

    def _ways(self) -> tuple[Choice[PlanAnswer], ...]:
        if not self._busy:
            return (Choice("y", "run it", "run"),)
        return (
            Choice("y", "queue it", "queue"),
            Choice("a", "cut and run next", "cut", danger=True),
        )

    def _busy_words(self) -> str:
        if not self._busy or self._preview:
            return ""
        what = "cuts the cell that runs and what" if self._cell_runs else "skips what"
        return (
            "A cycle runs. y queues this behind it; "
            f"a {what} is left of its measurement, and runs this next."
        )

    def text(self, width: int) -> Content:
        if self._error is not None:
            return error_text(self._error, width)
        plan = self._plan
        if plan is None:
            waited = f"  {fmt.clock(self._waited)}" if self._waited >= 1 else ""
            words = "Making the plan: reading the rig. Nothing is touched."
            return line((words, DIM), (waited, DIM))
        return plan_text(plan, width, self._first_words(plan), whole=self._whole)

    def _first_words(self, plan: Plan) -> str:
        if self._busy or not changes_nothing(plan):
            return self._busy_words()
        does = "would be" if self._preview else "is"
        return f"Nothing changes in the launch config; the service {does} restarted and measured."

    def below_frame(self) -> Content:
        plan = self._plan
        if plan is None or not plan.warnings:
            return Content("")
        more = len(plan.warnings) - 1
        words = f" ! {outside(plan.warnings[0])}" + (f"  +{more}" if more else "") + " "
        return line((words, f"bold {WARN}"))

    def pressed(self, event: events.Key) -> None:
        if self._plan is not None or self._error is not None:
            super().pressed(event)
        elif event.key in ("escape", "q"):
            # What is typed ahead of the plan must not answer it.
            event.stop()
            self.dismiss(self.nothing)

    def choose(self, key: str) -> None:
        if key == "f" and self.hints:
            self._whole = not self._whole
            self.hints = (("f", "in short" if self._whole else "in full"),)
            self.paint()
            return
        super().choose(key)


def changes_nothing(plan: Plan) -> bool:
    """Whether the candidate is what runs already, and the launch config stays as it is."""
    after = None if plan.resolution is None else plan.resolution.settings
    writes = any(write.diff.strip() for stage in plan.stages for write in stage.writes)
    restarts = bool(plan.stages) and after is not None
    return restarts and not writes and same_settings(plan.before, after)


def plan_text(plan: Plan, width: int, first: str = "", *, whole: bool = False) -> Content:
    """The plan as lines of at most ``width`` cells: what changes, what runs, what to mind.

    ``whole`` shows every command and every line of the diff to its last character.
    """
    out: list[Content] = []
    if first and not plan.refusals:
        out.extend(_hanging("▸ ", first, width, WARN))
    out += _head(plan, width)
    for refusal in plan.refusals:
        out.extend(_hanging("✗ ", outside(refusal.message), width, f"bold {BAD}"))
        if refusal.remedy:
            out.extend(_hanging("  ", outside(refusal.remedy), width, TEXT))
    writes = [write for stage in plan.stages for write in stage.writes]
    for write in writes:
        out.append(_path(write.path, width))
        out.extend(diff_lines(write.diff, width, whole=whole))
    if plan.stages and not writes and not first:
        out.append(line(("The launch config stays as it is.", DIM)))
    if plan.stages:
        out += [Content(""), heading("Runs, in this order")]
        room = max(cell_len(outside(stage.host)) for stage in plan.stages)
        for stage in plan.stages:
            out.extend(_stage(stage, width, room, whole))
    if plan.warnings:
        out += [Content(""), line((fmt.count(len(plan.warnings), "warning"), f"bold {WARN}"))]
        for warning in plan.warnings:
            out.extend(_hanging("! ", outside(warning), width, f"bold {WARN}"))
    return lines(out)


def _head(plan: Plan, width: int) -> list[Content]:
    after: Settings | None = None if plan.resolution is None else plan.resolution.settings
    now = line(("now ", DIM), (describe(plan.before), NOW))
    to = line(("next ", DIM), (describe(after), f"bold {NEXT}") if after else ("refused", BAD))
    gap = "   "
    together = now.cell_length + len(gap) + to.cell_length <= width
    out = [line(now, gap, to)] if together else [now, to]
    if plan.resolution is not None:
        for note in plan.resolution.notes:
            out.extend(_hanging("    ", outside(note), width, DIM))
    return out


def _path(path: str, width: int) -> Content:
    """The file's name is what tells: a long path loses its front."""
    shown = str(visible(path))
    room = max(8, width - len("changes "))
    cut = ""
    while cell_len(cut + shown) > room:
        shown, cut = shown[1:], "…"
    return line(("changes ", DIM), (cut + shown, STRONG))


def _stage(stage: PlannedStage, width: int, host_width: int, whole: bool) -> list[Content]:
    head = f"  {stage.name:<10}"
    host = pad(outside(stage.host), host_width)
    if not stage.commands:
        what = "writes the file above" if stage.writes else "no command of its own"
        return [line((head, STRONG), (f"{host}  ", DIM), (what, DIM))]
    out: list[Content] = []
    for index, argv in enumerate(stage.commands):
        text = command(argv) if whole else visible(command_text(argv))
        lead = [(head if not index else " " * len(head), STRONG), (f"{host}  ", DIM)]
        start = line(*lead)
        rows = wrap(text, max(20, width - start.cell_length), _WHOLE if whole else 2)
        out.append(line(start, (rows[0] if rows else "", TEXT)))
        out.extend(line(" " * start.cell_length, (row, TEXT)) for row in rows[1:])
    return out


def error_text(error: SpecdashError, width: int) -> Content:
    """What failed, what to do, and the lines that prove it."""
    out = _hanging("✗ ", outside(error.message), width, BAD)
    if error.remedy:
        out += [Content(""), *_hanging("  ", outside(error.remedy), width, TEXT)]
    if error.evidence:
        out += [Content(""), heading("Evidence")]
        out += [line(("  " + outside(item), DIM)) for item in error.evidence]
    return lines(out)


def _hanging(lead: str, text: str, width: int, style: str) -> list[Content]:
    rows = wrap(text, max(10, width - len(lead)), 40)
    return [
        line((lead if not index else pad("", len(lead)), style), (row, style))
        for index, row in enumerate(rows)
    ]
