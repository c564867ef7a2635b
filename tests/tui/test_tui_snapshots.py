"""Pictures of the cockpit at three sizes, compared with the accepted ones.

Regenerate with ``pytest tests/tui/test_tui_snapshots.py --snapshot-update`` and look at every one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cockpit_scenes import SCENES, SIZES, make_app

COMPARED = ("idle", "load", "bench", "results", "plan", "help", "log", "failure")


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("scene", COMPARED)
def test_scene(scene: str, size: tuple[int, int], snap_compare: Callable[..., bool]) -> None:
    app, _ = make_app(scene)
    assert snap_compare(app, terminal_size=size, run_before=SCENES[scene][1])


def test_light_theme(snap_compare: Callable[..., bool]) -> None:
    app, _ = make_app("bench", theme="day")
    assert snap_compare(app, terminal_size=(120, 40), run_before=SCENES["bench"][1])


def test_too_small(snap_compare: Callable[..., bool]) -> None:
    app, _ = make_app("idle")
    assert snap_compare(app, terminal_size=(50, 10), run_before=SCENES["idle"][1])
