"""The log drawer's lines: follow, pause, filter, bound."""

from __future__ import annotations

import fake_session as fake

from specdash.core.events import CommandRan, LogLine, Notice
from specdash.core.text import Safe
from specdash.tui.logbuf import Entry, LogBuffer, entries_of


def filled(count: int, limit: int = 100) -> LogBuffer:
    buffer = LogBuffer(limit)
    for i in range(count):
        buffer.add(Entry(float(i), "service", Safe(f"line {i}")))
    return buffer


def texts(buffer: LogBuffer, height: int) -> list[str]:
    return [str(entry.text) for entry in buffer.window(height)]


def test_it_follows_until_scrolled() -> None:
    buffer = filled(10)
    assert texts(buffer, 3) == ["line 7", "line 8", "line 9"]
    buffer.scroll(2, 3)
    assert buffer.paused
    assert texts(buffer, 3) == ["line 5", "line 6", "line 7"]


def test_paused_holds_still_and_counts_what_came() -> None:
    buffer = filled(10)
    buffer.scroll(2, 3)
    before = texts(buffer, 3)
    for i in range(4):
        buffer.add(Entry(0.0, "service", Safe(f"new {i}")))
    assert texts(buffer, 3) == before
    assert buffer.unseen == 4
    buffer.follow()
    assert (buffer.unseen, texts(buffer, 1)) == (0, ["new 3"])


def test_scrolling_down_to_the_end_follows_again() -> None:
    buffer = filled(10)
    buffer.scroll(2, 3)
    buffer.add(Entry(0.0, "service", Safe("new")))
    buffer.scroll(-99, 3)
    assert not buffer.paused
    assert buffer.unseen == 0


def test_scrolling_up_stops_at_the_first_line() -> None:
    buffer = filled(5)
    buffer.scroll(99, 3)
    assert texts(buffer, 3) == ["line 0", "line 1", "line 2"]


def test_it_is_bounded_and_a_full_buffer_stays_readable_while_paused() -> None:
    buffer = filled(100, limit=50)
    assert buffer.total == 50
    buffer.scroll(10, 5)
    for i in range(200):
        buffer.add(Entry(0.0, "service", Safe(f"new {i}")))
    assert len(texts(buffer, 5)) == 5
    assert buffer.total == 50


def test_the_filter_ignores_case_and_can_be_taken_back() -> None:
    buffer = filled(10)
    buffer.add(Entry(0.0, "service", Safe("CUDA Error")))
    buffer.set_filter("error")
    assert texts(buffer, 5) == ["CUDA Error"]
    buffer.add(Entry(0.0, "service", Safe("other")))
    assert buffer.total == 1
    assert buffer.text() == "00:00:00 CUDA Error\n"
    buffer.set_filter("")
    assert buffer.total == 12


def test_a_command_is_one_line_and_a_failed_one_shows_its_output() -> None:
    good = CommandRan(
        t=0, host="svc", argv=("systemctl", "stop", "a b"), exit_status=0, seconds=0.2
    )
    entries = entries_of(good)
    assert [str(e.text) for e in entries] == ["svc $ systemctl stop 'a b'  [exit 0, 0.2 s]"]
    bad = CommandRan(
        t=0, host="svc", argv=("x",), exit_status=None, seconds=2.0, output=Safe("half")
    )
    assert [(e.kind, e.bad) for e in entries_of(bad)] == [("command", True), ("output", True)]
    assert "link lost" in entries_of(bad)[0].text


def test_what_becomes_a_line() -> None:
    notice = Notice(t=0, level="error", message=Safe("m"), remedy=Safe("r"), evidence=(Safe("e"),))
    assert [str(e.text) for e in entries_of(notice)] == ["error: m", "r", "e"]
    log = LogLine(t=0, source="specdash", text=Safe("hello"))
    assert [e.kind for e in entries_of(log)] == ["specdash"]
    assert entries_of(fake.LINKS[0]) == []
