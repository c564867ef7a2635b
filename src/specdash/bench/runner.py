"""The measuring process as seen from outside: spawned, spoken to in lines, ended.

Whatever the process does (dies, hangs, writes nonsense) the reader of :meth:`WorkerBench.measure`
gets exactly one CellMeasured, and the next cell gets a new process.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from specdash.bench.codec import (
    GarbledError,
    dump_line,
    endpoint_to_wire,
    event_from_wire,
    identity_from_wire,
    load_line,
    workload_to_wire,
)
from specdash.bench.protocol import BenchEvent, Endpoint, Identity, Workload
from specdash.core.clock import Clock
from specdash.core.errors import SpecdashError, UnreachableError, UsageError, WorkFailedError
from specdash.core.events import CellMeasured
from specdash.core.records import Cell, RequestCounts
from specdash.core.redact import Redactor
from specdash.core.settings import Capacity

# -P keeps the current directory off the module path: a file of the user's named like a
# module must not be run.
WORKER_ARGV: tuple[str, ...] = (sys.executable, "-P", "-m", "specdash.bench.worker")

_LINE_LIMIT = 64 * 1024 * 1024
_CANCEL_S = 5.0
_END_S = 3.0


class WorkerLostError(WorkFailedError):
    """The measuring process died or wrote nonsense."""

    default_code = "worker-died"


@asynccontextmanager
async def open_bench(
    endpoint: Endpoint,
    workload: Workload,
    *,
    clock: Clock,
    argv: Sequence[str] = WORKER_ARGV,
) -> AsyncIterator[WorkerBench]:
    """Start a measuring process; leaving the context ends it and drops its connections.

    It may be opened before the endpoint answers: nothing is contacted until ``identify`` or
    ``measure``. ``argv`` is the process to start (tests give a broken one).
    """
    bench = WorkerBench(endpoint, workload, clock=clock, argv=argv)
    await bench.start()
    try:
        yield bench
    finally:
        await bench.close()


class WorkerBench:
    """A :class:`specdash.bench.protocol.Bench` in another process."""

    def __init__(
        self, endpoint: Endpoint, workload: Workload, *, clock: Clock, argv: Sequence[str]
    ) -> None:
        self._endpoint = endpoint
        self._workload = workload
        self._clock = clock
        self._argv = tuple(argv)
        secrets = [*endpoint.headers.values(), endpoint.api_key or ""]
        if endpoint.tunnel is not None:
            secrets += endpoint.tunnel.secrets.values()
        self._redactor = Redactor(secrets)
        self._worker: _Worker | None = None
        self._job = 0
        self._rounds: dict[int, int] = {}
        self.problems: dict[str, str] = {}
        """Cause -> one example in words, of the requests that failed so far."""

    async def start(self) -> None:
        """Spawn the process without waiting for it; its start-up hides behind other work."""
        await self._ready_worker()

    async def identify(self) -> Identity:
        """Find the engine and the model. Raises UnreachableError where nothing answers,
        WorkerLostError where the measuring process dies."""
        worker = await self._ready_worker()
        inbox = worker.submit(self._next_job(), {"op": "identify"})
        while True:
            message = await inbox.get()
            if message.kind == "identity":
                try:
                    return identity_from_wire(message.body)
                except GarbledError as error:
                    await self._drop_worker()
                    raise WorkerLostError(
                        f"the measuring process answered nonsense: {error}", code="worker-garbled"
                    ) from error
            if message.kind == "lost":
                raise self._lost(worker, message)
            if message.kind == "error":
                raise self._error_from(message.body)

    async def measure(
        self, concurrency: int, *, capacity: Capacity = Capacity(), fresh: bool = True
    ) -> AsyncGenerator[BenchEvent, None]:
        """One cell; see the protocol. Measuring the same concurrency again goes on with new
        passes over the prompts, so that no prefix is sent twice."""
        job = self._next_job()
        passes = self._rounds.get(concurrency, 0)
        self._rounds[concurrency] = passes + 1
        try:
            worker = await self._ready_worker()
        except WorkerLostError as unstarted:
            self.problems[unstarted.code] = unstarted.message
            yield self._failed(concurrency, unstarted.code, fresh)
            return
        inbox = worker.submit(
            job,
            {
                "op": "measure",
                "concurrency": concurrency,
                "capacity": capacity.to_json(),
                "fresh": fresh,
                "round": passes,
            },
        )
        over = False
        try:
            while not over:
                message = await inbox.get()
                if message.kind == "lost":
                    error = self._lost(worker, message)
                    self.problems[error.code] = "\n".join([error.message, *error.evidence[-3:]])
                    over = True
                    yield self._failed(concurrency, error.code, fresh)
                    return
                if message.kind == "error":
                    failure = self._error_from(message.body)
                    self.problems[failure.code] = failure.message
                    over = True
                    yield self._failed(concurrency, failure.code, fresh)
                    return
                try:
                    event = event_from_wire(message.kind, message.body, self._clock.wall())
                except GarbledError as garbled:
                    await self._drop_worker()
                    self.problems["worker-garbled"] = str(garbled)
                    over = True
                    yield self._failed(concurrency, "worker-garbled", fresh)
                    return
                if isinstance(event, CellMeasured):
                    self._keep_problems(message.body)
                    over = True
                yield event
        finally:
            worker.forget(job)
            if not over and not await worker.cancel(job):
                await self._drop_worker()

    async def close(self) -> None:
        """End the process; may be called twice."""
        await self._drop_worker()

    def _next_job(self) -> int:
        self._job += 1
        return self._job

    async def _ready_worker(self) -> _Worker:
        if self._worker is not None and not self._worker.lost:
            return self._worker
        await self._drop_worker()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_LINE_LIMIT,
                # The key goes over the pipe; the process needs no variable that holds it.
                env={k: v for k, v in os.environ.items() if v != self._endpoint.api_key},
                # Ctrl-C at the terminal is for specdash, which then ends its worker.
                start_new_session=True,
            )
        except OSError as error:
            raise WorkerLostError(
                f"the measuring process cannot be started: {error}", code="worker-start"
            ) from error
        self._worker = _Worker(process)
        self._worker.send(
            {
                "op": "open",
                "id": 0,
                "endpoint": endpoint_to_wire(self._endpoint),
                "workload": workload_to_wire(self._workload),
            }
        )
        return self._worker

    async def _drop_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.end()

    def _lost(self, worker: _Worker, message: _Message) -> WorkerLostError:
        return WorkerLostError(
            f"the measuring process {message.body}",
            code="worker-garbled" if message.garbled else "worker-died",
            remedy="The other cells stand; measure this one again.",
            evidence=[self._redactor.text(line) for line in worker.last_words],
        )

    def _error_from(self, body: object) -> SpecdashError:
        where: dict[str, Any] = body if isinstance(body, dict) else {}
        kinds: dict[object, type[SpecdashError]] = {
            "unreachable": UnreachableError,
            "usage": UsageError,
        }
        kind = kinds.get(where.get("class"), WorkFailedError)
        return kind(
            self._redactor.text(str(where.get("message", "the measuring process failed"))),
            remedy=self._redactor.text(str(where.get("remedy", ""))),
            code=str(where["code"]) if where.get("code") else None,
            evidence=[self._redactor.text(str(line)) for line in where.get("evidence") or []],
        )

    def _keep_problems(self, body: object) -> None:
        problems = body.get("problems") if isinstance(body, dict) else None
        if isinstance(problems, dict):
            for cause, example in problems.items():
                self.problems[str(cause)] = self._redactor.text(str(example))

    def _failed(self, concurrency: int, cause: str, fresh: bool) -> CellMeasured:
        return CellMeasured(
            t=self._clock.wall(),
            cell=Cell(
                concurrency=concurrency,
                requests=RequestCounts(ok=0, failed=1, errors={cause: 1}),
                flags=("failed",) if fresh else ("failed", "not-fresh"),
            ),
        )


class _Message:
    """One line from the process, or the news of its end (kind ``lost``)."""

    __slots__ = ("body", "garbled", "kind")

    def __init__(self, kind: str, body: object, *, garbled: bool = False) -> None:
        self.kind = kind
        self.body = body
        self.garbled = garbled


class _Inbox:
    """Messages of one job. A progress nobody fetched yet is replaced by the next."""

    def __init__(self) -> None:
        self._waiting: deque[_Message] = deque()
        self._arrived = asyncio.Event()

    def put(self, message: _Message) -> None:
        if message.kind == "progress" and self._waiting and self._waiting[-1].kind == "progress":
            self._waiting.pop()
        self._waiting.append(message)
        self._arrived.set()

    async def get(self) -> _Message:
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting.popleft()


class _Worker:
    """One life of the process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("the measuring process needs its three pipes")
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._stderr_pipe = process.stderr
        self._inboxes: dict[int, _Inbox] = {}
        self._stderr: deque[str] = deque(maxlen=40)
        self.lost = False
        self._loss: _Message | None = None
        self._reader = asyncio.create_task(self._read())
        self._listener = asyncio.create_task(self._listen())

    @property
    def last_words(self) -> list[str]:
        return list(self._stderr)[-12:]

    def send(self, body: dict[str, object]) -> None:
        # A dead process is reported by the reader, with its exit status.
        with suppress(ConnectionError, RuntimeError):
            self._stdin.write(dump_line(body))

    def submit(self, job: int, body: dict[str, object]) -> _Inbox:
        inbox = _Inbox()
        self._inboxes[job] = inbox
        if self._loss is not None:
            inbox.put(self._loss)
        self.send({**body, "id": job})
        return inbox

    def forget(self, job: int) -> None:
        self._inboxes.pop(job, None)

    async def cancel(self, job: int) -> bool:
        """Ask the process to drop a job; False where it did not within the deadline."""
        inbox = self.submit(job, {"op": "cancel"})
        try:
            async with asyncio.timeout(_CANCEL_S):
                while (await inbox.get()).kind not in ("cancelled", "lost"):
                    pass
        except TimeoutError:
            return False
        finally:
            self.forget(job)
        return not self.lost

    async def end(self) -> None:
        """Close stdin, which the process takes as its end; kill it where it does not."""
        self._stdin.close()
        try:
            async with asyncio.timeout(_END_S):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        for task in (self._reader, self._listener):
            task.cancel()
        await asyncio.gather(self._reader, self._listener, return_exceptions=True)
        if not self.lost:
            self._lose(_Message("lost", "was ended"))

    async def _read(self) -> None:
        try:
            while line := await self._stdout.readline():
                body = load_line(line)
                job = body.get("id")
                kind = body.get("kind")
                if not isinstance(job, int) or not isinstance(kind, str):
                    raise GarbledError(f"a line without id and kind: {line[:80]!r}")
                inbox = self._inboxes.get(job)
                if inbox is not None:
                    inbox.put(_Message(kind, body.get("body")))
        except ValueError as error:  # GarbledError, and a line over the limit
            with suppress(ProcessLookupError):
                self._process.kill()
            self._lose(_Message("lost", f"wrote nonsense ({error})", garbled=True))
            return
        status = await self._process.wait()
        await asyncio.wait([self._listener], timeout=1.0)
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        self._lose(_Message("lost", how))

    def _lose(self, message: _Message) -> None:
        self.lost = True
        self._loss = message
        for inbox in self._inboxes.values():
            inbox.put(message)

    async def _listen(self) -> None:
        with suppress(ValueError):  # a line over the limit: what came before is kept
            while line := await self._stderr_pipe.readline():
                self._stderr.append(line.decode("utf-8", "replace").rstrip())


__all__ = ["WORKER_ARGV", "WorkerBench", "WorkerLostError", "open_bench"]
