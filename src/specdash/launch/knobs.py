"""How an engine's speculation flags are spelled: data for the editor, filled in by ``engines``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Field = Literal["algorithm", "num_steps", "eagle_topk", "num_draft_tokens", "draft_model"]


@dataclass(frozen=True, slots=True)
class Flag:
    """One setting: its current spelling, its other spellings, and the environment variables
    that set it where the flag is absent. ``prefixes``: argparse accepts unique prefixes."""

    field: Field
    name: str
    aliases: tuple[str, ...] = ()
    env: tuple[str, ...] = ()

    @property
    def spellings(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


@dataclass(frozen=True, slots=True)
class KnobTable:
    """All speculation flags of one engine.

    ``depth`` is the flag that holds k. ``extras`` are further speculation flags that belong to
    it and go when speculation is turned off; those of them in ``switches`` take no value.
    ``anchors`` are program words that show a command line is this engine's. ``prefix_matching``:
    the engine's parser takes unique prefixes. ``off_values``: values of a setting that mean off.
    ``config_flags`` name a file with more settings. ``remarks``: a flag, or a key of a JSON
    value, and what an operator has to know where it is given.
    """

    engine: str
    flags: tuple[Flag, ...]
    extras: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()
    prefix_matching: bool = False
    off_values: tuple[tuple[Field, str], ...] = ()
    config_flags: tuple[str, ...] = ()
    remarks: tuple[tuple[str, str], ...] = ()

    def flag(self, field: Field) -> Flag | None:
        """The flag of a field, if this engine has one."""
        return next((flag for flag in self.flags if flag.field == field), None)
