"""Pane 1: the service, and the stages of the cycle."""

from __future__ import annotations

import re

from textual.content import Content

from specdash.core.events import LoadProgress
from specdash.core.records import StageState
from specdash.core.service import ServiceState, ServiceStatus
from specdash.core.settings import Settings
from specdash.tui import fmt
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
    bar,
    fit,
    line,
    outside,
    spread,
    wrap,
)
from specdash.tui.panes.base import Pane
from specdash.tui.state import Cycle, Stage, View

STATE_MARKS: dict[ServiceState, tuple[str, str]] = {
    "active": ("●", GOOD),
    "reloading": ("◐", WARN),
    "activating": ("◐", WARN),
    "deactivating": ("◐", WARN),
    "inactive": ("○", DIM),
    "maintenance": ("◌", WARN),
    "failed": ("✗", BAD),
    "not-found": ("✗", BAD),
    "unknown": ("?", DIM),
}
STAGE_MARKS: dict[StageState, tuple[str, str]] = {
    "pending": ("·", FAINT),
    "running": ("▶", NEXT),
    "done": ("✓", GOOD),
    "failed": ("✗", BAD),
    "skipped": ("–", FAINT),
    "cancelled": ("■", WARN),
}


class ServicePane(Pane):
    """State, since, pid, steps now; then a line a stage."""

    NUMBER = 1
    NAME = "Service"

    def slice(self, frame: Frame) -> tuple[object, ...]:
        view = frame.view
        ticking = int(frame.now) if view.running else 0
        cycle = view.cycle
        # The figures of a running cell change ten times a second and are not drawn here.
        stages = () if cycle is None else (cycle.stages, cycle.load, cycle.record, cycle.back)
        of = None if cycle is None else cycle.resolution
        return (view.service, view.now, view.config, view.links, of, *stages, ticking)

    def subtitle(self, frame: Frame) -> Content:
        cycle = frame.view.cycle
        if cycle is None:
            return Content("")
        if cycle.record is None:
            return line((f"{cycle_words(cycle)} {fmt.clock(frame.now - cycle.started)}", NEXT))
        total = sum(stage.seconds or 0.0 for stage in cycle.stages)
        style = {"measured": GOOD, "cancelled": WARN}.get(cycle.record.outcome, BAD)
        words = f"{cycle_words(cycle)} {cycle.record.outcome} in {fmt.took(total)}"
        return line((words, style))

    def draw(self, frame: Frame, width: int, height: int) -> list[Content]:
        view = frame.view
        head = service_lines(view, width)
        room = height - len(head)
        return [*head, *stage_lines(view, frame.now, width, room)]


def cycle_words(cycle: Cycle) -> str:
    """What the cycle is for: ``to 4/1/5``, ``measure 3/1/4``."""
    verb = "measure" if cycle.measure_only else "to"
    return f"{verb} {cycle.resolution.settings.short()}"


def service_lines(view: View, width: int) -> list[Content]:
    """What the supervisor says, and the depth that runs."""
    status = view.service
    if status is None:
        return _no_status(view, width)
    mark, style = STATE_MARKS.get(status.state, ("?", DIM))
    sub = f" ({outside(status.sub_state)})" if status.sub_state else ""
    since = f"since {outside(status.since)}" if status.since else ""
    if len(since) + len(status.state) + len(sub) + 3 > width:
        sub = ""
    room = width - len(status.state) - 3
    if len(since) > room:
        # The state is what must be read; of the time its end tells most, without the zone.
        since = _short_since(outside(status.since), room)
    pid = "no process" if not status.main_pid else f"pid {status.main_pid}"
    out = [
        spread(
            line((f"{mark} ", style), (status.state, f"bold {style}"), (sub, DIM)),
            line((since, DIM)),
            width,
        ),
        spread(
            line((outside(status.unit), DIM)),
            line((pid, TEXT if status.main_pid else DIM)),
            width,
        ),
        now_line(view, width),
    ]
    out.extend(_remarks(status, width))
    return out


_TIME = re.compile(r"\b\d{1,2}:\d{2}(:\d{2})?\b")


def _short_since(since: str, room: int) -> str:
    """``since 16:00:45`` of ``Sun 2026-11-29 16:00:45 UTC``; "" where not even that fits."""
    found = _TIME.search(since)
    words = f"since {found.group()}" if found else ""
    return words if len(words) <= room else ""


def _remarks(status: ServiceStatus, width: int) -> list[Content]:
    parts: list[str] = []
    if status.restarts:
        parts.append(fmt.count(status.restarts, "restart"))
    if status.result and status.result != "success":
        exit_status = "" if status.exit_status is None else f", exit {status.exit_status}"
        parts.append(f"last result {outside(status.result)}{exit_status}")
    if status.needs_reload:
        parts.append("supervisor has not read the changed config yet")
    return [fit(line((" · ".join(parts), WARN)), width)] if parts else []


def now_line(view: View, width: int) -> Content:
    """``now steps 3 topk 1 draft 4``; where the config differs, it says so."""
    if view.starting is not None:
        return fit(line(("starting with ", DIM), (view.starting.short(), NEXT)), width)
    now = describe(view.now)
    if view.now is None:
        now = "no answer" if view.status_seen else "not read yet"
    parts: list[str | tuple[str, str]] = [("now ", DIM), (now, NOW if view.now else DIM)]
    config = view.config
    if config is not None and not same_settings(config, view.now):
        parts.append((f"  config {config.short()}", WARN))
    return fit(line(*parts), width)


def same_settings(one: Settings, other: Settings | None) -> bool:
    """Whether nothing both sides say differs."""
    if other is None:
        return False
    if (one.short() == "off") != (other.short() == "off"):
        return False
    pairs = (
        (one.num_steps, other.num_steps),
        (one.eagle_topk, other.eagle_topk),
        (one.num_draft_tokens, other.num_draft_tokens),
    )
    return all(a is None or b is None or a == b for a, b in pairs)


def describe(settings: Settings | None) -> str:
    """``steps 3 · topk 1 · draft 4``; ``off``; ``unknown``."""
    if settings is None:
        return "unknown"
    if settings.short() == "off":
        return "speculation off"
    known = (
        ("steps", settings.num_steps),
        ("topk", settings.eagle_topk),
        ("draft", settings.num_draft_tokens),
    )
    text = " · ".join(f"{word} {value}" for word, value in known if value is not None)
    return text or "on, depth unknown"


def _no_status(view: View, width: int) -> list[Content]:
    out: list[Content] = []
    for link in view.links:
        if link.state in ("lost", "refused"):
            out.append(fit(line(("✗ ", BAD), (f"{outside(link.host)} {link.state}", BAD)), width))
            out.extend(line((text, DIM)) for text in wrap(link.message, width, 3))
    if not out:
        names = ", ".join(outside(link.host) for link in view.links)
        out.append(fit(line(("… ", DIM), (f"connecting {names}".rstrip(), DIM)), width))
    return out


def stage_lines(view: View, now: float, width: int, room: int) -> list[Content]:
    """The cycle's stages in ``room`` lines; the running one gets a second line if there is one."""
    cycle = view.cycle
    if cycle is None:
        return _invitation(view, width, room)
    head = _end_lines(cycle, width)
    rows: list[Content] = []
    room = max(1, room - len(head))
    spare = room - len(cycle.stages) - cycle.winding_down
    for stage in cycle.stages:
        extra = stage_extra(stage, cycle)
        below = bool(extra) and spare > 0 and stage.state in ("running", "failed")
        rows.append(stage_line(stage, cycle, now, width, bare=below))
        if below:
            for text in wrap(extra, width - 2, min(spare, 3)):
                style = BAD if stage.state == "failed" else TEXT
                rows.append(fit(line("  ", (text, style)), width))
                spare -= 1
    if cycle.winding_down:
        mark, style = STAGE_MARKS["running"]
        words = back_words(cycle)
        rows.append(fit(line((f"{mark} ", style), ("way back  ", STRONG), (words, TEXT)), width))
    if len(rows) > room:
        rows = _window(rows, cycle, room)
    return [*head, *rows]


def _end_lines(cycle: Cycle, width: int) -> list[Content]:
    """The state a cycle that did not end well left the rig in: above all stages."""
    record = cycle.record
    if record is None or record.outcome == "measured":
        return []
    rows = wrap(f"▸ now: {outside(record.end_state)}", width, 2)
    return [line((text, f"bold {WARN}")) for text in rows]


def back_words(cycle: Cycle) -> str:
    """What the way back does now."""
    return cycle.back or "to a named state"


def stage_line(
    stage: Stage, cycle: Cycle, now: float, width: int, *, bare: bool = False
) -> Content:
    """Mark, name, elapsed against deadline; unless ``bare`` also what it waits for."""
    mark, style = STAGE_MARKS[stage.state]
    name_style = {"running": STRONG, "pending": FAINT, "skipped": FAINT}.get(stage.state, TEXT)
    left = [(f"{mark} ", style), (f"{stage.name:<10}", name_style)]
    if stage.state == "running":
        elapsed = now - (now if stage.started is None else stage.started)
        left.append((fmt.clock(elapsed), STRONG))
        if stage.deadline_s is not None:
            left.append((f" / {fmt.clock(stage.deadline_s)}", DIM))
        load = cycle.load if stage.name == "load" else None
        head = line(*left)
        room = width - head.cell_length - 2
        if load is not None and load.fraction is not None and room >= 12:
            meter = min(12, room - 5)
            return fit(
                line(head, "  ", bar(load.fraction, meter, NEXT), (f" {load.fraction:.0%}", NEXT)),
                width,
            )
        return fit(head if bare else line(head, ("  " + stage_extra(stage, cycle), TEXT)), width)
    if stage.state == "done":
        left.append((f"{fmt.took(stage.seconds):>7}", DIM))
        left.append((f"  {stage.detail}" if stage.detail else "", FAINT))
    elif stage.state != "pending":
        words = stage.state if stage.seconds is None else f"{stage.state} {fmt.took(stage.seconds)}"
        left.append((words, style))
        if stage.state == "skipped" and stage.detail:
            left.append((f"  {stage.detail}", FAINT))
    return fit(line(*left), width)


def stage_extra(stage: Stage, cycle: Cycle) -> str:
    """What a stage waits for, or what its load is at."""
    load = cycle.load
    if stage.name == "load" and load is not None and stage.state == "running":
        return load_words(load)
    return stage.detail


def load_words(load: LoadProgress) -> str:
    words = load.phase.replace("-", " ")
    share = "" if load.fraction is None else f" {load.fraction:.0%}"
    return f"{words}{share}" + (f": {load.detail}" if load.detail else "")


def _window(rows: list[Content], cycle: Cycle, room: int) -> list[Content]:
    """Where not all stages fit, keep the running one in sight."""
    place = next((i for i, s in enumerate(cycle.stages) if s.state in ("running", "failed")), None)
    if place is None or cycle.winding_down:
        place = len(rows) - 1
    first = max(0, min(len(rows) - room, place - room + 2))
    return rows[first : first + room]


def _invitation(view: View, width: int, room: int) -> list[Content]:
    if room < 3:
        return []
    words = (
        "Read-only rig: m measures what runs now."
        if view.read_only
        else "No cycle yet. Set the next depth with + and -, then r shows the plan."
    )
    return [Content(""), *(line((text, DIM)) for text in wrap(words, width, room - 1))]
