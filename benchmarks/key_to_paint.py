"""From a key press to its paint, while a benchmark streams and the SSH link stalls.

    python benchmarks/key_to_paint.py [WIDTHxHEIGHT...]

The cockpit gets what it gets in the worst case: ten progress events of 256 streams a second (the
measuring process folds the streams into these, so more streams are not more events), GPU readings
at 2.5 Hz, a hundred log lines a second, and a session whose every answer from the network never
comes (a plan is asked for before the keys are pressed and stays open behind them). A key counts
as painted when its pane has nothing left to repaint and the screen has written its update.

Two cores shared with others (load 2), Python 3.11, Textual 8.2, in ms (the promise is 50):

    size      key    p50    p95    max      of one core
    80x24     +      5.5     12     48       3 %
    120x40    +      8.9     18     43      10 %
    200x60    +       14     31     41      14 %

The widest runs of an hour gave 200x60 62 at p95: there the other work of the machine is measured.
Before panes repainted only for what they draw (a progress event repainted all five, and the
results with their curves) 200x60 took 33 at p50, 67 at p95 and 33 % of the core; full garbage
collections over all that is loaded took another 25 each until the cockpit froze it.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "tui"))

import fake_session as fake
from cockpit_scenes import SCENES, settle
from textual import events
from textual.pilot import Pilot

from specdash.core.clock import SystemClock
from specdash.core.events import LogLine
from specdash.core.text import make_safe
from specdash.tui.app import CockpitApp
from specdash.tui.themes import load_themes

SIZES = ((80, 24), (120, 40), (200, 60))
PRESSES = 100
PAUSE_S = 0.05
CPU_S = 4.0


async def storm(session: fake.FakeSession) -> None:
    """Events as they come while a cell of 256 requests is measured."""
    progress = fake.measuring(4, 256)
    tick = 0
    while True:
        session.push(progress[tick % len(progress)])
        if tick % 4 == 0:
            session.push(fake.gpus([91240] * 4, t=time.time(), util=97))
        for line in range(10):
            text = make_safe(f"Decode batch, #running-req: 256, gen throughput: {tick}{line}")
            session.push(LogLine(t=time.time(), source="service", text=text))
        tick += 1
        await asyncio.sleep(0.1)


async def press(pilot: Pilot[None], key: str) -> float:
    """Seconds until the candidate pane shows what ``key`` did."""
    app = pilot.app
    assert isinstance(app, CockpitApp)
    before, pane, screen = app.editor, app.pane("editor"), app.screen_stack[0]
    started = time.perf_counter()
    app.post_message(events.Key(key, None))
    while time.perf_counter() - started < 2.0:
        await asyncio.sleep(0.0005)
        waiting = pane._dirty_regions or pane._repaint_required or screen._dirty_widgets
        if app.editor is not before and not waiting:
            break
    return time.perf_counter() - started


async def measure(size: tuple[int, int]) -> str:
    first, results, _ = SCENES["bench"][0]()
    session = fake.FakeSession(first, results=results)
    session.is_busy = True
    session.plan_gate = asyncio.Event()
    app = CockpitApp(
        session,  # type: ignore[arg-type]
        themes=load_themes().themes,
        theme="night",
        clock=SystemClock(),
    )
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        for key in ("3", "r", "escape"):
            await pilot.press(key)
        gc.freeze()  # as the cockpit does
        streaming = asyncio.ensure_future(storm(session))
        took = []
        for number in range(PRESSES):
            took.append(1000 * await press(pilot, "plus" if number % 2 else "minus"))
            await asyncio.sleep(PAUSE_S)
        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.sleep(CPU_S)
        share = (time.process_time() - cpu) / (time.perf_counter() - wall)
        streaming.cancel()
    took.sort()
    name = f"{size[0]}x{size[1]}"
    return (
        f"{name:9} +    {took[len(took) // 2]:5.1f}  {took[int(len(took) * 0.95)]:5.1f}"
        f"  {took[-1]:5.1f}      {share:.0%}"
    )


def main() -> None:
    wanted = [tuple(map(int, word.split("x"))) for word in sys.argv[1:]] or SIZES
    print("size      key    p50    p95    max      of one core")
    for width, height in wanted:
        print(asyncio.run(measure((width, height))))


if __name__ == "__main__":
    main()
