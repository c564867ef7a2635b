"""``specdash demo``: the cockpit on the rig in a box."""

from __future__ import annotations

import argparse

from specdash.cli.cockpit import open_cockpit
from specdash.cli.output import Out
from specdash.cli.resolve import DEMO
from specdash.cli.values import seconds, whole

HELP = "Open the cockpit on the rig in a box. Everything it shows is SIMULATED."
USES_SSH = False
OWNS_LOOP = True


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--speed",
        metavar="X",
        type=seconds,
        default=1.0,
        help="stop, release and load X times as fast; tokens stream in true time",
    )
    parser.add_argument(
        "--steps",
        metavar="N",
        type=whole(0, 64),
        default=1,
        help="the depth it begins with (default 1)",
    )


def run(args: argparse.Namespace, out: Out) -> int:
    return open_cockpit(DEMO, args.ssh_config or (), out, speed=args.speed, steps=args.steps)
