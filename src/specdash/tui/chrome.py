"""What surrounds the panes: header, message line, footer, and the sentence for a small terminal."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.widget import Widget

from specdash.core.events import Notice
from specdash.core.text import Safe
from specdash.tui import fmt
from specdash.tui.actions import ACTIONS, Action, Scope, Situation
from specdash.tui.frame import Frame
from specdash.tui.layout import SMALLEST
from specdash.tui.paint import (
    ALERT,
    BAD,
    BADGE,
    DIM,
    FAINT,
    GOOD,
    KEY,
    NOW,
    STRONG,
    TEXT,
    WARN,
    Part,
    fit,
    line,
    lines,
    outside,
    wrap,
)
from specdash.tui.panes.base import Drawn
from specdash.tui.state import Link

_LINKS: dict[str, tuple[str, str]] = {
    "up": ("●", GOOD),
    "connecting": ("◌", WARN),
    "lost": ("✗", BAD),
    "refused": ("✗", BAD),
}


class Header(Drawn):
    """Rig, badges, model, engine and the state of every link, on one line."""

    def slice(self, frame: Frame) -> tuple[object, ...]:
        view = frame.view
        return (view.links, view.model, view.rig_name, int(frame.now) if _lost(view.links) else 0)

    def draw(self, frame: Frame, width: int, height: int) -> list[Content]:
        view = frame.view
        left: list[Part] = [(" specdash ", DIM), (f"{view.rig_name} ", STRONG)]
        if view.simulated:
            left += [(" SIMULATED ", BADGE), " "]
        if view.read_only:
            left += [(" READ-ONLY ", ALERT), " "]
        if view.protected:
            left += [(" PROTECTED ", ALERT), " "]
        links = _links(view.links, frame.now)
        room = width - line(*left).cell_length - links.cell_length - 1
        engine = outside(frame.words.engine)
        model = f"{outside(view.model)} · {engine}" if view.model else engine
        if room >= 8:
            middle = fit(line((" " + model, TEXT)), room)
            return [fit(line(*left, middle, links, " "), width)]
        return [fit(line(*left, " ", links), width)]


def _lost(links: tuple[Link, ...]) -> bool:
    return any(link.state in ("lost", "refused") for link in links)


def _links(links: tuple[Link, ...], now: float) -> Content:
    parts: list[Part] = []
    for link in links:
        mark, style = _LINKS[link.state]
        word: str = link.state
        if link.state in ("lost", "refused") and link.since:
            word += f" {fmt.ago(now - link.since)}"
        parts += [
            ("  " if parts else "", DIM),
            (f"{mark} ", style),
            (f"{outside(link.host)} ", DIM),
            (word, style if link.state != "up" else DIM),
        ]
    return line(*parts)


class NoticeBar(Widget):
    """The last message: what, what to do about it, and the keys that lead on."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._notice: Notice | None = None
        self._hint: Safe | None = None

    @property
    def empty(self) -> bool:
        return self._notice is None and self._hint is None

    def show(self, notice: Notice | None, hint: Safe | None) -> bool:
        """Take what to say; returns whether the bar came or went."""
        before = self.empty
        if (notice, hint) == (self._notice, self._hint):
            return False
        self._notice, self._hint = notice, hint
        self.display = not self.empty
        self.refresh(layout=True)
        return before != self.empty

    def wanted(self, width: int) -> int:
        """How many lines it takes at ``width``."""
        return len(self.draw(width)) if width > 0 else 0

    def draw(self, width: int) -> list[Content]:
        """One to three lines."""
        if self._hint is not None:
            rows = wrap(self._hint, width - 4, 2)
            return [
                fit(line((" ▸ " if not index else "   ", NOW), (text, TEXT)), width)
                for index, text in enumerate(rows)
            ]
        notice = self._notice
        if notice is None:
            return []
        mark, style = {"info": ("▸", NOW), "warning": ("!", WARN), "error": ("✗", BAD)}[
            notice.level
        ]
        keys = "  v evidence · Esc dismiss " if notice.evidence else "  Esc dismiss "
        first = wrap(notice.message, width - 3 - len(keys), 1)
        head = line((f" {mark} ", f"bold {style}"), (first[0] if first else "", f"bold {style}"))
        out = [fit(line(fit(head, width - len(keys)), (keys, DIM)), width)]
        if notice.remedy:
            rest = wrap(notice.remedy, width - 4, 2)
            out += [fit(line(("   ", DIM), (text, TEXT)), width) for text in rest]
        return out

    def render(self) -> Content:
        return lines(self.draw(self.content_size.width))


class Footer(Widget):
    """The keys that are valid now. A key that is not stays, faint, and says why when pressed."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._situation: Situation | None = None
        self._scope: Scope = "global"
        self._shown: tuple[tuple[str, str, str, bool], ...] = ()
        self._places: list[tuple[int, int, str]] = []

    def show(self, situation: Situation, scope: Scope) -> None:
        """Take a new situation; repaint if a key came or went."""
        items = tuple(
            (action.id, action.shown, action.label, not action.why_not(situation))
            for action in footer_actions(scope)
        )
        if items != self._shown:
            self._shown = items
            self.refresh()

    def render(self) -> Content:
        width = self.content_size.width
        self._places = []
        parts: list[Part] = [" "]
        used = 1
        for action_id, key, label, enabled in self._shown:
            size = len(key) + 1 + len(label) + 2
            if used + size > width + 1:
                break
            parts += [
                (key, KEY if enabled else FAINT),
                (f" {label}  ", TEXT if enabled else FAINT),
            ]
            self._places.append((used, used + size - 1, action_id))
            used += size
        return fit(line(*parts), width)

    async def on_click(self, event: events.Click) -> None:
        """A click on a key is that key."""
        for start, end, action_id in self._places:
            if start <= event.x < end:
                await self.app.run_action(f"act('{action_id}')")
                return


def footer_actions(scope: Scope) -> list[Action]:
    """The footer's actions in their order: those of the focused pane, then the global ones.

    The first nine are the same everywhere, so that the hand finds them without the eye.
    """
    ordered = sorted((a for a in ACTIONS if a.footer), key=lambda a: a.footer)
    own = [a for a in ordered if a.scope == scope and scope != "global"]
    rest = [a for a in ordered if a.scope == "global"]
    if scope == "log":
        return [*own, *rest]
    return [*rest, *own]


class TooSmall(Widget):
    """One sentence where the terminal cannot hold the cockpit."""

    def __init__(self, simulated: bool, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._simulated = simulated

    def render(self) -> Content:
        size = self.app.size
        words = (
            f"specdash needs {SMALLEST[0]} × {SMALLEST[1]} characters; "
            f"this terminal has {size.width} × {size.height}. Make it larger, or q quits."
        )
        rows = [line((text, TEXT)) for text in wrap(words, max(8, size.width - 2), 6)]
        if self._simulated:
            rows.append(line((" SIMULATED ", BADGE)))
        return lines(rows)
