"""What the running engine is set to: its own word, and where it is silent its command line."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace

from specdash.core.errors import SpecdashError
from specdash.core.settings import Settings
from specdash.cycle.world import World
from specdash.engines.protocol import EngineInfo
from specdash.launch.reading import read_config


async def running_info(world: World, main_pid: int | None) -> EngineInfo:
    """What the engine says of itself, completed from the arguments of its main process.

    llama-server, for one, never says how deep it drafts; the arguments of the live process are
    the next best proof, and a better one than the file it was started from.
    """
    info = await world.engine.info(world.http)
    said = info.settings
    if main_pid is None or (said is not None and said.num_steps is not None):
        return info
    shown = await _from_command_line(world, main_pid)
    if shown is None or (said is not None and said.enabled != shown.enabled):
        return info
    merged = shown if said is None else _completed(said, shown)
    return replace(info, settings=merged, warnings=())


async def _from_command_line(world: World, pid: int) -> Settings | None:
    host = await world.hosts.get(world.rig.service.host)
    done = await host.run(["cat", f"/proc/{pid}/cmdline"])
    words = [word.decode("utf-8", "replace") for word in done.stdout.split(b"\0")[:-1]]
    if not done.ok or not words:
        return None
    try:
        reading = read_config("command.sh", shlex.join(words).encode(), world.engine.knobs)
    except SpecdashError:
        # A wrapper's arguments need not be the engine's; then there is nothing to add.
        return None
    return reading.settings


def _completed(said: Settings, shown: Settings) -> Settings:
    missing = {
        item.name: getattr(shown, item.name)
        for item in fields(Settings)
        if getattr(said, item.name) is None
    }
    return replace(said, **missing)
