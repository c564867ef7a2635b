"""What the keys do that run, measure, queue or cancel something."""

from __future__ import annotations

from collections.abc import Sequence

from textual.theme import Theme

from specdash.core.clock import Clock
from specdash.core.errors import SpecdashError
from specdash.core.events import CycleEnded
from specdash.core.settings import Candidate
from specdash.session.port import CockpitSession
from specdash.tui import fmt
from specdash.tui.cockpit import CockpitBase
from specdash.tui.decide import DialogDecide
from specdash.tui.dialogs.plan import PlanAnswer, PlanDialog
from specdash.tui.dialogs.simple import ConfirmDialog
from specdash.tui.mistakes import mistake_of
from specdash.tui.panes.service import describe
from specdash.tui.table import key_of

_DOWN_STAGES = ("stop", "reap", "free", "write", "reload", "start", "load", "verify")


class RunDeeds(CockpitBase):
    """The deeds of the Run group; nothing here runs without the plan dialog's yes."""

    def __init__(
        self,
        session: CockpitSession,
        *,
        themes: Sequence[Theme],
        theme: str | None,
        clock: Clock,
        decide: DialogDecide,
    ) -> None:
        super().__init__(session, themes=themes, theme=theme, clock=clock)
        self.decide = decide
        self._cancelling: ConfirmDialog | None = None

    def do_run(self) -> None:
        self._plan(preview=False)

    def do_diff(self) -> None:
        self._plan(preview=True)

    def do_run_now(self) -> None:
        self.decide.ask_again()
        self._submit("queue" if self.session.busy else "run", self.editor.candidate())

    def do_measure(self) -> None:
        self.decide.ask_again()
        self.session.measure()
        self.focus_pane("bench")
        self.say("Measures what runs now; nothing is restarted.")

    def do_skip(self) -> None:
        self.session.skip_cell()
        self.say("The cell ends here; the cycle goes on.")

    def do_cancel(self) -> None:
        self.work(self._cancel(), "cancel")

    def do_unqueue(self) -> None:
        self.session.unqueue(len(self.view.queue) - 1)
        self.say("Taken out of the queue.")

    def _plan(self, *, preview: bool) -> None:
        self.decide.ask_again()
        candidate = self.editor.candidate()
        check = self.session.check(candidate)
        if check.resolution is None:
            self.say(f"The engine would refuse this: {check.refusal}")
            return
        busy = self.session.busy
        cycle = self.view.cycle
        cell_runs = (
            cycle is not None
            and cycle.running
            and cycle.cell is not None
            and cycle.cell.measured is None
        )
        title = "Change" if preview else "Run"
        dialog = PlanDialog(
            f"{title}: {describe(check.resolution.settings)}",
            busy=busy,
            preview=preview,
            simulated=self.view.simulated,
            cell_runs=cell_runs,
        )
        self.say("Making the plan ...")
        reading = self.work(self._read_plan(dialog, candidate), "read-plan")

        def answered(answer: PlanAnswer | None) -> None:
            reading.cancel()
            self.hint = None
            if answer is None or answer == "no":
                self.paint_soon()
                return
            self.said_yes = True
            with self.guarded():
                self._submit(answer, candidate)

        # Pushed at once: what is typed from here on belongs to the dialog.
        self.push_screen(dialog, answered)

    async def _read_plan(self, dialog: PlanDialog, candidate: Candidate) -> None:
        started = self.clock.now()
        timer = self.set_interval(1.0, lambda: dialog.waiting(self.clock.now() - started))
        try:
            dialog.set_plan(await self.session.plan(candidate))
        except SpecdashError as error:
            dialog.set_error(error)
        except Exception as bug:  # noqa: BLE001  told where it is waited for
            dialog.set_error(mistake_of(bug))
        finally:
            timer.stop()
            self.hint = None

    def _submit(self, answer: PlanAnswer, candidate: Candidate) -> None:
        self.decide.grant_run()
        depth = f"{self.session.words.knob} {candidate.num_steps}"
        words = "off" if candidate.num_steps == 0 else depth
        if answer == "cut" and self.session.busy:
            self.session.submit_first(candidate)
            self.say(f"{words} runs next; what is left of this measurement is skipped.")
        else:
            waits = self.session.busy
            self.session.submit(candidate)
            if waits:
                waiting = len(self.session.queue)
                self.say(f"{waiting} queued: {words} waits for the running cycle.")
        self.editor = self.editor.with_note("")
        self.recheck()

    async def _cancel(self) -> None:
        cycle = self.view.cycle
        stage = None if cycle is None or not cycle.running else cycle.current
        if stage is not None and stage.name in _DOWN_STAGES:
            elapsed = self.clock.wall() - (stage.started or self.clock.wall())
            dialog = ConfirmDialog(
                f"Cancel during {stage.name}?",
                (
                    f"In {stage.name} for {fmt.clock(elapsed)}: the service does not answer now.",
                    "Cancelling leaves the rig in a state that the screen then names.",
                ),
                "cancel the cycle",
                danger=True,
                simulated=self.view.simulated,
                no="Go on",
            )
            self._cancelling = dialog
            try:
                yes = await self.push_screen_wait(dialog)
            finally:
                self._cancelling = None
            if not yes:
                return
        waiting = len(self.view.queue)
        queue = f" {waiting} queued: taken out." if waiting else ""
        self.say(f"Cancelling: waits until it is clear what runs.{queue}")
        self.decide.revoke()
        await self.session.cancel()

    def cycle_ended(self, event: CycleEnded) -> None:
        if not self.view.queue:
            self.decide.revoke()
        if self._cancelling is not None:
            self._cancelling.withdraw()
            self.say("The cycle ended meanwhile: there is nothing to cancel.")
        row = event.record.resolved or event.record.candidate
        place = self.frame().results.index(key_of(row))
        if place is not None:
            self.cursor = place
