"""Open the cockpit on a rig: the session, the app, and the terminal between them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from specdash.cli.output import Out
from specdash.cli.resolve import opened_rig, user_places
from specdash.core.clock import SystemClock
from specdash.core.errors import EXIT_OK, UsageError
from specdash.core.ports import AskSecret, Decide
from specdash.core.text import Safe, make_safe
from specdash.hosts.options import SshOptions
from specdash.session.session import RigSession
from specdash.session.wiring import Wiring
from specdash.tui.run import run_cockpit
from specdash.tui.themes import load_themes


def open_cockpit(
    word: str, ssh_config: Sequence[Path], out: Out, *, speed: float = 1.0, steps: int = 1
) -> int:
    """Run the cockpit until it is left. Raises UsageError without a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "The cockpit needs a terminal.",
            remedy="Use the headless verbs: `specdash cycle`, `specdash plan`, `specdash bench`.",
            code="no-terminal",
        )
    return asyncio.run(_run(word, ssh_config, out, speed, steps))


async def _run(word: str, ssh_config: Sequence[Path], out: Out, speed: float, steps: int) -> int:
    where = user_places()
    themes = load_themes(where.themes)
    for problem in themes.problems:
        out.say(f"{problem.message} {problem.remedy}")
    async with opened_rig(word, ssh_config, speed=speed, steps=steps) as opened:

        def make_session(decide: Decide, ask: AskSecret) -> RigSession:
            options = SshOptions(config_files=opened.ssh_config, ask=ask)
            wiring = Wiring(opened.rig, options, os.environ)
            return RigSession(wiring, decide=decide, places=where)

        async def save_text(name: str, text: str) -> Safe:
            return await asyncio.to_thread(_save, where.data / "exports" / name, text)

        parting = await run_cockpit(
            make_session,
            themes=[found.theme for found in themes.found],
            theme=os.environ.get("SPECDASH_THEME"),
            clock=SystemClock(),
            save_text=save_text,
        )
    if parting:
        out.say(f"specdash: {parting}")
    return EXIT_OK


def _save(path: Path, text: str) -> Safe:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return make_safe(str(path))
