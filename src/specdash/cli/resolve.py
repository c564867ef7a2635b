"""Which rig a word of the command line means. Nothing is contacted here."""

from __future__ import annotations

import difflib
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from specdash.core.errors import UsageError
from specdash.rig.load import load_rig
from specdash.rig.schema import Rig
from specdash.rig.store import Places, find_rig, is_file, places, rig_files

DEMO = "demo"


@dataclass(frozen=True, slots=True)
class OpenedRig:
    """A rig and the ssh config files that go with it (None: the user's own)."""

    rig: Rig
    ssh_config: tuple[Path, ...] | None


def user_places() -> Places:
    """The directories of the user who runs specdash."""
    return places(os.environ)


def rig_named(word: str, where: Places) -> Rig:
    """A rig by its name in the rigs directory, or by the path of its file.

    Raises UsageError (exit 2) with the nearest rig where there is none.
    """
    path = find_rig(word, where.rigs)
    if path is None and (word.endswith(".toml") or "/" in word or is_file(Path(word))):
        path = Path(word)
    if path is None:
        raise unknown_rig(word, where)
    return load_rig(path)


def unknown_rig(word: str, where: Places, verbs: Sequence[str] = ()) -> UsageError:
    """The error of a word that is no rig (and no verb), with the nearest one."""
    known = [path.stem for path in rig_files(where.rigs)]
    near = difflib.get_close_matches(word, [*verbs, *known, DEMO], n=1)
    kind = "verb, rig or path" if verbs else "rig"
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return UsageError(
        f"No {kind} is called {word!r}.",
        remedy=f"{hint}Rigs: {', '.join(known) or 'none'}; they live in {where.rigs}.",
        code="unknown-rig",
    )


@asynccontextmanager
async def opened_rig(
    word: str,
    ssh_config: Sequence[Path] | None,
    *,
    speed: float = 1.0,
    steps: int = 1,
) -> AsyncIterator[OpenedRig]:
    """The rig a verb works on; ``demo`` is a fresh rig in a box for as long as this lasts."""
    given = tuple(ssh_config) if ssh_config else None
    for path in given or ():
        if not path.is_file():
            raise UsageError(f"{path}: no such ssh config file.", code="ssh-config")
    if word != DEMO:
        yield OpenedRig(rig_named(word, user_places()), given)
        return
    from specdash.demo.box import start_box

    box = await start_box(steps=steps, speed=speed)
    try:
        yield OpenedRig(replace(box.rig, simulated=True), (box.ssh_config,))
    finally:
        await box.close()


def default_rig(where: Places) -> str:
    """The rig of ``specdash`` alone: ``default.toml``, or the only one there is.

    Raises UsageError where there is none or a choice to make.
    """
    known = [path.stem for path in rig_files(where.rigs)]
    if "default" in known:
        return "default"
    if len(known) == 1:
        return known[0]
    if not known:
        raise UsageError(
            f"No rig is configured in {where.rigs}.",
            remedy="Try `specdash demo` first; the README shows a rig file to start from.",
            code="no-rig",
        )
    raise UsageError(
        f"Which rig? There are {', '.join(known)}.",
        remedy="Name one: `specdash RIG`; `default.toml` would be opened without a name.",
        code="which-rig",
    )
