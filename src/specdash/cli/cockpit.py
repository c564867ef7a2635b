"""Open the cockpit on a rig: the session, the app, and the terminal between them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from specdash.cli.output import Out
from specdash.cli.resolve import opened_rig, user_places
from specdash.core.errors import EXIT_OK, UsageError
from specdash.hosts.ssh import SshOptions
from specdash.session.session import RigSession
from specdash.session.wiring import Wiring


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
    return asyncio.run(_run(word, ssh_config, speed, steps))


async def _run(word: str, ssh_config: Sequence[Path], speed: float, steps: int) -> int:
    from specdash.tui.dialogs.decide import DialogDecide
    from specdash.tui.run import run_cockpit

    where = user_places()
    async with opened_rig(word, ssh_config, speed=speed, steps=steps) as opened:
        decide = DialogDecide()
        wiring = Wiring(opened.rig, SshOptions(config_files=opened.ssh_config), os.environ)
        session = RigSession(wiring, decide=decide, places=where)
        await run_cockpit(session, decide=decide, user_themes=where.themes)
    return EXIT_OK
