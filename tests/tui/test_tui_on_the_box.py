"""The whole product but the terminal: cockpit, session, SSH and the rig in a box."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
from test_tui_keys import screen_text
from textual.pilot import Pilot

from specdash.core.clock import SystemClock, wait_until
from specdash.core.events import Event, GpusSampled
from specdash.demo.box import Box, start_box
from specdash.demo.faults import Fault
from specdash.hosts.options import SshOptions
from specdash.rig.store import places
from specdash.session.session import RigSession
from specdash.session.wiring import Wiring
from specdash.tui.app import CockpitApp
from specdash.tui.decide import DialogDecide
from specdash.tui.themes import load_themes

pytestmark = pytest.mark.timeout(180)


@dataclass
class Cockpit:
    """The app on the box, as an operator has it."""

    app: CockpitApp
    pilot: Pilot[None]
    session: RigSession
    events: list[Event]

    @property
    def shown(self) -> str:
        return screen_text(self.app)

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(key)
        await self.pilot.pause()

    async def until(self, condition: Callable[[], bool], *, deadline_s: float = 40.0) -> None:
        async def probe() -> bool | None:
            return condition() or None

        try:
            await wait_until(probe, clock=SystemClock(), deadline_s=deadline_s, every_s=0.02)
        except TimeoutError:
            raise AssertionError(f"not seen in {deadline_s:g} s:\n{self.shown}") from None

    async def sees(self, words: str) -> None:
        """Wait until ``words`` (a regular expression) stand on the screen."""
        await self.until(lambda: re.search(words, self.shown) is not None)


@pytest.fixture(autouse=True)
def user_dirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))


@pytest.fixture
async def box() -> AsyncIterator[Box]:
    async with await start_box(speed=1000.0) as started:
        yield started


@asynccontextmanager
async def cockpit(
    box: Box, *, size: tuple[int, int] = (120, 40), budget_s: float = 0.7
) -> AsyncIterator[Cockpit]:
    rig = replace(
        box.rig,
        simulated=True,
        bench=replace(box.rig.bench, concurrency=(1,), budget_s=budget_s, output_tokens=48),
        limits=replace(box.rig.limits, stop_s=8.0, grace_s=1.0, free_s=3.0, load_s=8.0),
    )
    decide = DialogDecide()
    options = SshOptions(config_files=(box.ssh_config,), ask=decide.ask_secret)
    wiring = Wiring(rig, options, os.environ)
    session = RigSession(wiring, decide=decide, places=places(os.environ))
    events: list[Event] = []
    wiring.hub.observe(events.append)
    app = CockpitApp(
        session, themes=load_themes().themes, theme="night", clock=SystemClock(), decide=decide
    )
    app.animation_level = "none"
    async with app.run_test(size=size) as pilot:
        yield Cockpit(app, pilot, session, events)
        if not app.session_closed:
            await app.close_session()


async def test_a_cycle_from_the_keys_to_the_row_and_to_the_next_start(box: Box) -> None:
    async with cockpit(box) as at:
        await at.sees(r"now steps 1 · topk 1 · draft 2")
        await at.press("plus", "plus", "r")
        await at.sees(r"\+ +--speculative-num-steps 3")
        assert "SIMULATED" in at.shown
        await at.press("y")
        await at.sees(r"measure +0:0\d")
        # While it measures the next candidate is edited, and the GPUs are seen all the time.
        await at.press("plus")
        await at.sees(r"next 4/1/5")
        await at.sees(r"to 3/1/4 measured in")
        await at.sees(r"▸ 3 +3/1/4")
        await at.sees(r"now steps 3 · topk 1 · draft 4")
        assert "next 4/1/5" in at.shown
        samples = [event.t for event in at.events if isinstance(event, GpusSampled)]
        gaps = [b - a for a, b in pairwise(samples)]
        assert len(samples) / (samples[-1] - samples[0]) >= 2.0, gaps
        assert not re.search("Traceback", at.shown)
    async with cockpit(box) as at:
        await at.sees(r"▸ 3 +3/1/4")
        await at.sees(r"now steps 3 · topk 1 · draft 4")


async def test_cancel_while_it_measures_names_the_state_and_keeps_the_service(box: Box) -> None:
    async with cockpit(box, budget_s=30.0) as at:
        await at.sees(r"now steps 1")
        await at.press("plus", "r")
        await at.sees(r"y  run it")
        await at.press("y")
        await at.sees(r"measuring")
        await at.press("c")
        await at.sees(r"cancelled")
        await at.sees(r"The rig now: running, steps 2/1/3")
        await at.sees(r"now steps 2")
        assert not at.session.busy


async def test_cut_and_run_next_leaves_the_measurement_and_goes_on(box: Box) -> None:
    async with cockpit(box, budget_s=30.0) as at:
        await at.sees(r"now steps 1")
        await at.press("plus", "r")
        await at.sees(r"y  run it")
        await at.press("y")
        await at.sees(r"measuring")
        await at.press("plus", "r")
        await at.sees(r"a  cut and run next")
        await at.press("a")
        await at.sees(r"now steps 3")
        await at.sees(r"to 3/1/4 0:")
        await at.sees(r"measuring")
        await at.press("c")
        await at.sees(r"The rig now: running, steps 3/1/4")


async def test_a_failure_asks_and_tells_why_with_the_evidence_a_key_away(box: Box) -> None:
    async with cockpit(box) as at:
        await at.sees(r"now steps 1")
        box.set_faults(Fault.OOM_ON_LOAD)
        await at.press("plus", "r")
        await at.sees(r"y  run it")
        await at.press("y")
        await at.sees(r"Start the service again with steps 1/1/2\?")
        await at.sees(r"load failed: A GPU ran out of memory\.")
        box.set_faults()
        await at.press("y")
        await at.sees(r"The rig now: running, steps 1/1/2, restored")
        await at.press("v")
        await at.sees(r"OutOfMemoryError")


async def test_a_lost_link_is_said_keys_work_and_the_streams_come_back(box: Box) -> None:
    async with cockpit(box) as at:
        await at.sees(r"● svc up +● node up|● node up +● svc up")
        box.set_faults(Fault.LINK_DROPS)
        await at.sees(r"✗ svc lost")
        await at.sees(r"✗ node lost")
        await at.sees(r"stale \d+ s")
        await at.press("plus", "3")
        await at.sees(r"next 2/1/3")
        await at.press("r")
        await at.sees(r"✗ ")
        await at.press("escape")
        box.set_faults()
        before = len(at.events)
        await at.sees(r"● svc up")
        await at.sees(r"● node up")
        await at.until(lambda: any(isinstance(event, GpusSampled) for event in at.events[before:]))
        await at.until(lambda: "stale" not in at.shown)


async def test_measure_only_and_leaving_in_the_middle(box: Box) -> None:
    async with cockpit(box, budget_s=30.0) as at:
        await at.sees(r"now steps 1")
        await at.press("m")
        await at.sees(r"measuring")
        await at.press("q", "y")
        await at.until(lambda: at.app.session_closed)
    assert (
        at.app.parting == "The cycle was cancelled. The rig now: running, steps 1/1/2, untouched."
    )
