"""The cockpit: what each key does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from textual import events, on
from textual.theme import Theme

from specdash.core.clock import Clock
from specdash.core.errors import SpecdashError
from specdash.core.events import Notice
from specdash.core.ports import Question, SecretQuestion
from specdash.core.settings import Settings
from specdash.core.text import Safe, make_safe
from specdash.session.port import CockpitSession
from specdash.tui.actions import ACTIONS, BY_ID
from specdash.tui.cockpit import PANE_IDS
from specdash.tui.decide import DialogDecide
from specdash.tui.deeds import RunDeeds
from specdash.tui.dialogs.base import Dialog, T
from specdash.tui.dialogs.help import HelpDialog
from specdash.tui.dialogs.question import QuestionDialog
from specdash.tui.dialogs.secret import SecretDialog
from specdash.tui.dialogs.simple import ConfirmDialog, ExportDialog, MessageDialog, NoteDialog
from specdash.tui.drawer import LogDrawer
from specdash.tui.editor import Editor
from specdash.tui.panes.base import Drawn, Pane
from specdash.tui.panes.results import row_name
from specdash.tui.state import now_words

SaveText = Callable[[str, str], Awaitable[Safe]]
"""Writes (suggested file name, text); returns where it went."""


class CockpitApp(RunDeeds):
    """One operator, one rig, one screen."""

    def __init__(
        self,
        session: CockpitSession,
        *,
        themes: Sequence[Theme],
        theme: str | None,
        clock: Clock,
        decide: DialogDecide | None = None,
        save_text: SaveText | None = None,
    ) -> None:
        super().__init__(
            session, themes=themes, theme=theme, clock=clock, decide=decide or DialogDecide()
        )
        self._save_text = save_text
        self.session_closed = False
        self.leaving = False
        self.parting = Safe("")

    @property
    def can_save(self) -> bool:
        return self._save_text is not None

    def on_mount(self) -> None:
        # Textual calls the handlers of every class in the line, the base's included.
        self.decide.attach(self)

    def on_unmount(self) -> None:
        self.decide.detach()

    # Dispatch -------------------------------------------------------------------------------

    async def action_act(self, action_id: str) -> None:
        """Do one action, or say why it cannot be done now."""
        action = BY_ID[action_id]
        if self.arrangement.too_small and action_id not in ("quit", "help"):
            return
        reason = action.why_not(self.situation())
        if reason:
            self.say(reason)
            return
        deed = getattr(self, f"do_{action_id}", None)
        with self.guarded():
            if deed is None and action_id.startswith("pane_"):
                self.go_to(PANE_IDS[int(action_id[-1]) - 1])
            elif deed is not None:
                deed()
        self.paint_now()

    async def on_key(self, event: events.Key) -> None:
        """The keys of the focused pane, and digits in the editor, before the global ones."""
        listens = isinstance(self.focused, Pane) or self.focused is self.log_drawer.body
        if len(self.screen_stack) > 1 or not listens:
            return
        scope = self.scope()
        digit = event.character or ""
        if scope == "editor" and digit.isascii() and digit.isdigit():
            event.stop()
            event.prevent_default()
            with self.guarded():
                self.type_digit(int(digit))
            return
        for action in ACTIONS:
            if action.scope == scope != "global" and event.key in action.bound.split(","):
                event.stop()
                event.prevent_default()
                await self.action_act(action.id)
                return

    # Candidate ------------------------------------------------------------------------------

    def edit(self, editor: Editor) -> None:
        """Take what was typed, and the engine's word on it."""
        self.editor = editor
        self.recheck()
        self.paint_now()

    def do_deeper(self) -> None:
        self.edit(self.editor.nudge_steps(1))

    def do_shallower(self) -> None:
        self.edit(self.editor.nudge_steps(-1))

    def do_field_up(self) -> None:
        self.edit(self.editor.move(-1))

    def do_field_down(self) -> None:
        self.edit(self.editor.move(1))

    def do_less(self) -> None:
        self.edit(self.editor.nudge(-1, self._resolved()))

    def do_more(self) -> None:
        self.edit(self.editor.nudge(1, self._resolved()))

    def do_erase(self) -> None:
        self.edit(self.editor.backspace())

    def type_digit(self, digit: int) -> None:
        """A digit typed into the editor's field."""
        self.edit(self.editor.digit(digit))

    def _resolved(self) -> Settings | None:
        resolution = self._check.resolution
        return None if resolution is None else resolution.settings

    def do_note(self) -> None:
        self.work(self._note(), "note")

    async def _note(self) -> None:
        note = await self.push_screen_wait(
            NoteDialog(self.editor.note, simulated=self.view.simulated)
        )
        if note is not None:
            self.edit(self.editor.with_note(note))

    # Results --------------------------------------------------------------------------------

    def do_row_up(self) -> None:
        self.cursor -= 1

    def do_row_down(self) -> None:
        self.cursor += 1

    def do_column_left(self) -> None:
        self.column -= 1

    def do_column_right(self) -> None:
        self.column += 1

    def do_reference(self) -> None:
        frame = self.frame()
        if frame.row is not None:
            self.reference = frame.row.key
            self.say(f"Changes are now shown against {row_name(frame.row, frame)}.")

    def do_export(self) -> None:
        self.work(self._export(), "export")

    async def _export(self) -> None:
        chosen = await self.push_screen_wait(ExportDialog(simulated=self.view.simulated))
        if not chosen:
            return
        try:
            where = await self.session.export(chosen)
        except SpecdashError as error:
            self.fail(error)
            return
        self.inform(f"results written to {where}")

    # Log ------------------------------------------------------------------------------------

    def do_log(self) -> None:
        drawer = self.log_drawer
        drawer.display = not drawer.display
        if drawer.display:
            self.log_buffer.follow()
            drawer.body.focus()
        else:
            self.pane(self.open_pane).focus()

    def do_filter(self) -> None:
        self.log_drawer.open_filter()

    def do_follow(self) -> None:
        self.log_buffer.follow()

    def do_save_log(self) -> None:
        self.work(self._save_log(), "save")

    async def _save_log(self) -> None:
        if self._save_text is None:
            return
        try:
            where = await self._save_text(f"{self.session.rig.name}.log", self.log_buffer.text())
        except SpecdashError as error:
            self.fail(error)
            return
        self.inform(f"log written to {where}")

    @on(LogDrawer.Moved)
    def _log_moved(self) -> None:
        self.log_drawer.show()

    @on(LogDrawer.FilterChanged)
    def _log_filter(self, event: LogDrawer.FilterChanged) -> None:
        self.log_buffer.set_filter(event.text)
        if event.done:
            self.log_drawer.close_filter()
        self.log_drawer.show()

    # Look -----------------------------------------------------------------------------------

    def do_evidence(self) -> None:
        notice = self.view.notice or self._failure_notice()
        if notice is not None:
            self.push_screen(MessageDialog(notice, simulated=self.view.simulated))

    def _failure_notice(self) -> Notice | None:
        failure = self.view.failure
        if failure is None:
            return None
        return Notice(
            t=self.clock.wall(),
            level="error",
            message=make_safe(f"{failure.stage} failed: {failure.cause}"),
            remedy=make_safe(failure.remedy),
            evidence=tuple(make_safe(item) for item in failure.evidence),
        )

    def go_to(self, name: str, *, focus_only: bool = False) -> None:
        """Focus a pane; the one that has the focus already fills the screen or gives it back."""
        if name == self.open_pane and not focus_only and not self.arrangement.single:
            self.do_zoom()
            return
        if name == "editor" and self.open_pane != "editor":
            self.before_editor = self.open_pane
        self.focus_pane(name)

    def do_next_pane(self) -> None:
        place = PANE_IDS.index(self.open_pane)
        self.go_to(PANE_IDS[(place + 1) % len(PANE_IDS)], focus_only=True)

    def do_previous_pane(self) -> None:
        place = PANE_IDS.index(self.open_pane)
        self.go_to(PANE_IDS[(place - 1) % len(PANE_IDS)], focus_only=True)

    def do_zoom(self) -> None:
        self.zoomed = not self.zoomed
        self.rearrange()
        self.pane(self.open_pane).focus()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        if isinstance(event.widget, Pane) and event.widget.id in PANE_IDS:
            self.open_pane = event.widget.id
            self.paint_soon()

    def do_back(self) -> None:
        if self.log_drawer.display:
            self.do_log()
        elif self.hint is not None or self.view.notice is not None:
            self.dismiss_notice()
        elif self.zoomed:
            self.do_zoom()
        elif self.open_pane == "editor":
            self.go_to(self.before_editor)

    def do_theme(self) -> None:
        names = self.theme_names()
        place = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(place + 1) % len(names)]
        self.say(f"Theme: {self.theme}")

    def do_palette(self) -> None:
        self.action_command_palette()

    def do_help(self) -> None:
        self.push_screen(HelpDialog(self.situation(), simulated=self.view.simulated))

    @on(Drawn.Failed)
    def _drawing_failed(self, event: Drawn.Failed) -> None:
        self.mistake(event.bug)

    # Decide ---------------------------------------------------------------------------------

    async def put(self, question: Question) -> bool:
        """A question of the session as a dialog; any way out but the yes is no."""
        because = self._what_went_wrong() if question.kind == "restore" else ""
        dialog = QuestionDialog(question, simulated=self.view.simulated, because=because)
        answer = await self._answer_of(dialog)
        return bool(answer)

    def _what_went_wrong(self) -> str:
        cycle = self.view.cycle
        stage = None if cycle is None else cycle.ended_badly
        if stage is None:
            return ""
        if stage.state == "cancelled":
            return f"Cancelled during {stage.name}."
        return f"{stage.name} failed: {stage.detail}".rstrip(": ")

    async def put_secret(self, question: SecretQuestion) -> str | None:
        """A secret of a login as a dialog; None for "go on without"."""
        dialog = SecretDialog(question, simulated=self.view.simulated)
        secret = await self._answer_of(dialog)
        if secret is None:
            self.say(f"Goes on without it for {question.subject}; r, d or m asks for it again.")
        return secret

    async def _answer_of(self, dialog: Dialog[T]) -> T | None:
        """What a dialog is left with. Where nobody waits for it any more, it goes."""
        answer: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()

        def settle(value: T | None) -> None:
            if not answer.done():
                answer.set_result(value)

        self.push_screen(dialog, settle)
        try:
            return await answer
        except asyncio.CancelledError:
            if self.is_running and self.screen is dialog:
                dialog.dismiss(dialog.nothing)
            raise

    # Leave ----------------------------------------------------------------------------------

    def do_quit(self) -> None:
        # Work of one group ends the work before it, and leaving must not end half-way.
        self.work(self._quit(), "hurry" if self.leaving else "quit")

    async def _quit(self) -> None:
        if self.leaving:
            # Again while the cycle is on its way back: without waiting for the old service.
            await self.session.cancel()
            return
        if self.session.busy:
            yes = await self.push_screen_wait(
                ConfirmDialog(
                    "A cycle runs",
                    (
                        "Leaving cancels it first and waits until it is clear what runs.",
                        "What was measured so far is kept.",
                    ),
                    "cancel it and leave",
                    danger=True,
                    simulated=self.view.simulated,
                    no="Stay",
                )
            )
            if not yes:
                return
        waits = " Waits until it is clear what runs; q again: leave it stopped."
        self.say("Leaving." + (waits if self.session.busy else ""))
        self.leaving = True
        await self.close_session()
        self.exit()

    async def close_session(self) -> None:
        """Hang up; a cycle that runs ends in a named state, which ``parting`` then tells."""
        busy = self.session.busy
        await self.session.close()
        self.session_closed = True
        results = self.session.results
        if busy and results:
            last = results[-1]
            self.parting = make_safe(f"The cycle was {last.outcome}. {now_words(last)}")
            return
        status, cycle = self.view.service, self.view.cycle
        record = None if cycle is None else cycle.record
        # A service that this session stopped must not be forgotten for a clean screen.
        if status is not None and not status.running and record is not None and record.end_state:
            self.parting = make_safe(f"The service is stopped. {now_words(record)}")


__all__ = ["CockpitApp", "Dialog", "SaveText"]
