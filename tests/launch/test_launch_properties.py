"""Properties of every form: what is read is what was written, and an edit is minimal."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from launch_forms import EXAMPLES, NUMBERS, PATHS, Layout, layouts, render

from specdash.core.errors import RefusedError
from specdash.core.settings import OFF, Settings
from specdash.engines.knobs import SGLANG
from specdash.launch.editing import edit_config
from specdash.launch.errors import LaunchConfigError
from specdash.launch.reading import read_config
from specdash.launch.removal import Removed

many = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
numbers = st.fixed_dictionaries({name: st.integers(1, 10_000) for name in NUMBERS})


def last_only(layout: Layout, values: dict[str, int]) -> Layout:
    """The layout with new numbers where they count: of repeated flags the last."""
    changed = layout.with_numbers(values)
    last = {item.field: at for at, item in enumerate(layout.items) if item.field}
    items = [
        new if not old.field or last[old.field] == at else old
        for at, (old, new) in enumerate(zip(layout.items, changed.items, strict=True))
    ]
    return replace(layout, items=tuple(items))


@many
@given(layouts())
def test_reads_what_was_written(layout: Layout) -> None:
    reading = read_config(PATHS[layout.form], render(layout), SGLANG)
    assert reading.settings == layout.settings()
    prefix = [] if layout.form == "env" else ["python3", "-m", "sglang.launch_server"]
    argv = [
        word.rsplit("/", 1)[-1] if at == 0 and prefix else word
        for at, word in enumerate(reading.argv)
    ]
    assert argv == [*prefix, *layout.arguments]


@many
@given(layouts(), numbers)
def test_edit_changes_the_numbers_and_nothing_else(layout: Layout, values: dict[str, int]) -> None:
    before = render(layout)
    path = PATHS[layout.form]
    reading = read_config(path, before, SGLANG)
    edit = edit_config(reading, replace(reading.settings, **values))
    assert edit.data == render(last_only(layout, values))
    again = read_config(path, edit.data, SGLANG)
    assert again.settings == edit.after == replace(reading.settings, **values)
    assert edit_config(again, edit.after).data == edit.data
    assert edit_config(again, reading.settings).data == before


@many
@given(layouts())
def test_places_point_at_the_value(layout: Layout) -> None:
    data = render(layout)
    reading = read_config(PATHS[layout.form], data, SGLANG)
    for name in NUMBERS:
        place = reading.places[name]
        assert data[place.start : place.end] == str(getattr(reading.settings, name)).encode()
        assert place.line == data.count(b"\n", 0, place.start) + 1


@many
@given(layouts(), numbers)
def test_off_and_on_again_restores_every_byte(layout: Layout, values: dict[str, int]) -> None:
    before = render(layout)
    path = PATHS[layout.form]
    reading = read_config(path, before, SGLANG)
    off = edit_config(reading, OFF)
    assert off.removed is not None
    assert off.after == OFF
    kept = [item.text for item in layout.items if not item.field]
    assert [w for w in off.argv if "speculative-" in w and w != "--num-speculative"] == []
    assert len(off.argv) <= len(kept) + 3
    removed = Removed.from_json(off.removed.to_json())
    reading_off = read_config(path, off.data, SGLANG, known_off=True)
    assert edit_config(reading_off, Settings(enabled=True), removed=removed).data == before
    changed = edit_config(reading_off, Settings(enabled=True, **values), removed=removed)
    assert changed.data == render(last_only(layout, values))


damage = st.lists(
    st.tuples(
        st.integers(0, 2000),
        st.integers(0, 3),
        st.sampled_from(
            [
                "",
                "'",
                '"',
                "\\",
                "$",
                "{",
                "}",
                "(",
                ")",
                "$(",
                "`",
                "\n",
                "\r",
                "#",
                "${",
                "<<E",
                ";",
                "%",
            ]
        ),
    ),
    min_size=1,
    max_size=4,
)


@many
@given(layouts(), damage)
def test_a_damaged_file_is_read_or_refused_and_never_misedited(
    layout: Layout, cuts: list[tuple[int, int, str]]
) -> None:
    text = render(layout).decode()
    for at, length, put in cuts:
        at %= len(text)
        text = text[:at] + put + text[at + length :]
    data = text.encode()
    path = PATHS[layout.form]
    try:
        reading = read_config(path, data, SGLANG)
        edit = edit_config(reading, replace(reading.settings, num_steps=77, enabled=True))
    except (LaunchConfigError, RefusedError):
        return
    place = reading.places.get("num_steps")
    if place is not None:
        assert edit.data == data[: place.start] + b"77" + data[place.end :]
