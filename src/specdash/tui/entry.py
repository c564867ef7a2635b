"""A line to type into. What is pasted is made safe like all text from outside."""

from __future__ import annotations

from textual.widgets import Input

from specdash.core.text import make_safe


class Entry(Input):
    """An Input without a blinking cursor that holds no control sequence."""

    def __init__(
        self,
        value: str = "",
        *,
        placeholder: str = "",
        max_length: int = 200,
        id: str | None = None,  # noqa: A002
    ) -> None:
        super().__init__(
            make_safe(value),
            placeholder=placeholder,
            max_length=max_length,
            select_on_focus=False,
            id=id,
        )
        self.cursor_blink = False

    def validate_value(self, value: str) -> str:
        return make_safe(value)
