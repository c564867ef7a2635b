"""Random launch configs whose meaning is known, because they are made from it.

A :class:`Layout` is how a file is written; rendering the same layout with other numbers gives the
exact bytes an edit has to produce.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from specdash.core.settings import Settings

EXAMPLES = int(os.environ.get("SPECDASH_EXAMPLES", "120"))

SPELLINGS = {
    "algorithm": ("--speculative-algorithm", "--speculative-algo"),
    "num_steps": ("--speculative-num-steps", "--speculative-num-st"),
    "eagle_topk": ("--speculative-eagle-topk",),
    "num_draft_tokens": ("--speculative-num-draft-tokens", "--speculative-num-draft"),
    "draft_model": ("--speculative-draft-model-path", "--speculative-draft-model"),
}
NUMBERS = ("num_steps", "eagle_topk", "num_draft_tokens")
NOISE = (
    "--trust-remote-code",
    "--tp",
    "8",
    "--model-path=/srv/models/qwen 3",
    "--served-model-name",
    "größe-模型",
    "--host",
    "0.0.0.0",
    "--chat-template",
    "/srv/o'brien.jinja",
    '--json={"a": "b\\c"}',
    "--num-speculative",
    "3",
    "#",
    "100%",
    "a;b",
    "$HOME",
    "",
)


@dataclass(frozen=True)
class Item:
    """One argument: its text, how it is quoted, what separates it from the one before."""

    text: str
    quote: str = "plain"
    gap: int = 0
    field: str = ""
    equals: bool = False


@dataclass(frozen=True)
class Layout:
    """A whole file in pieces."""

    form: str
    items: tuple[Item, ...]
    eol: str = "\n"
    bom: bool = False
    final_eol: bool = True
    head: int = 0
    variable: str = ""  # field whose value is in a variable

    def with_numbers(self, numbers: dict[str, int]) -> Layout:
        return replace(
            self,
            items=tuple(
                replace(item, text=_value_text(item, str(numbers[item.field])))
                if item.field in numbers
                else item
                for item in self.items
            ),
        )

    @property
    def arguments(self) -> list[str]:
        return [item.text for item in self.items]

    def settings(self) -> Settings:
        values: dict[str, str] = {}
        for item in self.items:
            if item.field:
                values[item.field] = item.text.partition("=")[2] if item.equals else item.text
        numbers = {name: int(values[name]) for name in NUMBERS if name in values}
        return Settings(
            algorithm=values.get("algorithm"),
            draft_model=values.get("draft_model"),
            enabled=True,
            **numbers,
        )


def _value_text(item: Item, value: str) -> str:
    return f"{item.text.partition('=')[0]}={value}" if item.equals else value


# -- systemd ---------------------------------------------------------------------------------

_UNIT_HEADS = (
    "[Unit]\nDescription=An engine\n\n[Service]\nType=simple\n",
    "# a comment \\\n; another\n[Service]\nExecStart=/bin/false --speculative-num-steps 9\nExecStart=\n",
    '[Service]\nEnvironment=A=b "C=d e"\n#ExecStart=/x --speculative-num-steps 7\n',
    "[Service]\nUser = engine\n[X-Other]\nExecStart=/y --speculative-num-steps 8\n[Service]\n",
)
_UNIT_GAPS = (
    " ",
    "  ",
    " \\\n",
    " \\\n    ",
    " \\\n\t",
    " \\\n  # off: --speculative-num-steps 5\n  ",
    " \\\n; x\n",
)


def unit_word(text: str, quote: str) -> str:
    """A word in systemd's quoting that means ``text``."""
    escaped = text.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    if quote == "single":
        return "'" + escaped.replace("'", "\\'") + "'"
    if quote == "double" or not text or text in ("#", ";") or any(c in text for c in " '\"\t"):
        return '"' + escaped.replace('"', '\\"') + '"'
    return escaped


def render_unit(layout: Layout) -> str:
    text = _UNIT_HEADS[layout.head % len(_UNIT_HEADS)]
    line = "ExecStart = /opt/venv/bin/python3 -m sglang.launch_server"
    environment = ""
    for item in layout.items:
        word = unit_word(item.text, item.quote)
        if layout.variable and item.field == layout.variable:
            flag, value = item.text.partition("=")[::2] if item.equals else ("", item.text)
            environment = f'Environment="SPEC_VALUE={value}" OTHER=1\n'
            word = f"{flag}=${{SPEC_VALUE}}" if item.equals else "${SPEC_VALUE}"
        line += _UNIT_GAPS[item.gap % len(_UNIT_GAPS)] + word
    return text + environment + line + "\nRestart=always\n\n[Install]\nWantedBy=x.target"


# -- environment file ------------------------------------------------------------------------


def render_env(layout: Layout) -> str:
    """All arguments in one double-quoted variable, as systemd would split it."""
    words = []
    for item in layout.items:
        text = item.text
        if not text or any(c in text for c in " '\"\\\t"):
            inner = text.replace("\\", "\\\\").replace('"', '\\"')
            words.append('"' + inner + '"')
        else:
            words.append(text)
    body = " ".join(words)
    quoted = body.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    head = ("# engine\n", "PORT=30000\n; old: SPEC=--speculative-num-steps 9\n", "")[
        layout.head % 3
    ]
    return f'{head}MODEL=/m\nENGINE_ARGS="{quoted}"\nLAST=1'


# -- shell -----------------------------------------------------------------------------------

_SHELL_GAPS = (" ", "  ", " \\\n", " \\\n    ", " \\\n\t")
_SHELL_HEADS = (
    "#!/bin/bash\nset -euo pipefail\n",
    '#!/bin/sh\n# --speculative-num-steps 9\necho "--speculative-num-steps 8" >/dev/null\n',
    "#!/usr/bin/env bash\ncat >/dev/null <<'EOT'\n--speculative-num-steps 7 \"\nEOT\n",
    '#!/bin/sh\nif [ -n "${DEBUG:-}" ]; then set -x; fi\ncase x in a|b) : ;; *) : ;; esac\n',
    "#!/bin/sh\nunused() { echo --speculative-num-steps; }\nPORT=30000; export PORT\n",
)


def shell_word(text: str, quote: str) -> str:
    """A word in a shell's quoting that means ``text``."""
    if quote == "double":
        inner = text
        for char in '\\"$`':
            inner = inner.replace(char, "\\" + char)
        return f'"{inner}"'
    if quote == "plain" and text and all(c.isalnum() or c in "-_./=" for c in text):
        return text
    if quote == "escaped" and text and text.isascii():
        return "".join(c if c.isalnum() or c in "-_./=" else "\\" + c for c in text)
    return "'" + text.replace("'", "'\\''") + "'"


def render_shell(layout: Layout) -> str:
    text = _SHELL_HEADS[layout.head % len(_SHELL_HEADS)]
    line = "exec python3 -m sglang.launch_server"
    for item in layout.items:
        word = shell_word(item.text, item.quote)
        if layout.variable and item.field == layout.variable:
            flag, value = item.text.partition("=")[::2] if item.equals else ("", item.text)
            text += f"SPEC_VALUE=${{SPEC_VALUE:-{value}}}  # 3\n"
            word = f'{flag}="$SPEC_VALUE"' if item.equals else '"${SPEC_VALUE}"'
        line += _SHELL_GAPS[item.gap % len(_SHELL_GAPS)] + word
    return f"{text}{line}"


def render_array(layout: Layout) -> str:
    """Arguments in a bash array, some lines with a comment."""
    text = "#!/bin/bash\nARGS=(\n"
    for number, item in enumerate(layout.items):
        text += "  " + shell_word(item.text, item.quote)
        text += ("\n", " ", "  # --speculative-num-steps 4\n")[item.gap % 3]
        if number == len(layout.items) - 1:
            text += "\n"
    return text + ')\nexec python3 -m sglang.launch_server "${ARGS[@]}"'


RENDERERS = {
    "unit": render_unit,
    "env": render_env,
    "shell": render_shell,
    "array": render_array,
}


def render(layout: Layout) -> bytes:
    text = RENDERERS[layout.form](layout)
    if layout.final_eol:
        text += "\n"
    text = text.replace("\n", layout.eol)
    return ("\ufeff" + text if layout.bom else text).encode("utf-8")


PATHS = {"unit": "x.service", "env": "x.env", "shell": "x.sh", "array": "x.sh"}


@st.composite
def layouts(draw: st.DrawFn, forms: tuple[str, ...] = tuple(RENDERERS)) -> Layout:
    """A random file that sets algorithm, steps, topk and draft tokens."""
    form = draw(st.sampled_from(forms))
    quotes = st.sampled_from(("plain", "single", "double", "escaped"))
    gaps = st.integers(0, 6)
    items: list[Item] = []

    def noise(count: int) -> None:
        texts = draw(st.lists(st.sampled_from(NOISE), max_size=count))
        items.extend([Item(text, draw(quotes), draw(gaps)) for text in texts])

    fields = ["algorithm", *NUMBERS]
    if draw(st.booleans()):
        fields.append("draft_model")
    fields = list(draw(st.permutations(fields)))
    if draw(st.booleans()):
        fields.insert(0, "num_steps")  # given twice: the last counts
    noise(3)
    for name in fields:
        # A value that a flag of the noise would swallow must not be a flag of ours.
        spelling = draw(st.sampled_from(SPELLINGS[name]))
        value = {"algorithm": "EAGLE3", "draft_model": "/srv/draft"}.get(name) or str(
            draw(st.integers(1, 64))
        )
        if draw(st.booleans()):
            items.append(Item(f"{spelling}={value}", draw(quotes), draw(gaps), name, True))
        else:
            items.append(Item(spelling, draw(quotes), draw(gaps)))
            items.append(Item(value, draw(quotes), draw(gaps), name))
        noise(2)
    plain_lines = form in ("env", "array", "shell")
    variable = "eagle_topk" if form in ("unit", "shell") and draw(st.booleans()) else ""
    head = draw(st.integers(0, 11)) if plain_lines or form == "unit" else 0
    # systemd takes no comment for one that stands right after a byte order mark.
    marked = form in ("unit", "env") and not (form == "unit" and head % 4 == 1)
    return Layout(
        form,
        tuple(items),
        eol=draw(st.sampled_from(("\n", "\r\n"))) if form in ("unit", "env") else "\n",
        bom=marked and draw(st.booleans()),
        final_eol=draw(st.booleans()),
        head=head,
        variable=variable,
    )
