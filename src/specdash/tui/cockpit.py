"""The cockpit's base: one reader of the session's events, one state, painted at most ten times
a second. What the keys do is in ``app``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.screen import Screen
from textual.theme import Theme
from textual.worker import Worker

from specdash.core.clock import Clock
from specdash.core.errors import InternalError, SpecdashError
from specdash.core.events import CycleEnded, Event, GpusSampled, Notice, StatusChanged
from specdash.core.settings import Settings
from specdash.core.text import Safe, make_safe
from specdash.session.port import CandidateCheck, CockpitSession
from specdash.tui import table
from specdash.tui.actions import ACTIONS, Scope, Situation
from specdash.tui.chrome import Footer, Header, NoticeBar, TooSmall
from specdash.tui.drawer import LogDrawer
from specdash.tui.editor import Editor
from specdash.tui.frame import Frame
from specdash.tui.layout import Layout, arrange
from specdash.tui.logbuf import LogBuffer, entries_of
from specdash.tui.mistakes import mistake_of
from specdash.tui.paint import outside, role_colors
from specdash.tui.panes.base import Drawn, Pane, unchanged
from specdash.tui.panes.bench import BenchPane
from specdash.tui.panes.editor import EditorPane
from specdash.tui.panes.gpus import GpusPane
from specdash.tui.panes.overview import Overview, Tabs
from specdash.tui.panes.results import ResultsPane
from specdash.tui.panes.service import ServicePane
from specdash.tui.state import View, reduce
from specdash.tui.themes import DEFAULT_DARK

PAINT_EVERY_S = 0.1
HINT_S = 6.0
INFO_S = 10.0
PANE_IDS = ("service", "gpus", "editor", "bench", "results")


def _bindings() -> list[BindingType]:
    return [
        Binding(
            action.bound,
            f"act('{action.id}')",
            action.label,
            show=False,
            priority=action.id in ("next_pane", "previous_pane"),
        )
        for action in ACTIONS
        if action.scope == "global"
    ]


class CockpitBase(App[None]):
    """State, painting and layout."""

    CSS_PATH = "cockpit.tcss"
    BINDINGS: ClassVar[list[BindingType]] = _bindings()
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+underscore"
    TITLE = "specdash"

    def __init__(
        self,
        session: CockpitSession,
        *,
        themes: Sequence[Theme],
        theme: str | None,
        clock: Clock,
    ) -> None:
        self._own_themes = tuple(themes)
        super().__init__()
        self.session = session
        self.clock = clock
        rig = session.rig
        self.view = View(
            rig_name=outside(rig.name),
            simulated=session.simulated,
            read_only=rig.safety.read_only,
            protected=rig.safety.protected,
            queue=session.queue,
            results=session.results,
        )
        self.editor = Editor(has_topk=session.words.has_topk)
        self.reference: table.Key | None = None
        self.cursor = 0
        self.column = 0
        self.said_yes = False
        self.zoomed = False
        self.hint: Safe | None = None
        self.hint_until = 0.0
        self.log_buffer = LogBuffer()
        self.arrangement = Layout()
        self.open_pane = "service"
        self.before_editor = "service"
        self._check = CandidateCheck(None)
        self._results = table.Results()
        self._results_of: tuple[object, ...] = ()
        self._painted = float("-inf")
        self._paint_due = False
        self._log_dirty = False
        self._mistakes: set[str] = set()
        for item in self._own_themes:
            self.register_theme(item)
        names = {item.name for item in self._own_themes}
        wanted = theme if theme in self.available_themes else None
        self.theme = wanted or (DEFAULT_DARK if DEFAULT_DARK in names else "textual-dark")
        self.recheck()

    # Themes ---------------------------------------------------------------------------------

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(role_colors(self.current_theme))

    def get_css_variables(self) -> dict[str, str]:
        variables = super().get_css_variables()
        own: Mapping[str, str] = self.current_theme.variables
        # A theme that overrides a base role also moves the roles made from it.
        return {**variables, **{k: v for k, v in own.items() if k.startswith("sd-")}}

    # Widgets --------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Header(id="header")
        yield Overview(id="overview")
        yield Tabs(id="tabs")
        with Vertical(id="panes"):
            with Horizontal(id="top"):
                yield ServicePane(id="service")
                yield GpusPane(id="gpus")
            with Horizontal(id="middle"):
                yield EditorPane(id="editor")
                yield BenchPane(id="bench")
            yield ResultsPane(id="results")
        yield NoticeBar(id="notice")
        yield Footer(id="footer")
        yield LogDrawer(self.log_buffer, id="log")
        yield TooSmall(self.view.simulated, id="too-small")

    def on_mount(self) -> None:
        self.query_one("#log").display = False
        self.query_one("#notice").display = False
        self.pane("service").focus()
        self.rearrange()
        self.set_interval(1.0, self._tick)
        self.work(self._read_events(), "session")
        self.work(self._open_session(), "open")

    def pane(self, name: str) -> Pane:
        return self.screen_stack[0].query_one(f"#{name}", Pane)

    @property
    def log_drawer(self) -> LogDrawer:
        return self.screen_stack[0].query_one("#log", LogDrawer)

    # Events ---------------------------------------------------------------------------------

    async def _open_session(self) -> None:
        await self.session.open()
        # Earlier sessions' results are known only now.
        new = [r for r in self.view.results if r not in self.session.results]
        self.view = replace(self.view, results=(*self.session.results, *new))
        self.paint_soon()

    async def _read_events(self) -> None:
        async for event in self.session.events():
            self.take(event)

    def take(self, event: Event) -> None:
        """The one handler of every event. One that cannot be handled is said, and left out."""
        with self.guarded():
            self._take(event)

    def _take(self, event: Event) -> None:
        before = self.view
        self.view = reduce(before, event)
        for entry in entries_of(event):
            self.log_buffer.add(entry)
            self._log_dirty = True
        if isinstance(event, StatusChanged):
            base: Settings | None = event.now or event.config
            if base is not None:
                self.editor = self.editor.follow(base)
            if before.config is not event.config or before.now is not event.now:
                self.recheck()
        elif isinstance(event, CycleEnded):
            self.cycle_ended(event)
        if self.view is not before or self._log_dirty or isinstance(event, GpusSampled):
            self.paint_soon()

    def cycle_ended(self, event: CycleEnded) -> None:
        """For the subclass: a cycle is over."""

    def fail(self, error: SpecdashError) -> None:
        """A typed error becomes a message that stays."""
        self.take(
            Notice(
                t=self.clock.wall(),
                level="error",
                message=make_safe(error.message),
                remedy=make_safe(error.remedy),
                evidence=tuple(make_safe(item) for item in error.evidence),
            )
        )

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Errors inside become messages: what is typed as one, and mistakes of our own too."""
        try:
            yield
        except SpecdashError as error:
            self.fail(error)
        except Exception as bug:  # noqa: BLE001  no traceback may reach the operator's screen
            self.mistake(bug)

    def mistake(self, bug: BaseException) -> None:
        """Say that specdash itself failed, once for each way it does."""
        said = mistake_of(bug)
        if said.evidence[-1] not in self._mistakes:
            self._mistakes.add(said.evidence[-1])
            self.fail(said)

    def inform(self, text: str) -> None:
        self.take(Notice(t=self.clock.wall(), level="info", message=make_safe(text)))

    def work(self, work: Awaitable[None], group: str) -> Worker[None]:
        """Run beside the keys; a failure becomes a message. New work ends the old of its group."""

        async def run() -> None:
            with self.guarded():
                await work

        return self.run_worker(run(), group=group, exclusive=True, exit_on_error=False)

    def _fatal_error(self) -> None:
        # Textual would print a traceback with the values of all variables, secrets included.
        # The caller of the app tells what happened, once the screen is the operator's again.
        self._close_messages_no_wait()

    @property
    def broken(self) -> InternalError | None:
        """Why the app ended by itself, if it did."""
        return None if self._exception is None else mistake_of(self._exception)

    def recheck(self) -> None:
        """Apply the engine's rules to what is typed."""
        self._check = self.session.check(self.editor.candidate())

    # Painting -------------------------------------------------------------------------------

    def paint_soon(self) -> None:
        """Paint within :data:`PAINT_EVERY_S`, however many events come meanwhile."""
        if self._paint_due or not self.is_running:
            return
        self._paint_due = True
        wait = self._painted + PAINT_EVERY_S - self.clock.now()
        if wait <= 0:
            self.call_later(self.paint_now)
        else:
            self.set_timer(min(wait, PAINT_EVERY_S), self.paint_now)

    def paint_now(self) -> None:
        """Show the state of this moment."""
        self._paint_due = False
        with self.guarded():
            self._paint()

    def _paint(self) -> None:
        if not self.is_running or not self.screen_stack:
            return
        screen = self.screen_stack[0]
        if not screen.query("#header"):
            return
        self._painted = self.clock.now()
        frame = self.frame()
        for widget in screen.query(Drawn):
            if widget.display:
                widget.show(frame)
        drawer = self.log_drawer
        if drawer.display:
            drawer.show()
        self._log_dirty = False
        hint = self.hint if self.clock.now() < self.hint_until else None
        if screen.query_one(NoticeBar).show(self.view.notice, hint):
            self.rearrange()
        screen.query_one(Footer).show(self.situation(frame), self.scope())

    def frame(self) -> Frame:
        """Everything the panes draw, now."""
        cycle = self.view.cycle
        cells = () if cycle is None or not cycle.running else cycle.cells
        settings = cycle.resolution.settings if cycle is not None and cells else None
        of = (self.view.results, cells, settings, self.reference)
        if not unchanged(self._results_of, of):
            self._results_of = of
            self._results = table.build(
                self.view.results,
                running=settings,
                running_cells=cells,
                reference=self.reference,
            )
        rows, columns = len(self._results.rows), len(self._results.concurrencies)
        self.cursor = max(0, min(self.cursor, rows - 1))
        self.column = max(0, min(self.column, columns - 1))
        return Frame(
            view=self.view,
            editor=self.editor,
            check=self._check,
            words=self.session.words,
            results=self._results,
            cursor=self.cursor,
            column=self.column,
            now=self.clock.wall(),
        )

    def situation(self, frame: Frame | None = None) -> Situation:
        """What decides which keys are valid."""
        return Situation(
            frame=frame or self.frame(),
            busy=self.session.busy,
            said_yes=self.said_yes,
            log_open=bool(self.screen_stack) and self.log_drawer.display,
            can_save=self.can_save,
            zoomed=self.zoomed,
            single=self.arrangement.single,
        )

    @property
    def can_save(self) -> bool:
        return False

    def scope(self) -> Scope:
        """Which pane's own keys are valid."""
        if self.log_drawer.display and self.log_drawer.has_focus_within:
            return "log"
        names: dict[str, Scope] = {"editor": "editor", "results": "results"}
        return names.get(self.open_pane, "global")

    def say(self, text: str) -> None:
        """A sentence that goes by itself."""
        self.hint = make_safe(text)
        self.hint_until = self.clock.now() + HINT_S
        self.paint_now()

    def focus_pane(self, name: str) -> None:
        """Give a pane the focus; where one pane is open, open it."""
        self.open_pane = name
        self.rearrange()
        self.pane(name).focus()

    def _tick(self) -> None:
        notice = self.view.notice
        if notice is not None and notice.level == "info" and self.clock.wall() - notice.t > INFO_S:
            self.dismiss_notice()
        self.paint_now()

    def dismiss_notice(self) -> None:
        self.hint = None
        self.view = replace(self.view, notice=None)

    # Layout ---------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        # This runs before the app takes over the new size itself.
        self.rearrange(event.size)

    def rearrange(self, size: Size | None = None) -> None:
        """Place the panes for the size the terminal has now."""
        if not self.screen_stack or not self.screen_stack[0].query("#panes"):
            return
        screen = self.screen_stack[0]
        width, height = size or self.size
        place = arrange(width, height)
        self.arrangement = place
        notice = screen.query_one(NoticeBar)
        screen.query_one("#too-small").display = place.too_small
        for name in ("header", "panes", "footer"):
            screen.query_one(f"#{name}").display = not place.too_small
        for name in ("overview", "tabs"):
            screen.query_one(f"#{name}").display = place.single
        notice.display = not place.too_small and not notice.empty
        if place.too_small:
            return
        alone = place.single or self.zoomed
        for name in PANE_IDS:
            self.pane(name).display = not alone or name == self.open_pane
        rows = {"top": PANE_IDS[:2], "middle": PANE_IDS[2:4]}
        for name, members in rows.items():
            row = screen.query_one(f"#{name}")
            row.display = not alone or self.open_pane in members
            row.styles.height = "1fr" if alone else place.top if name == "top" else place.middle
            left, right = (self.pane(member) for member in members)
            left.styles.width = "1fr" if alone else place.left
            right.styles.width = "1fr"
            left.styles.height = right.styles.height = "100%"
        self.pane("results").styles.height = "1fr"
        drawer = self.log_drawer
        drawer.styles.height = place.drawer
        # The message line and the footer stay in sight under the log.
        drawer.styles.margin = (0, 0, 1 + notice.wanted(width), 0)
        screen.query_one(Tabs).active = PANE_IDS.index(self.open_pane) + 1
        self.call_after_refresh(self.paint_now)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: every action of the table, then the themes."""
        for action in ACTIONS:
            if action.scope == "global" and action.id not in ("palette", "back"):
                yield SystemCommand(
                    f"{action.label} ({action.key})",
                    action.help,
                    self._runner(f"act('{action.id}')"),
                )
        for name in self.theme_names():
            yield SystemCommand(f"theme {name}", "Use this theme.", self._chooser(name))

    def theme_names(self) -> list[str]:
        """The themes that can be chosen: ours, the user's, and the terminal's own colours."""
        return [*(item.name for item in self._own_themes), "ansi-dark", "ansi-light"]

    def _runner(self, action: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            await self.run_action(action)

        return run

    def _chooser(self, name: str) -> Callable[[], None]:
        def choose() -> None:
            self.theme = name

        return choose
