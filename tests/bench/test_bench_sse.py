"""Framing: whatever the network does to the bytes, the events are the same."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.bench import sse
from specdash.bench.sse import Event, OversizeError, SseFramer

EOL = st.sampled_from([b"\n", b"\r\n", b"\r"])
DATA = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=20)
NAME = st.sampled_from(["", "message", "error", "ping"])


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[tuple[bytes, list[str]]]]:
    """Bytes of a stream and the events in it."""
    eol = draw(EOL)
    raw = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    expected: list[tuple[bytes, list[str]]] = []
    for _ in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            raw += b": comment" + eol
        name = draw(NAME).encode()
        if name:
            raw += b"event: " + name + eol
        lines = draw(st.lists(DATA, min_size=1, max_size=3))
        for line in lines:
            raw += b"data:" + draw(st.sampled_from([b" ", b""])) + line.encode() + eol
        raw += eol * draw(st.integers(1, 2))
        expected.append((name, lines))
    return raw, expected


def in_pieces(raw: bytes, cuts: list[int]) -> list[Event]:
    framer = SseFramer()
    events: list[Event] = []
    places = sorted({min(cut, len(raw)) for cut in cuts} | {0, len(raw)})
    for start, end in pairwise(places):
        events += framer.feed(raw[start:end])
    return events + framer.finish()


@given(streams(), st.lists(st.integers(0, 400), max_size=30))
def test_any_split_gives_the_same_events(
    stream: tuple[bytes, list[tuple[bytes, list[str]]]], cuts: list[int]
) -> None:
    raw, expected = stream
    whole = in_pieces(raw, [])
    assert in_pieces(raw, cuts) == whole
    assert in_pieces(raw, list(range(len(raw)))) == whole
    assert [name for name, _ in whole] == [name for name, _ in expected]
    for (_, data), (_, lines) in zip(whole, expected, strict=True):
        assert [part.lstrip(b" ") for part in data.split(b"\n")] == [
            line.encode().lstrip(b" ") for line in lines
        ]


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=20))
def test_any_bytes_any_split(raw: bytes, cuts: list[int]) -> None:
    assert in_pieces(raw, cuts) == in_pieces(raw, [])


@pytest.mark.parametrize(
    ("raw", "events"),
    [
        (b"data: a\n\n", [(b"", b"a")]),
        (b"data: a\n\ndata: b\n\n", [(b"", b"a"), (b"", b"b")]),
        (b"data:a\r\n\r\n", [(b"", b"a")]),
        (b"data: a\ndata: b\n\n", [(b"", b"a\nb")]),
        (b": ping\n\n: ping\n\n", []),
        (b"event: error\ndata: x\n\n", [(b"error", b"x")]),
        (b"event: lonely\n\ndata: x\n\n", [(b"", b"x")]),
        (b"id: 7\nretry: 10\ndata: x\n\n", [(b"", b"x")]),
        (b"data\n\n", [(b"", b"")]),
        (b'error: {"code":500}\n\n', [(b"error", b'{"code":500}')]),
        (b"data: cut off", [(b"", b"cut off")]),
        (b"data: no blank line\n", [(b"", b"no blank line")]),
        (b"", []),
    ],
)
def test_cases(raw: bytes, events: list[Event]) -> None:
    framer = SseFramer()
    assert framer.feed(raw) + framer.finish() == events


def test_a_character_cut_in_two_heals() -> None:
    raw = 'data: {"text": "größe 日本 🚀"}\n\n'.encode()
    framer = SseFramer()
    events = [event for byte in raw for event in framer.feed(bytes([byte]))]
    assert [json.loads(data)["text"] for _, data in events] == ["größe 日本 🚀"]


def test_a_line_of_three_megabytes() -> None:
    body = b"x" * (3 * 2**20)
    raw = b"data: " + body + b"\n\n"
    framer = SseFramer()
    events: list[Event] = []
    for start in range(0, len(raw), 65_536):
        events += framer.feed(raw[start : start + 65_536])
    assert events == [(b"", body)]


@pytest.mark.parametrize("line", [b"x" * 50, b"data: xxxx\n"])
def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch, line: bytes) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    framer = SseFramer()
    with pytest.raises(OversizeError):
        for _ in range(1000):
            framer.feed(line)


def test_a_long_stream_of_small_events_is_not_oversize(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    framer = SseFramer()
    count = sum(len(framer.feed(b"data: 12345")) + len(framer.feed(b"678\n\n")) for _ in range(500))
    assert count == 500
