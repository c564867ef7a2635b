"""Every action once: its keys, its words, and when it cannot be done and why.

Bindings, footer, help, palette and the sentence a disabled key answers with all come from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from specdash.tui.frame import Frame

Scope = Literal["global", "editor", "results", "log"]
Group = Literal["Run", "Candidate", "Results", "Look", "Log", "Leave"]


@dataclass(frozen=True, slots=True)
class Situation:
    """What decides whether an action can be done now."""

    frame: Frame
    busy: bool = False
    said_yes: bool = False
    log_open: bool = False
    can_save: bool = False
    zoomed: bool = False
    single: bool = False


WhyNot = Callable[[Situation], str]


def _always(_: Situation) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Action:
    """``key`` is what the operator reads, ``keys`` what Textual binds (the same by default).

    ``footer`` orders the footer; 0 keeps the action out of it. ``both`` is the key shown where
    one entry stands for this action and its opposite, which then has no ``help`` of its own.
    ``why_not`` returns "" where the action can be done.
    """

    id: str
    key: str
    label: str
    help: str
    group: Group
    why_not: WhyNot = _always
    keys: str = ""
    scope: Scope = "global"
    footer: int = 0
    both: str = ""

    @property
    def bound(self) -> str:
        """The key names Textual knows, comma separated."""
        return self.keys or self.key

    @property
    def shown(self) -> str:
        """The key as footer and help show it."""
        return self.both or self.key


def _legal(now: Situation) -> str:
    if now.frame.check.resolution is None:
        return f"The engine would refuse this: {now.frame.check.refusal}"
    return ""


def _run(now: Situation) -> str:
    if now.frame.view.read_only:
        return "This rig is read-only: specdash changes nothing on it. m measures what runs."
    return _legal(now)


def _run_now(now: Situation) -> str:
    reason = _run(now)
    if reason:
        return reason
    if not now.said_yes:
        return "R runs without asking only after the first yes of a session: press r."
    return ""


def _measure(now: Situation) -> str:
    if now.busy:
        return "A cycle runs: c cancels it, s skips its cell."
    status = now.frame.view.service
    if status is not None and not status.running:
        return f"Nothing runs to be measured: the service is {status.state}. r starts it."
    return ""


def _busy(now: Situation) -> str:
    return "" if now.busy else "Nothing runs that could be cancelled."


def _cell(now: Situation) -> str:
    cycle = now.frame.view.cycle
    running = (
        now.busy and cycle is not None and cycle.cell is not None and cycle.cell.measured is None
    )
    return "" if running else "No cell is being measured."


def _row(now: Situation) -> str:
    row = now.frame.row
    if row is None:
        return "There is no result yet to compare with."
    if not any(entry.cell.output_tok_s is not None for entry in row.entries.values()):
        return "This row has no measured cell to compare with."
    return ""


def _results(now: Situation) -> str:
    return "" if now.frame.view.results else "There is no result yet to export."


def _queue(now: Situation) -> str:
    return "" if now.frame.view.queue else "The queue is empty."


def _topk(now: Situation) -> str:
    return "" if now.frame.editor.has_topk else "This engine has only a depth."


def _evidence(now: Situation) -> str:
    notice = now.frame.view.notice
    if notice is None and now.frame.view.failure is None:
        return "There is no message to show."
    return ""


def _log(now: Situation) -> str:
    return "" if now.log_open else "Open the log first: l."


def _save(now: Situation) -> str:
    if not now.can_save:
        return "This session cannot write files."
    return _log(now)


def _zoom(now: Situation) -> str:
    return "The terminal is small: one pane is open already." if now.single else ""


ACTIONS: tuple[Action, ...] = (
    Action(
        "run",
        "r",
        "run",
        "Show commands and diff; y runs them.",
        "Run",
        _run,
        footer=1,
    ),
    Action(
        "run_now",
        "R",
        "run now",
        "Run without asking, after a first yes.",
        "Run",
        _run_now,
        footer=10,
    ),
    Action(
        "measure",
        "m",
        "measure",
        "Measure what runs, with no restart.",
        "Run",
        _measure,
        footer=2,
    ),
    Action(
        "cancel",
        "c",
        "cancel",
        "Cancel the cycle; asks when the service is down.",
        "Run",
        _busy,
        footer=3,
    ),
    Action(
        "skip",
        "s",
        "skip cell",
        "End this cell, go on with the next.",
        "Run",
        _cell,
        footer=4,
    ),
    Action(
        "deeper",
        "+",
        "depth",
        "Deeper or shallower, from any pane.",
        "Candidate",
        keys="plus,equals_sign",
        footer=5,
        both="+/-",
    ),
    Action("shallower", "-", "depth", "", "Candidate", keys="minus,underscore"),
    Action(
        "diff",
        "d",
        "diff",
        "What next would change. Runs nothing.",
        "Candidate",
        _legal,
        footer=11,
    ),
    Action(
        "note",
        "n",
        "note",
        "Why next is tried; kept with results.",
        "Candidate",
        footer=12,
    ),
    Action(
        "unqueue",
        "x",
        "unqueue",
        "Take the last one out of the queue.",
        "Candidate",
        _queue,
        footer=15,
    ),
    Action(
        "field_up",
        "↑",
        "field",
        "In Candidate: choose a field.",
        "Candidate",
        keys="up,k",
        scope="editor",
        both="↑ ↓",
    ),
    Action("field_down", "↓", "field", "", "Candidate", keys="down,j", scope="editor"),
    Action(
        "less",
        "←",
        "change",
        "In Candidate: change it, or type 0-9.",
        "Candidate",
        keys="left",
        scope="editor",
        both="← →",
    ),
    Action("more", "→", "change", "", "Candidate", keys="right", scope="editor"),
    Action(
        "erase",
        "Bksp",
        "erase",
        "Empty: the rule decides.",
        "Candidate",
        keys="backspace,delete",
        scope="editor",
    ),
    Action(
        "row_up",
        "↑",
        "row",
        "In Results: choose a row.",
        "Results",
        keys="up,k",
        scope="results",
        both="↑ ↓",
    ),
    Action("row_down", "↓", "row", "", "Results", keys="down,j", scope="results"),
    Action(
        "column_left",
        "←",
        "requests",
        "In Results: choose the curve.",
        "Results",
        keys="left",
        scope="results",
        both="← →",
    ),
    Action("column_right", "→", "requests", "", "Results", keys="right", scope="results"),
    Action(
        "reference",
        "b",
        "reference",
        "Show changes against the chosen row.",
        "Results",
        _row,
        footer=13,
    ),
    Action(
        "export",
        "e",
        "export",
        "Write Markdown, CSV or JSON.",
        "Results",
        _results,
        footer=14,
    ),
    Action("log", "l", "log", "Service, specdash, every command.", "Log", footer=7),
    Action(
        "filter",
        "/",
        "filter",
        "In the log: only lines with a text.",
        "Log",
        _log,
        keys="slash",
        scope="log",
        footer=20,
    ),
    Action(
        "follow",
        "f",
        "follow",
        "In the log: stay at the newest line.",
        "Log",
        _log,
        keys="f,end,G",
        scope="log",
        footer=21,
    ),
    Action(
        "save_log",
        "w",
        "save log",
        "In the log: write it to a file.",
        "Log",
        _save,
        scope="log",
        footer=22,
    ),
    Action(
        "evidence",
        "v",
        "evidence",
        "The last message and its proof.",
        "Look",
        _evidence,
        footer=16,
    ),
    Action(
        "pane_1",
        "1",
        "pane",
        "Go to a pane; again: fill the screen.",
        "Look",
        both="1-5",
    ),
    *(Action(f"pane_{number}", str(number), "pane", "", "Look") for number in (2, 3, 4, 5)),
    Action("next_pane", "Tab", "pane", "Next pane; with Shift the last one.", "Look", keys="tab"),
    Action("previous_pane", "⇧Tab", "pane", "", "Look", keys="shift+tab"),
    Action(
        "zoom",
        "z",
        "zoom",
        "One pane on the screen, or all.",
        "Look",
        _zoom,
        footer=17,
    ),
    Action("theme", "t", "theme", "Next theme.", "Look", footer=18),
    Action(
        "back",
        "Esc",
        "back",
        "Close log, message, zoom, or editor.",
        "Look",
        keys="escape",
    ),
    Action("palette", ":", "find", "Find an action or theme by name.", "Look", keys="colon,ctrl+p"),
    Action("help", "?", "help", "This table.", "Look", keys="question_mark,f1", footer=8),
    Action(
        "quit",
        "q",
        "quit",
        "Leave; asks while a cycle runs.",
        "Leave",
        keys="q,ctrl+q,ctrl+c",
        footer=9,
    ),
)

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}
