"""The plan: the exact commands and the diff, before anything is touched."""

from __future__ import annotations

from typing import Literal

from rich.cells import cell_len
from textual.content import Content

from specdash.core.errors import SpecdashError
from specdash.core.plan import Plan, PlannedStage
from specdash.core.settings import Settings
from specdash.tui import fmt
from specdash.tui.dialogs.base import Choice, Dialog, heading
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
    command,
    line,
    lines,
    outside,
    pad,
    visible,
    wrap,
)
from specdash.tui.panes.service import describe

PlanAnswer = Literal["no", "run", "queue", "cut"]


class PlanDialog(Dialog[PlanAnswer]):
    """Shows what would run. ``y`` goes, once there is a plan without refusals.

    While a cycle runs, ``y`` queues the candidate behind it and ``x`` cuts what is measured.
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
            Choice("x", "cut and run next", "cut", danger=True),
        )

    def _busy_words(self) -> str:
        if not self._busy or self._preview:
            return ""
        what = "cuts the cell that runs and what" if self._cell_runs else "skips what"
        return (
            "A cycle runs. y queues this behind it; "
            f"x {what} is left of its measurement, and runs this next."
        )

    def text(self, width: int) -> Content:
        if self._error is not None:
            return error_text(self._error, width)
        plan = self._plan
        if plan is None:
            waited = f"  {fmt.clock(self._waited)}" if self._waited >= 1 else ""
            return line(("Reading the rig. Nothing is touched.", DIM), (waited, DIM))
        return plan_text(plan, width, self._busy_words())


def plan_text(plan: Plan, width: int, busy: str = "") -> Content:
    """The whole plan as lines of at most ``width`` cells."""
    out: list[Content] = []
    after: Settings | None = None if plan.resolution is None else plan.resolution.settings
    out.append(line(("rig   ", DIM), (outside(plan.rig), STRONG)))
    out.append(line(("now   ", DIM), (describe(plan.before), NOW)))
    out.append(line(("next  ", DIM), (describe(after), NEXT) if after else ("refused", BAD)))
    if plan.resolution is not None:
        for note in plan.resolution.notes:
            out.extend(_hanging("      ", outside(note), width, DIM))
    for refusal in plan.refusals:
        out.append(Content(""))
        out.extend(_hanging("✗ ", outside(refusal.message), width, BAD))
        if refusal.remedy:
            out.extend(_hanging("  ", outside(refusal.remedy), width, TEXT))
    for warning in plan.warnings:
        out.extend(_hanging("! ", outside(warning), width, WARN))
    if busy and not plan.refusals:
        out.append(Content(""))
        out.extend(_hanging("▸ ", busy, width, WARN))
    if plan.stages:
        out += [Content(""), heading("Runs, in this order")]
        room = max(cell_len(outside(stage.host)) for stage in plan.stages)
        for stage in plan.stages:
            out.extend(_stage(stage, width, room))
    writes = [write for stage in plan.stages for write in stage.writes]
    for write in writes:
        out += [Content(""), line(("Changes ", f"bold {DIM}"), (outside(write.path), STRONG))]
        out.extend(diff_lines(write.diff))
    if plan.stages and not writes:
        out += [Content(""), line(("The launch config stays as it is.", DIM))]
    return lines(out)


def _stage(stage: PlannedStage, width: int, host_width: int) -> list[Content]:
    head = f"  {stage.name:<10}"
    host = pad(outside(stage.host), host_width)
    if not stage.commands:
        what = "write the file below" if stage.writes else "no command of its own"
        return [line((head, STRONG), (f"{host}  ", DIM), (what, DIM))]
    out: list[Content] = []
    for index, argv in enumerate(stage.commands):
        text = command(argv)
        lead = [(head if not index else " " * len(head), STRONG), (f"{host}  ", DIM)]
        start = line(*lead)
        rows = wrap(text, max(20, width - start.cell_length), 12)
        out.append(line(start, (rows[0] if rows else "", TEXT)))
        out.extend(line(" " * start.cell_length, (row, TEXT)) for row in rows[1:])
    return out


def diff_lines(diff: str) -> list[Content]:
    """A unified diff with its signs kept and coloured."""
    out: list[Content] = []
    # Lines as a diff has them: a carriage return inside one is shown, not obeyed.
    for row in map(visible, diff.split("\n")):
        if row.startswith(("+++", "---")):
            continue
        if row.startswith("@@"):
            style = FAINT
        elif row.startswith("+"):
            style = GOOD
        elif row.startswith("-"):
            style = BAD
        else:
            style = DIM
        out.append(line(("  " + row, style)))
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
