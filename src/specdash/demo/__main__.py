"""A box to point commands at: ``python -m specdash.demo`` prints where it is and waits for Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from specdash.demo.box import start_box
from specdash.demo.faults import Fault, parse_faults


async def _stay(options: argparse.Namespace, faults: frozenset[Fault]) -> None:
    async with await start_box(
        steps=options.steps, speed=options.speed, seed=options.seed, faults=faults
    ) as box:
        sys.stdout.write(
            "SIMULATED rig in a box\n"
            f"rig         {box.rig_path}\n"
            f"ssh config  {box.ssh_config}\n"
            f"endpoint    {box.rig.engine.url}\n"
            f"faults      {box.root}/faults (names, one a line)\n"
            f"confined    {box.isolation}\n\n"
            f"specdash cycle {box.rig_path} -F {box.ssh_config} --steps 4\n"
            f"ssh -F {box.ssh_config} svc systemctl status {box.rig.service.unit}\n"
        )
        sys.stdout.flush()
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await stop.wait()


def main() -> None:
    """Parse, start, wait."""
    parser = argparse.ArgumentParser(
        prog="python -m specdash.demo",
        description="A simulated rig that stays up until Ctrl-C.",
        epilog="faults: " + ", ".join(fault.value for fault in Fault),
    )
    parser.add_argument("--steps", type=int, default=1, help="depth at first (0: off)")
    parser.add_argument("--speed", type=float, default=1.0, help="divides stop and load times")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", action="append", default=[], metavar="NAME")
    options = parser.parse_args()
    try:
        faults = parse_faults(options.fault)
    except ValueError as error:
        parser.error(str(error))
    asyncio.run(_stay(options, faults))


if __name__ == "__main__":
    main()
