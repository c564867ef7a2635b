"""A figure in large digits, three rows high, for what is read from across the room."""

from __future__ import annotations

_GLYPHS: dict[str, tuple[str, str, str]] = {
    "0": ("█▀█", "█ █", "▀▀▀"),
    "1": ("▀█ ", " █ ", "▀▀▀"),
    "2": ("▀▀█", "█▀▀", "▀▀▀"),
    "3": ("▀▀█", " ▀█", "▀▀▀"),
    "4": ("█ █", "▀▀█", "  ▀"),
    "5": ("█▀▀", "▀▀█", "▀▀▀"),
    "6": ("█▀▀", "█▀█", "▀▀▀"),
    "7": ("▀▀█", "  █", "  ▀"),
    "8": ("█▀█", "█▀█", "▀▀▀"),
    "9": ("█▀█", "▀▀█", "▀▀▀"),
    ".": (" ", " ", "▀"),
    "-": ("   ", "▀▀▀", "   "),
    " ": ("  ", "  ", "  "),
}


def large(text: str) -> list[str]:
    """Three rows that spell ``text`` (digits, point, minus, blank; anything else is left out)."""
    glyphs = [_GLYPHS[char] for char in text if char in _GLYPHS]
    return [" ".join(glyph[row] for glyph in glyphs) for row in range(3)]
