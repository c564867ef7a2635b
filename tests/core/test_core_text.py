"""No text from outside can style or control a terminal once it is Safe."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.core.text import make_safe

SRC = Path(__file__).parents[2] / "src" / "specdash"


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("plain [/] [b] [GPU requires reset]", "plain [/] [b] [GPU requires reset]"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]52;c;c2VjcmV0\x07after", "after"),
        ("\x1b]0;title\x1b\\after", "after"),
        ("\x9b2Jcleared", "cleared"),
        ("\x9d52;c;x\x9cafter", "after"),
        ("before\x1b]52;c;never ends", "before"),
        ("before\x1b[12", "before"),
        ("\x1bcreset", "reset"),
        ("a\x1b(Bb", "ab"),
        ("10%\r20%\r30%", "30%"),
        ("done\r\n", "done "),
        ("bell\x07 null\x00 del\x7f", "bell null del"),
        ("abc\u202etxt.exe", "abctxt.exe"),
        ("line\u2028separator", "lineseparator"),
        ("naïve Größe 東京 🚀", "naïve Größe 東京 🚀"),
        (b"bad \xff byte", "bad \ufffd byte"),
    ],
)
def test_known_attacks(raw: bytes | str, safe: str) -> None:
    assert make_safe(raw) == safe


@given(st.one_of(st.binary(), st.text()), st.booleans())
def test_nothing_that_controls_survives(raw: bytes | str, keep: bool) -> None:
    safe = make_safe(raw, keep_newlines=keep)
    for char in safe:
        assert char == "\n" or unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp")
    assert keep or "\n" not in safe
    assert make_safe(safe, keep_newlines=keep) == safe


def test_length_is_bounded_and_a_cut_is_marked() -> None:
    assert make_safe("x" * 30, limit=10) == "x" * 9 + "…"


def test_only_make_safe_makes_safe_text() -> None:
    made = re.compile(r"(?<![\w.])Safe\((?!\"[^\"]*\"\))")  # a literal is no outside text
    for path in SRC.rglob("*.py"):
        if path != SRC / "core" / "text.py":
            assert not made.search(path.read_text(encoding="utf-8")), path
