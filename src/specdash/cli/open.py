"""Open a session for a headless verb and close it, whatever happens in between."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from specdash.cli.output import Out
from specdash.cli.resolve import opened_rig, user_places
from specdash.cli.secrets import secrets_at
from specdash.core.ports import Decide
from specdash.hosts.options import SshOptions
from specdash.session.session import RigSession
from specdash.session.wiring import Wiring


@asynccontextmanager
async def opened_session(
    args: argparse.Namespace, out: Out, decide: Decide, *, unattended: bool = False
) -> AsyncIterator[RigSession]:
    """A session on ``args.rig``. Streams are not started; ``session.open()`` does that."""
    speed = getattr(args, "speed", None) or 1.0
    async with opened_rig(args.rig, args.ssh_config, speed=speed) as opened:
        if opened.rig.simulated:
            out.say("SIMULATED: this is the rig in a box, not hardware.")
        options = SshOptions(config_files=opened.ssh_config, ask=secrets_at(out))
        wiring = Wiring(opened.rig, options, os.environ)
        session = RigSession(wiring, decide=decide, places=user_places(), unattended=unattended)
        try:
            yield session
        finally:
            await session.close()
