"""Pictures of the cockpit for people: ``python tests/tui/cockpit_scenes.py DIRECTORY [SCENE...]``.

Writes an SVG of every scene at three sizes. The snapshot tests use the same scenes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import fake_session as fake
from textual.pilot import Pilot

from specdash.tui.app import CockpitApp
from specdash.tui.themes import load_themes

SIZES = ((80, 24), (120, 40), (200, 60))
Prepare = Callable[["Pilot[None]"], Awaitable[None]]


async def settle(pilot: Pilot[None]) -> None:
    """Let every event and every repaint happen."""
    app = pilot.app
    assert isinstance(app, CockpitApp)
    for _ in range(3):
        await pilot.pause()
        app.paint_now()
    await pilot.pause()


async def nothing(pilot: Pilot[None]) -> None:
    await settle(pilot)


def keys(*names: str) -> Prepare:
    async def prepare(pilot: Pilot[None]) -> None:
        await settle(pilot)
        for name in names:
            await pilot.press(name)
            await settle(pilot)

    return prepare


def make_app(
    scene: str, *, theme: str = "night", rig: object = None
) -> tuple[CockpitApp, fake.FakeSession]:
    events, results, busy = SCENES[scene][0]()
    session = fake.FakeSession(events, results=results, rig=rig)  # type: ignore[arg-type]
    session.is_busy = busy
    app = CockpitApp(
        session,  # type: ignore[arg-type]
        themes=load_themes().themes,
        theme=theme,
        clock=fake.FakeClock(),
    )
    app.animation_level = "none"
    return app, session


def _idle():  # type: ignore[no-untyped-def]
    return fake.idle(), [], False


def _load():  # type: ignore[no-untyped-def]
    return fake.mid_load(), fake.history(), True


def _bench():  # type: ignore[no-untyped-def]
    return fake.benchmark_running(), fake.history(), True


def _results():  # type: ignore[no-untyped-def]
    rows = [*fake.history(), fake.record(4, t=fake.T0 - 100, number=6), fake.failed_record(6)]
    return fake.idle(), rows, False


def _failed():  # type: ignore[no-untyped-def]
    return fake.failed(), fake.history(), False


def _log():  # type: ignore[no-untyped-def]
    return [*fake.mid_load(), *fake.log_events()], fake.history(), True


SCENES = {
    "idle": (_idle, nothing),
    "load": (_load, nothing),
    "bench": (_bench, keys("4")),
    "results": (_results, keys("5")),
    "plan": (_idle, keys("plus", "r")),
    "plan_busy": (_bench, keys("plus", "r")),
    "help": (_idle, keys("question_mark")),
    "log": (_log, keys("l")),
    "failure": (_failed, nothing),
    "evidence": (_failed, keys("v")),
    "editor": (_idle, keys("3", "right", "down")),
    "gpus": (_load, keys("2")),
    "zoom": (_results, keys("5", "z")),
}


async def shoot(scene: str, size: tuple[int, int], theme: str) -> str:
    app, _ = make_app(scene, theme=theme)
    async with app.run_test(size=size) as pilot:
        await SCENES[scene][1](pilot)
        return app.export_screenshot(title="specdash")


def main() -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    names = [name for name in sys.argv[2:] if name in SCENES] or list(SCENES)
    themes = [a[6:] for a in sys.argv if a.startswith("theme=")] or ["night"]
    sizes = [tuple(map(int, a.split("x"))) for a in sys.argv[2:] if a[0].isdigit()] or SIZES
    for name in names:
        for theme in themes:
            for width, height in sizes:
                svg = asyncio.run(shoot(name, (width, height), theme))
                (folder / f"{name}-{width}x{height}-{theme}.svg").write_text(svg)


if __name__ == "__main__":
    main()
