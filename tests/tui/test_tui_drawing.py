"""Text, bars, strips and charts as pure functions."""

from __future__ import annotations

import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from specdash.tui import digits, fmt, strip
from specdash.tui.chart import Axis, Series, draw, nice_ceiling, time_axis, value_axis
from specdash.tui.layout import arrange
from specdash.tui.paint import bar, command, fit, line, pad, right, spread, wrap

ANY_TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=80)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "n/a"), (0, "0:00"), (41.9, "0:41"), (723, "12:03"), (3723, "1:02:03"), (-5, "0:00")],
)
def test_running_times(seconds: float | None, text: str) -> None:
    assert fmt.clock(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "n/a"),
        (0.84, "0.8 s"),
        (9.96, "10 s"),
        (51, "51 s"),
        (125, "2 min 05 s"),
        (3725, "1 h 02 min"),
    ],
)
def test_finished_times(seconds: float | None, text: str) -> None:
    assert fmt.took(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "n/a"), (0.0, "0.0"), (99.96, "100"), (276.8, "277"), (12345.0, "12 345")],
)
def test_rates(value: float | None, text: str) -> None:
    assert fmt.rate(value) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(None, ""), (0.2134, "+21%"), (-0.034, "-3%"), (0.001, "±0%"), (12.0, "x13.0")],
)
def test_changes(fraction: float | None, text: str) -> None:
    assert fmt.change(fraction) == text


def test_ages_and_sizes() -> None:
    assert [fmt.ago(s) for s in (5, 65, 5000, 7300, 200000)] == [
        "5 s",
        "1 min",
        "83 min",
        "2 h",
        "2 d",
    ]
    assert (fmt.gib(97887), fmt.gib(None)) == ("95.6", "n/a")
    assert (fmt.millis(182.3), fmt.millis(1840), fmt.millis(None)) == ("182 ms", "1.84 s", "n/a")
    assert (fmt.half_width(97, 103), fmt.half_width(None, 1)) == ("±3.0", "")


@given(ANY_TEXT, st.integers(1, 60))
def test_pad_gives_exactly_the_width(text: str, width: int) -> None:
    assert cell_len(pad(text, width)) == width
    assert cell_len(right(text, width)) == width


@given(ANY_TEXT, st.integers(4, 60), st.integers(1, 5))
def test_wrap_stays_in_width_and_loses_no_letter(text: str, width: int, limit: int) -> None:
    rows = wrap(text, width)
    assert all(cell_len(row) <= width for row in rows)
    wide = any(cell_len(char) > 1 for char in text)
    if not wide:
        assert "".join("".join(rows).split()) == "".join(text.split())
    assert len(wrap(text, width, limit)) <= limit


@given(ANY_TEXT, ANY_TEXT, st.integers(1, 80))
def test_lines_fit(left: str, other: str, width: int) -> None:
    assert fit(line(left), width).cell_length == width
    assert spread(line(left), line(other), width).cell_length == width


@given(st.floats(-1, 2), st.integers(0, 60))
def test_a_bar_has_its_width_and_never_hides_a_little(fraction: float, width: int) -> None:
    text = bar(fraction, width, "red").plain
    assert len(text) == width
    if width and fraction > 0:
        assert text[0] != " "
    if width and fraction >= 1:
        assert text == "█" * width


def test_a_strip_holds_the_last_value_and_is_blank_where_nothing_is_known() -> None:
    values = strip.columns([(0.0, 1.0), (5.0, None), (8.0, 3.0)], 0.0, 10.0, 10)
    assert values == [1.0, 1.0, 1.0, 1.0, 1.0, None, None, None, 3.0, None]


def test_a_flat_line_looks_flat_on_a_fixed_axis() -> None:
    rows = strip.blocks([97.0, 98.0, 97.5], 2, 0.0, 100.0)
    assert len(rows) == 2
    assert len(set(rows[1])) == 1
    assert rows[1] == "███"


def test_a_known_zero_is_a_hairline_and_an_unknown_nothing() -> None:
    assert strip.blocks([0.0, None], 1, 0.0, 100.0) == ["▁ "]


@given(
    st.lists(st.tuples(st.integers(0, 80), st.text("abcxyz", min_size=1, max_size=8)), max_size=9),
    st.integers(0, 60),
)
def test_labels_never_overlap_or_overflow(marks: list[tuple[int, str]], width: int) -> None:
    row = strip.place_labels(sorted(marks), width)
    assert len(row) == width
    given_words = {label for _, label in marks}
    assert all(word in given_words for word in row.split())


@given(st.floats(1e-6, 1e9))
def test_the_ceiling_is_round_and_not_far(value: float) -> None:
    ceiling = nice_ceiling(value)
    assert value <= ceiling * (1 + 1e-9)
    assert ceiling <= value * 1.7


def test_the_ceiling_of_nonsense_is_one() -> None:
    assert [nice_ceiling(v) for v in (0.0, -4.0, math.nan, math.inf)] == [1.0] * 4


POINT = st.tuples(
    st.floats(-10, 110), st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))
)


@given(st.lists(POINT, max_size=30), st.integers(1, 90), st.integers(1, 20))
def test_a_chart_has_its_size_whatever_the_points(
    points: list[tuple[float, float | None]], width: int, height: int
) -> None:
    rows = draw(
        [Series(points, "$sd-now", fill="$sd-tint", marks="●", values=True)],
        time_axis(100.0, width),
        value_axis(300.0, height),
        width,
        height,
        shade=(0.0, 20.0, "warm-up", "$sd-faint"),
    )
    assert len(rows) == height
    assert all(row.cell_length == width for row in rows)


def test_a_chart_puts_the_highest_point_on_top_and_the_lowest_below() -> None:
    axis = Axis(0.0, 10.0, ((0.0, "0"), (10.0, "10")))
    rows = [r.plain for r in draw([Series([(0, 0), (10, 10)], "red")], axis, axis, 43, 12)]
    assert rows[0].startswith("10┤")
    assert any("\u2800" < char <= "\u28ff" for char in rows[0][-3:])
    assert any("\u2800" < char <= "\u28ff" for char in rows[10][:6])
    assert rows[11].split() == ["0", "10"]


def test_charts_drawn_in_threads_do_not_mix() -> None:
    axis = value_axis(100.0, 10)

    def picture(level: float) -> list[str]:
        series = Series([(0.0, level), (50.0, level), (100.0, level)], "red")
        return [row.plain for row in draw([series], time_axis(100.0, 60), axis, 60, 10)]

    wanted = {level: picture(level) for level in (10.0, 40.0, 70.0, 95.0)}
    wrong: list[float] = []

    def work(level: float) -> None:
        wrong.extend(level for _ in range(15) if picture(level) != wanted[level])

    threads = [threading.Thread(target=work, args=(level,)) for level in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_large_digits_are_three_even_rows() -> None:
    rows = digits.large("1 234.5x")
    assert len(rows) == 3
    assert len({len(row) for row in rows}) == 1


@given(st.integers(1, 300), st.integers(1, 120))
def test_every_size_has_a_layout(width: int, height: int) -> None:
    place = arrange(width, height)
    assert place.too_small == (width < 60 or height < 16)
    if not place.too_small and not place.single:
        assert place.top + place.middle <= height - 2 - 6, "the results keep six rows"
        assert 40 <= place.left <= width // 2


def test_a_command_hides_nothing() -> None:
    shown = command(("rm", "-rf\r/", "a\x1b[2Jb", "c d", "\u202e"))
    assert shown == r"rm '-rf\r/' 'a\x1b[2Jb' 'c d' '\u202e'"
