"""Starting and ending a rig in a box from the outside."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from specdash.core.errors import WorkFailedError
from specdash.demo import layout
from specdash.demo.faults import Fault, FaultSwitch
from specdash.rig.schema import Rig

Isolation = Literal["auto", "namespace", "shims"]
READY_S = 30.0
CLOSE_S = 8.0
_UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
_UNSHARE_USER = ("unshare", "--user", "--map-root-user", *_UNSHARE[1:])


class BoxFailedError(WorkFailedError):
    """The rig in a box did not come up."""

    default_code = "box-failed"


@dataclass(slots=True)
class Box:
    """A running rig in a box. ``isolation`` says how it is confined.

    ``"namespace"``: a process and mount namespace of its own, in which nothing outside exists.
    ``"shims"``: its programs know no process but the box's own.
    """

    rig: Rig
    rig_path: Path
    ssh_config: Path
    root: Path
    isolation: Literal["namespace", "shims"]
    _process: asyncio.subprocess.Process = field(repr=False)

    def set_faults(self, *faults: Fault) -> None:
        """Replace the faults that are set; takes effect at once."""
        FaultSwitch(self.root).write(faults)

    async def close(self) -> None:
        """End the box and all it started, and remove its directory. May be called twice."""
        await _end(self._process)
        await asyncio.to_thread(shutil.rmtree, self.root, ignore_errors=True)

    async def __aenter__(self) -> Box:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


async def start_box(
    *,
    steps: int = 1,
    speed: float = 1.0,
    seed: int = 0,
    faults: Iterable[Fault] = (),
    isolation: Isolation | None = None,
    stopped: bool = False,
) -> Box:
    """Start a box as one child process; it ends with its parent whatever happens.

    ``steps``: the depth the service runs with at first (0: speculation off); it is found
    serving. ``speed`` divides the time that stop, release and load take from then on; tokens
    always stream in true time. ``isolation``: None takes the environment's
    SPECDASH_BOX_ISOLATION, else the best there is. ``stopped``: the service is not started.
    Raises BoxFailedError.
    """
    if steps < 0 or not speed > 0:
        raise ValueError("steps must be at least 0 and speed greater than 0")
    wish = isolation or os.environ.get("SPECDASH_BOX_ISOLATION") or "auto"
    prefix = await _namespace() if wish in ("auto", "namespace") else ()
    if wish == "namespace" and not prefix:
        raise BoxFailedError(
            "The box cannot have a namespace of its own here.",
            remedy="Use the isolation 'shims', or allow unprivileged user namespaces.",
        )
    root = Path(tempfile.mkdtemp(prefix="specdash-box-"))
    FaultSwitch(root).write(faults)
    argv = [
        *prefix,
        sys.executable,
        "-m",
        "specdash.demo.server",
        str(root),
        f"--steps={steps}",
        f"--speed={speed}",
        f"--seed={seed}",
        *(["--own-mounts"] if prefix else []),
        *(["--stopped"] if stopped else []),
    ]
    log = root / "server.log"
    try:
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                # A Ctrl-C is for whoever started the box, which then closes it in order.
                start_new_session=True,
            )
        port = await _ready(process, log)
    except BaseException:
        shutil.rmtree(root, ignore_errors=True)
        raise
    return Box(
        rig=layout.rig(root, port=port, speed=speed),
        rig_path=root / "demo.toml",
        ssh_config=root / "ssh_config",
        root=root,
        isolation="namespace" if prefix else "shims",
        _process=process,
    )


async def _ready(process: asyncio.subprocess.Process, log: Path) -> int:
    stdout = cast("asyncio.StreamReader", process.stdout)
    try:
        line = await asyncio.wait_for(stdout.readline(), READY_S)
        return int(json.loads(line)["port"])
    except (TimeoutError, ValueError, KeyError) as error:
        await _end(process)
        lines = _last_lines(log)
        raise BoxFailedError(
            "The rig in a box did not come up.",
            remedy="The lines below say why.",
            evidence=lines,
        ) from error
    except asyncio.CancelledError:
        await _end(process)
        raise


def _last_lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:]


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), CLOSE_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _namespace() -> tuple[str, ...]:
    """The command that gives a process a namespace of its own; () where there is none."""
    if not sys.platform.startswith("linux") or shutil.which("unshare") is None:
        return ()
    for prefix in (_UNSHARE, _UNSHARE_USER):
        probe = await asyncio.create_subprocess_exec(
            *prefix,
            "true",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        if await probe.wait() == 0:
            return prefix
    return ()
