"""The engine's process: from the command line through the load to serving, and its end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from specdash.demo import model
from specdash.demo.engine.api import Api
from specdash.demo.engine.batch import Batch
from specdash.demo.engine.flags import Args, IllegalError, missing_path, parse, tree_overflows
from specdash.demo.engine.http import HttpServer
from specdash.demo.engine.link import Link, OutOfMemoryError, Worker
from specdash.demo.engine.load import Loader, LoadError
from specdash.demo.faults import Fault, FaultSwitch

STOP_S = 2.8
WARM_UP_S = 0.6


def log(text: str, rank: int | None = 0) -> None:
    """One line in SGLang's form on stderr."""
    tag = "" if rank is None else f" TP{rank}"
    sys.stderr.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}{tag}] {text}\n")
    sys.stderr.flush()


def plain(text: str) -> None:
    """A line of another library."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def main(argv: list[str]) -> None:
    """``python -m sglang.launch_server`` of the box; leaves with SGLang's exit statuses."""
    root = os.environ.get("SPECDASH_BOX")
    if root is None:
        plain("this is the simulated engine of specdash's rig in a box; it runs only inside one")
        sys.exit(1)
    try:
        args = parse(argv)
    except IllegalError as error:
        _traceback("specdash rig in a box, prepare_server_args", str(error))
        sys.exit(1)
    process = EngineProcess(Path(root), args, " ".join(["python", *sys.orig_argv[1:]]))
    sys.exit(asyncio.run(process.run()))


def _traceback(where: str, last: str) -> None:
    plain("Traceback (most recent call last):")
    plain(f'  File "<{where}>", line 1, in <module>')
    plain(last)


class EngineProcess:
    """The main process: its workers, its endpoint, its orderly end."""

    def __init__(self, root: Path, args: Args, title: str) -> None:
        self._root = root
        self._args = args
        self._faults = FaultSwitch(root)
        if self._faults.on(Fault.IGNORES_DEPTH) and args.shape.steps:
            args.shape = model.Shape(steps=3, topk=1, draft_tokens=4, tp=args.shape.tp)
        self._speed = float(os.environ.get("SPECDASH_BOX_SPEED", "1"))
        self._load_speed = float(os.environ.get("SPECDASH_BOX_LOAD_SPEED", self._speed))
        self._link = Link(root)
        self._link.add(os.getpid(), title, ppid=os.getppid(), session=os.getsid(0))
        self._workers: list[Worker] = []
        self._stopping = asyncio.Event()
        self._died = asyncio.Event()
        self._ending = False
        self._http: HttpServer | None = None
        self._api: Api | None = None

    async def run(self) -> int:
        """Load and serve until told to stop; the exit status."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._link.fileno(), self._box_spoke)
        loop.add_signal_handler(signal.SIGTERM, self._terminate)
        loop.add_signal_handler(signal.SIGCHLD, self._child_changed)
        work = asyncio.create_task(self._serve())
        stop = asyncio.create_task(self._stopping.wait())
        died = asyncio.create_task(self._died.wait())
        await asyncio.wait({work, stop, died}, return_when=asyncio.FIRST_COMPLETED)
        if self._died.is_set():
            return self._child_died()
        if work.done() and not stop.done():
            return work.result()
        loaded = self._api is not None
        if not loaded:
            work.cancel()
        await self._stop(loaded=loaded)
        work.cancel()
        return 0

    def _box_spoke(self) -> None:
        if not self._link.peek():
            os._exit(1)  # the box is gone, and everything in it goes

    def _terminate(self) -> None:
        if self._faults.on(Fault.STOP_HANGS):
            log("SIGTERM received. Draining requests and shutting down...", None)
            return
        self._ending = True
        self._stopping.set()

    def _child_changed(self) -> None:
        for worker in list(self._workers):
            if worker.process.poll() is not None:
                self._workers.remove(worker)
                if not self._ending:
                    self._died.set()

    def _child_died(self) -> int:
        log("Received sigquit from a child process. It usually means the child failed.", None)
        for worker in self._workers:
            worker.end(signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
        return 1

    # Up

    async def _serve(self) -> int:
        args = self._args
        shown = ", ".join(f"{name}={value!r}" for name, value in args.server_args().items())
        log(f"server_args=ServerArgs({shown})", None)
        log("SIMULATED: this engine is part of specdash's rig in a box", None)
        for warning in args.warnings:
            log(warning, None)
        lost = missing_path(args)
        if lost is not None:
            self._failed(
                f"OSError: {lost} is not a local folder and is not a valid model identifier"
            )
            return 1
        loader = Loader(
            self._root,
            args,
            self._link,
            self._workers,
            speed=self._load_speed,
            faults=self._faults,
            log=log,
        )
        try:
            loaded = await loader.load()
        except OutOfMemoryError as error:
            self._failed(
                f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
                f"{error.wanted_mib / 1024:.2f} GiB. GPU {error.gpu} has a total capacity of "
                f"94.97 GiB of which {error.free_mib / 1024:.2f} GiB is free."
            )
            return await self._scheduler_failed()
        except LoadError as error:
            self._failed(str(error))
            return await self._scheduler_failed()
        batch = Batch(
            args.shape,
            loaded.max_running,
            log=log,
            busy=self._busy,
            log_every=args.whole("decode_log_interval") or 40,
            kv_tokens=loaded.kv_tokens,
        )
        api = self._api = Api(
            args,
            batch,
            faults=self._faults,
            kv_tokens=loaded.kv_tokens,
            memory_gb=loaded.memory_gb,
            log=log,
        )
        if not await self._listen(api):
            return 1
        ticking = asyncio.create_task(batch.run())
        await self._warm_up(api)
        await ticking
        return 0

    async def _listen(self, api: Api) -> bool:
        host = self._args.text("host") or "127.0.0.1"
        port = self._args.whole("port") or 30000
        plain(f"INFO:     Started server process [{os.getpid()}]")
        plain("INFO:     Waiting for application startup.")
        plain("INFO:     Application startup complete.")
        self._http = HttpServer(api.handle)
        try:
            # Whatever the flags say, the box stays on loopback.
            await self._http.listen("127.0.0.1", port)
        except OSError as error:
            number = error.errno or 98
            plain(
                f"ERROR:    [Errno {number}] error while attempting to bind on address "
                f"('{host}', {port}): address already in use"
            )
            self._kill_workers()
            return False
        self._link.tell(op="port", pid=os.getpid(), port=port)
        plain(f"INFO:     Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")
        return True

    async def _warm_up(self, api: Api) -> None:
        if not self._args.raw["skip_server_warmup"]:
            if tree_overflows(self._args.shape):
                log("Scheduler hit an exception: Traceback (most recent call last):")
                plain("RuntimeError: selected index k out of range")
                log("Initialization failed. warmup error: connection reset", None)
                self._died.set()
                return
            await asyncio.sleep(WARM_UP_S / self._load_speed)
            await api.one_token(1 if self._load_speed > 20 else 8)
        if self._faults.on(Fault.NEVER_READY):
            return
        api.ready = True
        self._link.tell(op="ready", pid=os.getpid())
        log("The server is fired up and ready to roll!", None)

    def _busy(self, load: float) -> None:
        self._link.tell(
            op="load", pid=os.getpid(), gpus=list(range(self._args.shape.tp)), load=load
        )

    # Down

    def _failed(self, last_line: str) -> None:
        log("Scheduler hit an exception: Traceback (most recent call last):")
        plain('  File "<specdash rig in a box, scheduler>", line 1, in run_scheduler_process')
        plain(last_line)
        if last_line.startswith("Exception: Capture cuda graph failed"):
            plain("Possible solutions:")
            plain("1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)")
            plain("2. set --cuda-graph-max-bs to a smaller value (e.g., 16)")

    async def _scheduler_failed(self) -> int:
        log("Received sigquit from a child process. It usually means the child failed.", None)
        await asyncio.sleep(0.3 / self._speed)
        self._kill_workers()
        return 1

    def _kill_workers(self) -> None:
        self._ending = True
        for worker in self._workers:
            worker.end(signal.SIGKILL)

    async def _stop(self, *, loaded: bool) -> None:
        """In order: no new requests, drop the running ones, detokenizer, schedulers."""
        if self._api is not None:
            self._api.stopping = True
        if self._http is not None:
            self._http.stop_listening()
        log("SIGTERM received. Draining requests and shutting down...", None)
        whole = (STOP_S if loaded else STOP_S / 4) / self._speed
        await asyncio.sleep(whole * 0.25)
        if self._http is not None:
            self._http.drop_all()
        plain("INFO:     Shutting down")
        await asyncio.sleep(whole * 0.35)
        kept = self._orphan()
        ending = [worker for worker in reversed(self._workers) if worker is not kept]
        for worker in ending:
            worker.end(signal.SIGTERM)
            await asyncio.sleep(whole * 0.3 / len(ending))
        await asyncio.sleep(whole * 0.1)
        plain("INFO:     Application shutdown complete.")
        plain(f"INFO:     Finished server process [{os.getpid()}]")

    def _orphan(self) -> Worker | None:
        if not self._faults.on(Fault.ORPHAN_SCHEDULER, Fault.STUBBORN_ORPHAN):
            return None
        for worker in self._workers:
            if worker.title.startswith("sglang::scheduler"):
                self._link.tell(op="leave", pid=worker.pid)
                return worker
        return None
