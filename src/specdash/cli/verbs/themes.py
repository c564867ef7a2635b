"""``specdash themes``: the themes that can be chosen, with where each one comes from."""

from __future__ import annotations

import argparse
import os

from specdash.cli.output import Out
from specdash.core.errors import EXIT_OK, EXIT_USAGE
from specdash.rig.store import places
from specdash.tui.themes import load_themes

HELP = "List the themes of the cockpit: name, dark or light, file. SPECDASH_THEME=NAME chooses one."
USES_SSH = False


def arguments(parser: argparse.ArgumentParser) -> None:
    """This verb takes nothing of its own."""


async def run(args: argparse.Namespace, out: Out) -> int:
    """List name, dark or light, and path. A theme file that is wrong: exit 2, the rest is listed."""
    themes = load_themes(places(os.environ).themes)
    rows = [
        (item.theme.name, "dark" if item.theme.dark else "light", item.path)
        for item in themes.found
    ]
    width = max((len(name) for name, _, _ in rows), default=0)
    for name, kind, path in rows:
        out.result(f"{name:<{width}}  {kind:<5}  {path}")
        out.line({"event": "theme", "name": name, "dark": kind == "dark", "path": path})
    for problem in themes.problems:
        out.say(f"specdash: {problem.message}")
        out.say(f"  {problem.remedy}")
    out.document(
        {
            "themes": [
                {"name": item.theme.name, "dark": item.theme.dark, "path": item.path}
                for item in themes.found
            ],
            "problems": [problem.to_json() for problem in themes.problems],
        }
    )
    return EXIT_USAGE if themes.problems else EXIT_OK
