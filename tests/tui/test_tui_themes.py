"""Theme files: what is wrong is named by file, key, value and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.theme import BUILTIN_THEMES

from specdash.tui.paint import role_colors
from specdash.tui.themes import ROLES, ThemeFileError, load_themes, parse_theme

GOOD = b'name = "mine"\ndark = true\n[colors]\nprimary = "#112233"\n'


def test_shipped_themes_load_and_there_is_a_dark_and_a_light_one() -> None:
    themes = load_themes()
    assert themes.problems == ()
    assert {item.theme.dark for item in themes.found} == {True, False}
    assert {"night", "day"} <= {item.theme.name for item in themes.found}
    assert all(item.shipped for item in themes.found)


def test_a_users_theme_is_added_and_wins_over_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(GOOD)
    (tmp_path / "night.toml").write_bytes(GOOD.replace(b"mine", b"night"))
    (tmp_path / "notes.txt").write_text("not a theme")
    found = {item.theme.name: item for item in load_themes(tmp_path).found}
    assert found["mine"].path == str(tmp_path / "mine.toml")
    assert not found["night"].shipped


def test_a_wrong_file_harms_no_other(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"name = ")
    (tmp_path / "b.toml").write_bytes(GOOD)
    (tmp_path / "c.toml").write_bytes(GOOD)
    (tmp_path / "d.toml").mkdir()
    (tmp_path / "e.toml").write_bytes(b"#" * 100_000)
    themes = load_themes(tmp_path)
    assert "mine" in {item.theme.name for item in themes.found}
    assert [Path(p.message.split(": ")[0]).name for p in themes.problems] == [
        "a.toml",
        "c.toml",
        "d.toml",
        "e.toml",
    ]
    assert "also the name in" in themes.problems[1].message


def test_no_directory_is_no_problem(tmp_path: Path) -> None:
    assert load_themes(tmp_path / "absent").problems == ()


@pytest.mark.parametrize(
    ("body", "key", "allowed"),
    [
        (b"dark = true\n[colors]\nprimary='#123'", "name is missing", "letters"),
        (b"name='a b'\ndark=true\n[colors]\nprimary='#123'", "name is 'a b'", "letters"),
        (b"name='a'\n[colors]\nprimary='#123'", "dark is missing", "true or false"),
        (b"name='a'\ndark=1\n[colors]\nprimary='#123'", "dark is 1", "true or false"),
        (b"name='a'\ndark=true", "colors.primary is missing", "colour"),
        (b"name='a'\ndark=true\ncolors=3", "colors is 3", "table"),
        (b"name='a'\ndark=true\n[colors]\nprimary='blurple'", "'blurple'", "#6cb6ff"),
        (b"name='a'\ndark=true\n[colors]\nprimary=7", "colors.primary is 7", "colour"),
        (b"name='a'\ndark=true\n[colors]\nprimary='auto'", "'auto'", "colour"),
        (b"name='a'\ndark=true\n[colors]\nprimary='ansi_red'", "'ansi_red'", "colour"),
        (
            b"name='a'\ndark=true\n[colors]\nprimary='#123'\nprimery='#123'",
            "unknown key colors.primery",
            "primary, secondary",
        ),
        (b"name='a'\ndark=true\nfont='x'", "unknown key font", "name, dark, colors, roles"),
        (
            b"name='a'\ndark=true\n[colors]\nprimary='#123'\n[roles]\nseries=[]",
            "roles.series is []",
            "one to four",
        ),
        (
            b"name='a'\ndark=true\n[colors]\nprimary='#123'\n[roles]\nseries=['#123','no']",
            "roles.series[1] is 'no'",
            "colour",
        ),
        (
            b"name='a'\ndark=true\n[colors]\nprimary='#123'\n[roles]\nglow='#123'",
            "unknown key roles.glow",
            "series",
        ),
        (b"\xff\xfe", "not UTF-8", ""),
        (b"name = 'a", "not TOML", ""),
    ],
)
def test_what_is_wrong_is_named(body: bytes, key: str, allowed: str) -> None:
    with pytest.raises(ThemeFileError) as caught:
        parse_theme(body, "x.toml")
    assert caught.value.message.startswith("x.toml: ")
    assert key in caught.value.message
    assert allowed in caught.value.remedy
    assert caught.value.exit_code == 2


@given(st.binary(max_size=200))
def test_any_bytes_are_a_theme_or_a_typed_error(data: bytes) -> None:
    try:
        parse_theme(data, "x.toml")
    except ThemeFileError as error:
        assert error.message.startswith("x.toml: ")


def test_every_role_has_a_colour_in_every_theme() -> None:
    wanted = {f"sd-{role}" for role in ROLES} | {f"sd-series-{i}" for i in range(1, 5)}
    for theme in (*load_themes().themes, *BUILTIN_THEMES.values()):
        assert wanted <= set(role_colors(theme)) | set(theme.variables), theme.name


def test_text_of_the_shipped_themes_can_be_read() -> None:
    """Contrast of each role of text against its background, by WCAG's formula."""
    from textual.color import Color

    def luminance(color: Color) -> float:
        parts = [c / 255 for c in color.rgb]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for theme in load_themes().themes:
        roles = {**role_colors(theme), **theme.variables}
        assert theme.background is not None
        paper = luminance(Color.parse(theme.background))
        for role in ("text", "dim", "good", "warn", "bad", "now", "next", "key"):
            ink = luminance(Color.parse(roles[f"sd-{role}"]))
            contrast = (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05)
            assert contrast >= 4.5, (theme.name, role, contrast)
