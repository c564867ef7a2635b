"""Prompts: the built-in sets and a user's files, their order, and the salt that keeps every
request's prefix unlike any other's.

Order and salt depend on the prompts, the seed, the cell's concurrency and the pass, never on
the candidate or the time: every candidate gets byte-identical requests in the same order, and
no prefix is sent twice in one engine's life.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from specdash.core.errors import UsageError, WorkFailedError

Kind = Literal["mixed", "chat", "code", "maths", "summary"]
KINDS: tuple[Kind, ...] = ("mixed", "chat", "code", "maths", "summary")
_FILES: tuple[str, ...] = ("chat", "code", "maths", "summary")

# A line of its own between two prompts of a built-in set.
_SEPARATOR = "%%"
_MAX_FILE_BYTES = 256 * 1024 * 1024

Message = tuple[str, str]
"""Role and content."""

_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "system": "system",
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation up to the turn the model is to write."""

    messages: tuple[Message, ...]

    @property
    def text(self) -> str:
        """For routes that take plain text."""
        return "\n\n".join(content for _, content in self.messages)

    def salted(self, salt: str) -> Prompt:
        """With ``salt`` as the first thing said, so that no cached prefix fits."""
        (role, content), *rest = self.messages
        return replace(self, messages=((role, f"[{salt}] {content}"), *rest))


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts in the order of their file. ``digest`` stands for their bytes."""

    name: str
    prompts: tuple[Prompt, ...]
    digest: str = field(default="")

    def ordered(self, *, seed: int, concurrency: int, round_: int = 0) -> Iterator[Prompt]:
        """Endless: pass after pass over all prompts, each pass in an order of its own, each
        prompt with a salt of its own. ``round_`` counts the cells of this concurrency."""
        number = 0
        while True:
            for place in self._order(seed, number):
                salt = _hash(
                    "salt", self.digest, seed, concurrency, round_, number, place, size=4
                ).hex()
                yield self.prompts[place].salted(salt)
            number += 1

    def warm_up(self, *, seed: int, concurrency: int, round_: int = 0) -> Iterator[Prompt]:
        """Endless prompts to be left out of the measurement, unlike the measured ones."""
        number = 0
        while True:
            for place in self._order(seed, number):
                salt = _hash(
                    "warm-up", self.digest, seed, concurrency, round_, number, place, size=4
                ).hex()
                yield self.prompts[place].salted(salt)
            number += 1

    def _order(self, seed: int, number: int) -> list[int]:
        return sorted(
            range(len(self.prompts)),
            key=lambda place: _hash("order", self.digest, seed, number, place),
        )


def load_prompts(name: str) -> PromptSet:
    """A built-in kind, else a file.

    ``.jsonl`` holds a line each, ``.json`` a list, of strings or objects with ``prompt``,
    ``messages``, ``text``, ``conversations`` (ShareGPT), ``turns`` or ``question``; any other
    file is plain text: blocks between blank lines, or with none of these a prompt a line.
    Raises UsageError where ``name`` is neither, WorkFailedError where the file cannot be used.
    """
    if name in KINDS:
        return _built_in(name)
    path = Path(name).expanduser()
    try:
        if not path.is_file():
            raise UsageError(
                f"--prompts: {name!r} is neither a built-in kind nor a file",
                remedy=f"Kinds: {', '.join(KINDS)}.",
                code="no-prompts",
            )
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise WorkFailedError(
                f"{name}: larger than {_MAX_FILE_BYTES // 2**20} MiB", code="prompts-unreadable"
            )
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        raise WorkFailedError(
            f"{name}: the prompts cannot be read: {error}", code="prompts-unreadable"
        ) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WorkFailedError(
            f"{name}: not UTF-8 at byte {error.start}", code="prompts-unreadable"
        ) from error
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        prompts = _from_jsonl(name, text)
    elif suffix == ".json":
        prompts = _from_json(name, text)
    else:
        prompts = _from_text(text)
    if not prompts:
        raise WorkFailedError(
            f"{name}: holds no prompt",
            remedy="A JSONL line needs prompt, messages, text or conversations.",
            code="prompts-unreadable",
        )
    return _set(path.name, prompts)


def _built_in(name: str) -> PromptSet:
    if name != "mixed":
        return _set(name, _read_kind(name))
    kinds = [_read_kind(kind) for kind in _FILES]
    return _set(name, [prompt for row in zip(*kinds, strict=False) for prompt in row])


def _read_kind(kind: str) -> list[Prompt]:
    text = resources.files(__package__).joinpath("prompts", f"{kind}.txt").read_text("utf-8")
    blocks = text.split(f"\n{_SEPARATOR}\n")
    return [_plain(block) for block in blocks if block.strip()]


def _set(name: str, prompts: Sequence[Prompt]) -> PromptSet:
    digest = _hash(*(part for prompt in prompts for part in prompt.messages), size=16).hex()
    return PromptSet(name, tuple(prompts), digest)


def _hash(*parts: object, size: int = 8) -> bytes:
    # Each part is framed by repr, so that no two lists of parts give the same bytes.
    return blake2b(repr(parts).encode("utf-8", "backslashreplace"), digest_size=size).digest()


def _plain(text: str) -> Prompt:
    return Prompt((("user", text.strip()),))


def _from_text(text: str) -> list[Prompt]:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n").split("\n")
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    full = [block for block in blocks if block]
    if len(full) > 1:
        return [_plain("\n".join(block)) for block in full]
    return [_plain(line) for block in full for line in block]


def _from_jsonl(name: str, text: str) -> list[Prompt]:
    prompts: list[Prompt] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            body = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise WorkFailedError(
                f"{name}, line {number}: not JSON: {error}", code="prompts-unreadable"
            ) from error
        prompts.append(_from_object(f"{name}, line {number}", body))
    return prompts


def _from_json(name: str, text: str) -> list[Prompt]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WorkFailedError(f"{name}: not JSON: {error}", code="prompts-unreadable") from error
    if not isinstance(body, list):
        raise WorkFailedError(f"{name}: not a list of prompts", code="prompts-unreadable")
    return [_from_object(f"{name}, item {place}", item) for place, item in enumerate(body, 1)]


def _from_object(where: str, body: object) -> Prompt:
    if isinstance(body, str) and body.strip():
        return _plain(body)
    if isinstance(body, dict):
        for key in ("messages", "conversations", "conversation"):
            turns = body.get(key)
            if isinstance(turns, list):
                messages = _turns(turns)
                if messages:
                    return Prompt(messages)
        for key in ("prompt", "text", "question", "instruction", "turns"):
            value = body.get(key)
            if isinstance(value, list):
                if value and all(isinstance(item, dict) for item in value):
                    messages = _turns(value)
                    if messages:
                        return Prompt(messages)
                value = value[0] if value else None
            if isinstance(value, str) and value.strip():
                return _plain(value)
    raise WorkFailedError(
        f"{where}: no prompt in it",
        remedy="Needs prompt, messages, text or conversations.",
        code="prompts-unreadable",
    )


def _turns(turns: Sequence[Any]) -> tuple[Message, ...]:
    """Turns up to the last one before an answer; () where there is nothing to answer."""
    messages: list[Message] = []
    for turn in turns:
        if not isinstance(turn, dict):
            continue
        said = turn.get("role", turn.get("from"))
        role = _ROLES.get(said.lower() if isinstance(said, str) else "")
        content = _content(turn.get("content", turn.get("value")))
        if role is None or not content.strip():
            continue
        messages.append((role, content))
    while messages and messages[-1][0] != "user":
        messages.pop()
    if messages and any("from" in turn for turn in turns if isinstance(turn, dict)):
        # ShareGPT holds whole talks; its first question is the prompt, as others take it.
        first = next(place for place, (role, _) in enumerate(messages) if role == "user")
        messages = messages[: first + 1]
    return tuple(messages)


def _content(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        parts = [part.get("text") for part in value if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return ""
