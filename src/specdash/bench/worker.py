"""The measuring process: one JSON job a line on stdin, JSON lines on stdout, over at stdin's end.

It has its own event loop (uvloop's where that is installed), so that the screen and the
measurement do not disturb each other. Nothing secret is in its arguments or its environment, and
nothing but protocol lines reaches its stdout.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

from specdash.bench import codec
from specdash.bench.address import Route, parse_address
from specdash.bench.cellrun import CellRun, Endpoint
from specdash.bench.client import Client
from specdash.bench.detect import detect
from specdash.bench.protocol import Endpoint as Target
from specdash.bench.protocol import Identity, Workload
from specdash.bench.tunnel import local_port_of
from specdash.bench.wire import Recipe
from specdash.bench.workloads import PromptSet, load_prompts
from specdash.core.clock import Clock, SystemClock
from specdash.core.errors import SpecdashError, UnreachableError, UsageError
from specdash.core.events import CellProgress
from specdash.core.redact import Redactor

_BUFFERED = 256 * 1024
"""Beyond this many bytes nobody read, progress lines are left out."""


class Lines:
    """Protocol lines to a pipe, without ever waiting for its reader."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport

    def write(self, job: int, kind: str, body: object = None) -> None:
        if kind == "progress" and self._transport.get_write_buffer_size() > _BUFFERED:
            return
        self._transport.write(codec.dump_line({"id": job, "kind": kind, "body": body}))


class Worker:
    """Takes jobs, runs one cell at a time."""

    def __init__(self, lines: Lines, *, clock: Clock) -> None:
        self._lines = lines
        self._clock = clock
        self._stack = AsyncExitStack()
        self._target: Target | None = None
        self._workload = Workload()
        self._prompts: PromptSet | None = None
        self._endpoint: Endpoint | None = None
        self._client: Client | None = None
        self._redactor = Redactor()
        self._jobs: dict[int, asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()

    def take(self, line: bytes) -> None:
        """One line from stdin."""
        body = codec.load_line(line)
        job = int(body["id"])
        op = body["op"]
        if op == "open":
            self._target = codec.endpoint_from_wire(body["endpoint"])
            self._workload = codec.workload_from_wire(body["workload"])
            secrets = [*self._target.headers.values(), self._target.api_key or ""]
            if self._target.tunnel is not None:
                secrets += self._target.tunnel.secrets.values()
            self._redactor = Redactor(secrets)
        elif op == "cancel":
            task = self._jobs.get(job)
            if task is not None:
                task.cancel()
            else:
                self._lines.write(job, "cancelled")
        else:
            task = asyncio.create_task(self._run(job, str(op), body))
            self._jobs[job] = task
            task.add_done_callback(lambda done: self._over(job, done))

    async def close(self) -> None:
        """Cancel what runs and hang up."""
        for task in self._jobs.values():
            task.cancel()
        await asyncio.gather(*self._jobs.values(), return_exceptions=True)
        await self._stack.aclose()

    async def _run(self, job: int, op: str, body: dict[str, Any]) -> None:
        try:
            async with self._one_at_a_time:
                if op == "identify":
                    await self._identify(job)
                else:
                    await self._measure(job, body)
        except asyncio.CancelledError:
            self._lines.write(job, "cancelled")
            raise
        except SpecdashError as error:
            self._lines.write(job, "error", self._error(error))

    def _over(self, job: int, task: asyncio.Task[None]) -> None:
        """A job ended. One that broke on a fault of ours still gets its answer."""
        self._jobs.pop(job, None)
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            traceback.print_exception(fault, file=sys.stderr)
            message = f"the measuring process broke: {type(fault).__name__}: {fault}"
            self._lines.write(
                job,
                "error",
                {"class": "failed", "code": "internal", "message": self._redactor.text(message)},
            )

    async def _identify(self, job: int) -> None:
        _, identity = await self._known()
        self._lines.write(job, "identity", codec.identity_to_wire(identity))

    async def _measure(self, job: int, body: dict[str, Any]) -> None:
        concurrency = int(body["concurrency"])
        endpoint, _ = await self._known()
        prompts = self._prompts or load_prompts(self._workload.prompts)
        self._prompts = prompts
        self._lines.write(
            job, "started", {"concurrency": concurrency, "requests": self._workload.requests}
        )

        def report(progress: CellProgress) -> None:
            self._lines.write(job, "progress", codec.progress_to_wire(progress))

        run = CellRun(
            endpoint,
            self._workload,
            prompts,
            concurrency=concurrency,
            capacity=codec.capacity_from_wire(body["capacity"]),
            fresh=bool(body["fresh"]),
            round_=int(body["round"]),
            clock=self._clock,
            report=report,
        )
        outcome = await run.run()
        problems = {
            cause: self._redactor.text(example) for cause, example in outcome.problems.items()
        }
        self._lines.write(job, "measured", {"cell": outcome.cell.to_json(), "problems": problems})

    async def _known(self) -> tuple[Endpoint, Identity]:
        """The endpoint, asked what it is once."""
        target = self._target
        if target is None:
            raise UsageError("a job came before the endpoint was named", code="no-endpoint")
        client = await self._connected(target)
        if self._endpoint is None:
            found = await detect(client, dialect=target.dialect, model=target.model)
            route: Route = client.address.route or (
                "generate" if found.dialect == "sglang" else "chat"
            )
            self._endpoint = Endpoint(
                client=client,
                found=found,
                recipe=Recipe(
                    route=route,
                    dialect=found.dialect,
                    model=found.model,
                    temperature=self._workload.temperature,
                    ignore_eos=self._workload.ignore_eos,
                ),
            )
        found = self._endpoint.found
        return self._endpoint, Identity(client.address.shown, found.dialect, found.model)

    async def _connected(self, target: Target) -> Client:
        if self._client is None:
            address = parse_address(target.url)
            local_port: int | None = None
            if target.tunnel is not None:
                local_port = await local_port_of(target.tunnel, address, self._stack)
            self._client = await self._stack.enter_async_context(
                Client(
                    address,
                    api_key=target.api_key,
                    headers=target.headers,
                    stall_s=self._workload.stall_s,
                    now=self._clock.now,
                    local_port=local_port,
                )
            )
        return self._client

    def _error(self, error: SpecdashError) -> dict[str, object]:
        kind = "failed"
        if isinstance(error, UnreachableError):
            kind = "unreachable"
        elif isinstance(error, UsageError):
            kind = "usage"
        return {
            "class": kind,
            "code": error.code,
            "message": self._redactor.text(error.message),
            "remedy": self._redactor.text(error.remedy),
            "evidence": [self._redactor.text(line) for line in error.evidence],
        }


async def serve(stdin: int, stdout: int) -> None:
    """Serve jobs until stdin ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(stdin, "rb", 0)
    )
    transport, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(stdout, "wb", 0))
    worker = Worker(Lines(transport), clock=SystemClock())
    try:
        while line := await reader.readline():
            worker.take(line)
    finally:
        await worker.close()
        transport.close()


def main() -> None:
    """``python -m specdash.bench.worker``"""
    # The operator's Ctrl-C is for the process that started this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stdin, stdout = os.dup(0), os.dup(1)
    with suppress(ValueError, OSError):
        # Each request is a connection; the soft limit is often 1024.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # A stray print of any library must not garble the lines, nor a stray read eat a job.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        runner.run(serve(stdin, stdout))


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


if __name__ == "__main__":
    main()
    sys.exit(0)
