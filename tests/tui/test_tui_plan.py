"""The plan dialog: what changes comes first, what must be minded stays in sight."""

from __future__ import annotations

from dataclasses import replace

import fake_session as fake
import pytest
from cockpit_scenes import make_app, settle
from hypothesis import given
from hypothesis import strategies as st
from test_tui_keys import screen_text
from textual.content import Content

from specdash.core.diff import unified
from specdash.core.plan import Plan, PlannedStage, PlannedWrite
from specdash.core.settings import Candidate
from specdash.tui.dialogs.difftext import diff_lines
from specdash.tui.dialogs.plan import plan_text

SCRIPT = "set -e\n" + "true # a long script of the product's own\n" * 20
LONG = "ExecStart=/usr/bin/python3 -m sglang.launch_server " + "--padding-flag value " * 60


class PlanSession(fake.FakeSession):
    """Plans as a real rig makes them: scripts, long queries, warnings."""

    warnings: tuple[str, ...] = ()

    async def plan(self, candidate: Candidate) -> Plan:
        plan = fake.make_plan(candidate, self.now)
        script = ("/bin/sh", "-c", SCRIPT, "specdash-stage", fake.PATH)
        stages = tuple(
            replace(stage, commands=(script,)) if stage.name == "write" else stage
            for stage in plan.stages
        )
        return replace(plan, stages=stages, warnings=self.warnings)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_the_change_is_seen_without_scrolling_and_a_warning_always(
    size: tuple[int, int],
) -> None:
    app, _ = make_app("idle")
    session = PlanSession(fake.idle())
    session.warnings = ("node: a daemon-reload may take the GPUs from container 131",)
    app.session = session  # type: ignore[assignment]
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        for key in ("plus", "r"):
            await pilot.press(key)
            await settle(pilot)
        shown = screen_text(app)
        for row in (
            "-  --speculative-num-steps 3",
            "+  --speculative-num-steps 4",
            "+  --speculative-num-draft-tokens 5",
            "! node: a daemon-reload may take the GPUs from container 131",
            "y  run it",
        ):
            assert row in shown
        text = plan_text(await session.plan(Candidate(4)), 74).plain
        order = ["+  --speculative-num-steps 4", "Runs, in this order", "stop", "1 warning"]
        assert [text.index(word) for word in order] == sorted(text.index(word) for word in order)


async def test_f_shows_whole_commands_and_neither_runs_nor_leaves() -> None:
    app, _ = make_app("idle")
    session = PlanSession(fake.idle())
    app.session = session  # type: ignore[assignment]
    async with app.run_test(size=(120, 60)) as pilot:
        await settle(pilot)
        for key in ("plus", "r"):
            await pilot.press(key)
            await settle(pilot)
        assert "/bin/sh -c SCRIPT specdash-stage" in screen_text(app)
        assert "a long script" not in screen_text(app)
        await pilot.press("f")
        await settle(pilot)
        assert "a long script" in screen_text(app)
        assert r"set -e\ntrue" in screen_text(app)
        await pilot.press("f")
        await settle(pilot)
        assert "a long script" not in screen_text(app)
        assert session.calls == [("open", None)] or not session.calls


def reversed_words(rows: list[Content]) -> list[str]:
    return [
        row.plain[span.start : span.end]
        for row in rows
        for span in row.spans
        if "reverse" in str(span.style) and span.end > span.start
    ]


def test_what_differs_inside_a_line_is_set_off() -> None:
    diff = unified(b"a --steps 1 --topk 1\n", b"a --steps 14 --topk 1\n", "/x")
    assert reversed_words(diff_lines(diff, 60)) == ["1", "14"]


def test_a_very_long_line_is_cut_to_what_differs_and_shown_whole_on_demand() -> None:
    old, new = LONG + "--steps 1 " + "--more x " * 40, LONG + "--steps 4 " + "--more x " * 40
    diff = unified(old.encode(), new.encode(), "/x")
    short = diff_lines(diff, 74)
    assert len(short) <= 6
    assert reversed_words(short) == ["1", "4"]
    assert "--steps 4" in "".join(row.plain[1:] for row in short)
    whole = "".join(row.plain[1:] for row in diff_lines(diff, 74, whole=True))
    assert old in whole
    assert new in whole


LINES = st.lists(st.text(st.characters(codec="utf-8"), max_size=60), max_size=12)


@given(LINES, LINES, st.integers(12, 120))
def test_no_diff_is_wider_than_its_dialog_and_whole_loses_nothing(
    before: list[str], after: list[str], width: int
) -> None:
    diff = unified("\n".join(before).encode(), "\n".join(after).encode(), "/x")
    rows = diff_lines(diff, width, whole=True)
    assert all(row.cell_length <= width for row in rows)
    added = "".join(row.plain[1:] for row in rows)
    for line in diff.split("\n")[2:]:
        if line.startswith("+") and line[1:].isascii() and line[1:].isprintable():
            assert line[1:] in added


def test_a_plan_that_writes_nothing_says_so() -> None:
    plan = replace(
        fake.make_plan(Candidate(3), fake.eagle(3)),
        stages=(PlannedStage("stop", "svc", (("systemctl", "stop", "x"),)),),
    )
    assert "The launch config stays as it is." in plan_text(plan, 74).plain


def test_the_path_keeps_its_end() -> None:
    stage = PlannedStage("write", "svc", (), (PlannedWrite("/very/long" * 20 + "/unit", "+x"),))
    plan = replace(fake.make_plan(Candidate(3), fake.eagle(3)), stages=(stage,))
    assert "/very/long/unit" in plan_text(plan, 60).plain
