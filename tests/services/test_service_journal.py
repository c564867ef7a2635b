"""Journal records as log lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.services.journal import lines_of


@pytest.mark.parametrize(
    ("record", "lines"),
    [
        (b'{"MESSAGE":"ready to roll!","__CURSOR":"s=1"}', [b"ready to roll!"]),
        (b'{"MESSAGE":"two\\nlines"}', [b"two", b"lines"]),
        (b'{"MESSAGE":[111,107,255]}', [b"ok\xff"]),
        (b'{"MESSAGE":["first","second",[255]]}', [b"first", b"second", b"\xff"]),
        (b'{"MESSAGE":null}', []),
        (b'{"MESSAGE":[]}', []),
        (b'{"MESSAGE":[300]}', []),
        (b'{"MESSAGE":{"a":1}}', []),
        (b'{"PRIORITY":"6"}', []),
        (b'{"MESSAGE":""}', [b""]),
        (b"Hint: You are currently not seeing messages", [b"Hint: You are currently not seeing messages"]),
        (b"[1,2]", [b"[1,2]"]),
        (b'{"MESSAGE":"cut', [b'{"MESSAGE":"cut']),
        (b"", []),
        (b"   ", []),
    ],
)  # fmt: skip
def test_records(record: bytes, lines: list[bytes]) -> None:
    assert lines_of(record) == lines


@given(st.text())
def test_texts_arrive_as_they_were(text: str) -> None:
    record = json.dumps({"MESSAGE": text}).encode()
    assert b"\n".join(lines_of(record)) == text.encode("utf-8", "surrogatepass")


@given(st.binary(min_size=1))
def test_bytes_arrive_as_they_were(data: bytes) -> None:
    record = json.dumps({"MESSAGE": list(data)}).encode()
    assert b"\n".join(lines_of(record)) == data


@given(st.binary())
def test_any_record_is_read(record: bytes) -> None:
    assert all(isinstance(line, bytes) for line in lines_of(record))


def test_deep_nesting_is_survived() -> None:
    record = b'{"MESSAGE":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert len(lines_of(record)) == 1
