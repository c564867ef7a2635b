"""The box's two inner sockets: calls of its small programs, and reports of its processes.

A program call is one connection: length-prefixed words in, frames out (``o`` stdout, ``e`` stderr,
``r`` become another program, ``x`` exit status); when the caller ends, its call is cancelled. A process
holds its connection as long as it lives, so that the box sees every death, also of orphans, at
once, and every process sees the box's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specdash.demo.machine import Machine, Proc
from specdash.demo.programs.call import Call, World
from specdash.demo.programs.table import PROGRAMS

CALLS_SOCKET = "c"
PROCESSES_SOCKET = "p"


class _Frames:
    """Output of a call as frames; waits where the caller reads slowly."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def out(self, text: str | bytes) -> None:
        await self._frame(b"o", text.encode() if isinstance(text, str) else text)

    async def err(self, text: str) -> None:
        await self._frame(b"e", text.encode())

    async def replace(self, path: str, cwd: str, argv: list[str]) -> None:
        await self._frame(b"r", b"\0".join(os.fsencode(word) for word in (path, cwd, *argv)))

    async def exit(self, status: int) -> None:
        await self._frame(b"x", str(status).encode())

    async def _frame(self, kind: bytes, body: bytes) -> None:
        if body:
            self._writer.write(kind + len(body).to_bytes(4, "big") + body)
            await self._writer.drain()


async def serve_calls(
    world: World, directory: Path, report: Callable[[str], None]
) -> asyncio.Server:
    """Listen for program calls; ``report`` gets the text of a program's own failure."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = _Frames(writer)
        try:
            size = int.from_bytes(await reader.readexactly(4), "big")
            words = [os.fsdecode(word) for word in (await reader.readexactly(size)).split(b"\0")]
            host, program, cwd, pid, *argv = words
            call = Call(world, host, program, argv, cwd, int(pid), frames)
            work = asyncio.create_task(PROGRAMS[program](call))
            left = asyncio.create_task(reader.read(1))
            try:
                await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    await frames.exit(work.result())
            finally:
                for task in (work, left):
                    task.cancel()
                await asyncio.gather(work, left, return_exceptions=True)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except Exception as error:  # noqa: BLE001 - a program of the box failed: its caller is told
            report(f"a program of the box failed: {error!r}")
            with contextlib.suppress(ConnectionError):
                await frames.err(f"the box failed: {error!r}\n")
                await frames.exit(70)
        finally:
            writer.close()

    return await asyncio.start_unix_server(handle, path=str(directory / CALLS_SOCKET))


async def serve_processes(machine: Machine, directory: Path) -> asyncio.Server:
    """Listen for processes: JSON lines in, an answer to those that ask."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine: set[int] = set()
        try:
            while line := await reader.readline():
                message = json.loads(line)
                answer = _process_message(machine, message, mine)
                if answer is not None:
                    writer.write(json.dumps(answer).encode() + b"\n")
                    await writer.drain()
        except (ConnectionError, ValueError):
            pass
        finally:
            for pid in mine:
                machine.gone(pid)
            writer.close()

    return await asyncio.start_unix_server(handle, path=str(directory / PROCESSES_SOCKET))


def _process_message(
    machine: Machine, message: dict[str, Any], mine: set[int]
) -> dict[str, object] | None:
    """``add`` and ``worker`` {pid, title, ...} report a process, ``alloc`` what some hold on GPUs,
    ``port``, ``ready`` and ``load`` what one does, ``leave`` that it left its unit; ``known`` and ``free`` ask."""
    kind, pid = message["op"], int(message.get("pid", 0))
    if kind in ("add", "worker"):
        unit = message.get("unit")
        if unit is None:
            parent = machine.get(int(message.get("ppid", 0)))
            unit = parent.unit if parent is not None else None
        known = machine.get(pid)
        if known is None:
            machine.add(
                Proc(
                    pid,
                    str(message["title"]),
                    ppid=int(message.get("ppid", 1)),
                    session=int(message.get("session", 0)),
                    uid=int(message.get("uid", 0)),
                    user=str(message.get("user", "root")),
                    unit=unit or None,
                )
            )
        mine.add(pid)
        # A worker's connection is its stdin: it is never written to.
        return {"ok": True} if kind == "add" else None
    if kind == "alloc":
        for holder, gpu, mib in message["held"]:
            if not machine.alloc(int(holder), int(gpu), int(mib)):
                free = machine.free_mib(int(gpu))
                return {"ok": False, "gpu": gpu, "mib": mib, "free_mib": free}
        return {"ok": True}
    if kind == "known":
        return {"ok": all(machine.get(int(one)) is not None for one in message["pids"])}
    if kind == "free":
        return {"free_mib": machine.free_mib(int(message["gpu"]))}
    proc = machine.get(pid)
    if kind == "load":
        machine.report_load([int(gpu) for gpu in message["gpus"]], float(message["load"]))
    elif proc is not None and kind == "port":
        proc.ports.add(int(message["port"]))
    elif proc is not None and kind == "ready":
        proc.ready = True
    elif proc is not None and kind == "leave":
        proc.unit = None
    return None
