"""The cockpit from its first paint to a hung-up session, for the command line."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Sequence

from textual.theme import Theme

from specdash.core.clock import Clock
from specdash.core.ports import AskSecret, Decide
from specdash.core.text import Safe
from specdash.session.port import CockpitSession
from specdash.tui.app import CockpitApp, SaveText
from specdash.tui.decide import DialogDecide


async def run_cockpit(
    make_session: Callable[[Decide, AskSecret], CockpitSession],
    *,
    themes: Sequence[Theme],
    theme: str | None,
    clock: Clock,
    save_text: SaveText | None = None,
) -> Safe:
    """Open the cockpit on a session; returns when the operator left and the session is closed.

    Returns where a cycle that was cut short by leaving left the rig; "" where none was. Raises
    InternalError where the screen broke; the session is closed in order then, too.

    ``make_session`` gets the ports by which the session asks the operator. The session is not
    opened by the caller: the cockpit paints first and connects then.
    """
    decide = DialogDecide()
    session = make_session(decide, decide.ask_secret)
    app = CockpitApp(
        session, themes=themes, theme=theme, clock=clock, decide=decide, save_text=save_text
    )
    # What is loaded by now stays: a full collection over it would take half of what a key press
    # may take (25 ms of 50), again and again.
    gc.freeze()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, app.exit)
    try:
        await app.run_async()
    finally:
        decide.detach()
        if not app.session_closed:
            await app.close_session()
    if app.broken is not None:
        raise app.broken
    return app.parting
