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


@dataclass(frozen=True, slots=True)
class Action:
    """``key`` is what the footer shows, ``keys`` what Textual binds. ``footer`` orders the footer;
    0 keeps the action out of it, ``short`` is its key and label there where one entry stands for two.
    ``why_not`` returns "" where the action can be done."""

    id: str
    keys: str
    key: str
    label: str
    help: str
    group: Group
    why_not: WhyNot
    scope: Scope = "global"
    footer: int = 0
    short: tuple[str, str] | None = None


def _always(_: Situation) -> str:
    return ""


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
        "r",
        "run",
        "Show the plan of the next candidate: exact commands and diff. y runs it.",
        "Run",
        _run,
        footer=1,
    ),
    Action(
        "run_now",
        "R",
        "R",
        "run now",
        "Run the next candidate without asking, after the first yes of a session.",
        "Run",
        _run_now,
        footer=10,
    ),
    Action(
        "measure",
        "m",
        "m",
        "measure",
        "Measure what runs now, with no restart. Its cells are marked not-fresh.",
        "Run",
        _measure,
        footer=2,
    ),
    Action(
        "cancel",
        "c",
        "c",
        "cancel",
        "Cancel the running cycle; asks first where the service is down meanwhile.",
        "Run",
        _busy,
        footer=3,
    ),
    Action(
        "skip",
        "s",
        "s",
        "skip cell",
        "End the running cell; the cycle goes on with the next concurrency.",
        "Run",
        _cell,
        footer=4,
    ),
    Action(
        "deeper",
        "plus,equals_sign",
        "+",
        "deeper",
        "One step deeper, from any pane.",
        "Candidate",
        _always,
        footer=5,
        short=("+/-", "depth"),
    ),
    Action(
        "shallower",
        "minus,underscore",
        "-",
        "shallower",
        "One step shallower, from any pane; 0 is the baseline, speculation off.",
        "Candidate",
        _always,
    ),
    Action(
        "diff",
        "d",
        "d",
        "diff",
        "Show what the next candidate would change in the launch config. Runs nothing.",
        "Candidate",
        _legal,
        footer=11,
    ),
    Action(
        "note",
        "n",
        "n",
        "note",
        "Say why the next candidate is tried; kept with its results.",
        "Candidate",
        _always,
        footer=12,
    ),
    Action(
        "unqueue",
        "x",
        "x",
        "unqueue",
        "Take the last candidate out of the queue.",
        "Candidate",
        _queue,
        footer=15,
    ),
    Action(
        "field_up",
        "up,k",
        "↑",
        "field",
        "Choose the field above.",
        "Candidate",
        _always,
        "editor",
    ),
    Action(
        "field_down",
        "down,j",
        "↓",
        "field",
        "Choose the field below.",
        "Candidate",
        _always,
        "editor",
    ),
    Action(
        "less",
        "left",
        "←",
        "less",
        "Make the chosen field smaller.",
        "Candidate",
        _always,
        "editor",
    ),
    Action(
        "more",
        "right",
        "→",
        "more",
        "Make the chosen field larger.",
        "Candidate",
        _always,
        "editor",
    ),
    Action(
        "erase",
        "backspace,delete",
        "Bksp",
        "erase",
        "Take the last digit away; an empty topk or draft follows the engine's rule.",
        "Candidate",
        _always,
        "editor",
    ),
    Action(
        "row_up",
        "up,k",
        "↑",
        "row",
        "Choose the row above.",
        "Results",
        _always,
        "results",
    ),
    Action(
        "row_down",
        "down,j",
        "↓",
        "row",
        "Choose the row below.",
        "Results",
        _always,
        "results",
    ),
    Action(
        "column_left",
        "left",
        "←",
        "requests",
        "Choose the concurrency to the left, for the curve.",
        "Results",
        _always,
        "results",
    ),
    Action(
        "column_right",
        "right",
        "→",
        "requests",
        "Choose the concurrency to the right, for the curve.",
        "Results",
        _always,
        "results",
    ),
    Action(
        "reference",
        "b",
        "b",
        "reference",
        "Make the chosen row the reference that changes are shown against.",
        "Results",
        _row,
        footer=13,
    ),
    Action(
        "export",
        "e",
        "e",
        "export",
        "Write the results to a file: Markdown, CSV or JSON.",
        "Results",
        _results,
        footer=14,
    ),
    Action(
        "log",
        "l",
        "l",
        "log",
        "Open or close the log: service, specdash, and every command that ran.",
        "Log",
        _always,
        footer=7,
    ),
    Action(
        "filter",
        "slash",
        "/",
        "filter",
        "Show only log lines that contain a text.",
        "Log",
        _log,
        "log",
        footer=20,
    ),
    Action(
        "follow",
        "f,end,G",
        "f",
        "follow",
        "Go to the newest line and stay there.",
        "Log",
        _log,
        "log",
        footer=21,
    ),
    Action(
        "save_log",
        "w",
        "w",
        "save log",
        "Write what the log shows to a file.",
        "Log",
        _save,
        "log",
        footer=22,
    ),
    Action(
        "evidence",
        "v",
        "v",
        "evidence",
        "Show the last message or failure with the lines that prove it.",
        "Look",
        _evidence,
        footer=16,
    ),
    Action("pane_1", "1", "1", "service", "Go to Service and stages.", "Look", _always),
    Action("pane_2", "2", "2", "GPUs", "Go to GPUs.", "Look", _always),
    Action("pane_3", "3", "3", "candidate", "Go to Candidate.", "Look", _always),
    Action("pane_4", "4", "4", "benchmark", "Go to Benchmark.", "Look", _always),
    Action("pane_5", "5", "5", "results", "Go to Results.", "Look", _always),
    Action("next_pane", "tab", "Tab", "next pane", "Go to the next pane.", "Look", _always),
    Action(
        "previous_pane", "shift+tab", "⇧Tab", "last pane", "Go to the pane before.", "Look", _always
    ),
    Action(
        "zoom",
        "z",
        "z",
        "zoom",
        "Let the pane fill the screen, or give the others back. Its number does the same.",
        "Look",
        _zoom,
        footer=17,
    ),
    Action("theme", "t", "t", "theme", "Next theme.", "Look", _always, footer=18),
    Action(
        "back",
        "escape",
        "Esc",
        "back",
        "Close the log, give the other panes back, dismiss the message, or leave the editor.",
        "Look",
        _always,
    ),
    Action("palette", "colon,ctrl+p", ":", "all", "Find any action by name.", "Look", _always),
    Action(
        "help",
        "question_mark,f1",
        "?",
        "help",
        "Every key, and what it does.",
        "Look",
        _always,
        footer=8,
    ),
    Action(
        "quit",
        "q,ctrl+q,ctrl+c",
        "q",
        "quit",
        "Leave; asks while a cycle runs, and leaves the rig in a named state.",
        "Leave",
        _always,
        footer=9,
    ),
)

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}
