"""The load: GPU memory taken phase by phase, with SGLang's log lines, and the capacity it leaves."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from specdash.demo import model
from specdash.demo.engine.flags import MAX_STEPS_IN_MEMORY, Args
from specdash.demo.engine.link import Link, Worker
from specdash.demo.faults import Fault, FaultSwitch

TOTAL_MIB = 97887
CONTEXT_MIB = 640
WEIGHTS_MIB = 119_400
DRAFT_MIB = 2_900
GRAPH_MIB, GRAPH_STEP_MIB = 620, 88
MIB_PER_TOKEN = 0.094
SHARDS, DRAFT_SHARDS = 20, 2

PROCESS_S = 1.0
INIT_S = 0.7
WEIGHTS_S = 5.2
DRAFT_S = 0.9
POOL_S = 0.7
TARGET_GRAPH_S, DRAFT_GRAPH_S = 1.5, 0.6

Log = Callable[[str, int | None], None]


class LoadError(Exception):
    """The load fails; ``str()`` is the last line of the scheduler's traceback."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What there is when the load is over."""

    max_running: int
    kv_tokens: int
    memory_gb: dict[str, float]


class Loader:
    """Brings the workers up and their memory with them. Times are divided by ``speed``."""

    def __init__(
        self,
        root: Path,
        args: Args,
        link: Link,
        workers: list[Worker],
        *,
        speed: float,
        faults: FaultSwitch,
        log: Log,
    ) -> None:
        self._root = root
        self._args = args
        self._shape = args.shape
        self._link = link
        self._workers = workers
        self._speed = speed
        self._faults = faults
        self._log = log
        self._held = 0.0

    async def load(self) -> Loaded:
        """Run all phases; OutOfMemoryError or LoadError where one fails."""
        await self._pause(PROCESS_S)
        await self._start_workers()
        await self._init()
        await self._weights()
        if self._shape.steps:
            await self._draft()
        kv_tokens = await self._pool()
        await self._graphs()
        max_running = model.max_running(self._shape, self._args.whole("max_running_requests"))
        self._log(
            f"max_total_num_tokens={kv_tokens}, "
            f"chunked_prefill_size={self._args.whole('chunked_prefill_size')}, "
            f"max_prefill_tokens={self._args.whole('max_prefill_tokens')}, "
            f"max_running_requests={max_running}, "
            f"context_len={self._args.whole('context_length')}, "
            f"available_gpu_mem={self._free_gb():.2f} GB",
            0,
        )
        return Loaded(
            max_running,
            kv_tokens,
            {
                "weight": round(WEIGHTS_MIB / self._shape.tp / 1024, 2),
                "kvcache": round(kv_tokens * MIB_PER_TOKEN / self._shape.tp / 1024, 2),
                "token_capacity": kv_tokens,
                "graph": round(self._graph_mib() / 1024, 2),
            },
        )

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed)

    async def _start_workers(self) -> None:
        stubborn = self._faults.on(Fault.STUBBORN_ORPHAN)
        for rank in range(self._shape.tp):
            title = f"sglang::scheduler_TP{rank}"
            self._workers.append(Worker(self._root, title, stubborn=stubborn and rank == 0))
        self._workers.append(Worker(self._root, "sglang::detokenizer"))
        pids = [worker.pid for worker in self._workers]
        while not self._link.known(pids):  # noqa: ASYNC110 - the box is another process
            await asyncio.sleep(0.002)

    def _schedulers(self) -> Iterator[tuple[int, Worker]]:
        yield from enumerate(self._workers[: self._shape.tp])

    async def _grow(self, mib: float) -> None:
        """Every scheduler holds this much more on its GPU."""
        self._held += mib
        self._link.alloc(
            [(worker.pid, rank, int(self._held)) for rank, worker in self._schedulers()]
        )

    def _free_gb(self) -> float:
        return self._link.free_mib(0) / 1024

    async def _init(self) -> None:
        for rank, _ in self._schedulers():
            self._log("Init torch distributed begin.", rank)
        await self._grow(CONTEXT_MIB)
        await self._pause(INIT_S)
        self._log(f"Init torch distributed ends. mem usage={CONTEXT_MIB / 1024:.2f} GB", 0)

    async def _weights(self) -> None:
        for rank, _ in self._schedulers():
            self._log(f"Load weight begin. avail mem={self._free_gb():.2f} GB", rank)
        each = WEIGHTS_MIB / self._shape.tp / SHARDS
        for shard in range(SHARDS):
            if shard == SHARDS // 2:
                await self._middle_faults()
            await self._pause(WEIGHTS_S / SHARDS)
            await self._grow(each)
            self._bar("Loading safetensors checkpoint shards", shard + 1, SHARDS, WEIGHTS_S)
        self._weight_end(WEIGHTS_S, "Qwen3_5MoeForCausalLM", WEIGHTS_MIB / self._shape.tp)

    async def _middle_faults(self) -> None:
        while self._faults.on(Fault.LOAD_STALLS):  # noqa: ASYNC110 - a file, not an event
            await asyncio.sleep(0.1)
        if self._faults.on(Fault.CRASH_ON_LOAD):
            raise LoadError("safetensors_rust.SafetensorError: Error while deserializing header")

    def _bar(self, title: str, done: int, whole: int, seconds: float) -> None:
        """A tqdm bar as its own lines, each with the carriage return that tqdm begins with."""
        at, all_of = int(seconds * done / whole), int(seconds)
        self._raw(
            f"\r{title}: {100 * done // whole:>3}% Completed | {done}/{whole} "
            f"[00:{at:02}<00:{max(0, all_of - at):02},  {whole / seconds:.2f}it/s]\n"
        )

    def _raw(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    def _weight_end(self, seconds: float, kind: str, mib: float) -> None:
        for rank, _ in self._schedulers():
            self._log(
                f"Load weight end. elapsed={seconds:.2f} s, type={kind}, quant=fp8, "
                f"avail mem={self._free_gb():.2f} GB, mem usage={mib / 1024:.2f} GB.",
                rank,
            )

    async def _draft(self) -> None:
        self._log(f"Load weight begin. avail mem={self._free_gb():.2f} GB", 0)
        for shard in range(DRAFT_SHARDS):
            await self._pause(DRAFT_S / DRAFT_SHARDS)
            await self._grow(DRAFT_MIB / self._shape.tp / DRAFT_SHARDS)
            self._bar("Loading safetensors checkpoint shards", shard + 1, DRAFT_SHARDS, DRAFT_S)
        self._weight_end(DRAFT_S, "LlamaForCausalLMEagle3", DRAFT_MIB / self._shape.tp)

    async def _pool(self) -> int:
        fraction = self._args.raw["mem_fraction_static"]
        pool = fraction * TOTAL_MIB - self._held
        if pool < 1500 or self._faults.on(Fault.NOT_ENOUGH_MEMORY):
            raise LoadError(
                "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
                f"Current value: mem_fraction_static={fraction}"
            )
        await self._pause(POOL_S)
        # The draft's own pool and the slots each round reserves come out of the same memory.
        share = 1 + 0.02 * self._shape.steps * self._shape.topk + (0.04 if self._shape.steps else 0)
        tokens = int(pool * self._shape.tp / MIB_PER_TOKEN / share)
        half = tokens * MIB_PER_TOKEN / self._shape.tp / 2 / 1024
        await self._grow(pool)
        for rank, _ in self._schedulers():
            self._log(
                f"KV Cache is allocated. #tokens: {tokens}, K size: {half:.2f} GB, "
                f"V size: {half:.2f} GB",
                rank,
            )
        self._log(f"Memory pool end. avail mem={self._free_gb():.2f} GB", 0)
        if self._shape.steps:
            self._log(f"Memory pool end. avail mem={self._free_gb():.2f} GB", 0)
        return tokens

    def _graph_mib(self) -> float:
        extra = max(0, self._shape.verified - self._shape.steps - 1)
        return (
            GRAPH_MIB + GRAPH_STEP_MIB * self._shape.steps * math.sqrt(self._shape.topk) + 9 * extra
        )

    async def _graphs(self) -> None:
        if self._args.raw["disable_cuda_graph"]:
            return
        phases = [("target verify" if self._shape.steps else "decode", TARGET_GRAPH_S, 0.5)]
        if self._shape.steps > 1:
            phases.append(("draft decode", DRAFT_GRAPH_S, 0.3))
        if self._shape.steps:
            phases.append(("draft extend", DRAFT_GRAPH_S / 2, 0.2))
        parts = sum(part for _, _, part in phases)
        for name, seconds, part in phases:
            sizes = [1, 2, 4, 8, 16, 24]
            self._log(
                f"Capture {name} CUDA graph begin. backend=full, "
                f"num_tokens_per_req={self._shape.verified}, bs={sizes}, "
                f"avail mem={self._free_gb():.2f} GB",
                0,
            )
            too_deep = self._shape.steps > MAX_STEPS_IN_MEMORY
            if too_deep or self._faults.on(Fault.OOM_ON_LOAD):
                await self._pause(seconds / 2)
                raise LoadError(
                    "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate "
                    f"{self._graph_mib() / 512:.2f} GiB. torch.OutOfMemoryError"
                )
            line = ""
            for done, size in enumerate(reversed(sizes), start=1):
                await self._pause(seconds / len(sizes))
                await self._grow(self._graph_mib() * part / parts / len(sizes))
                line += (
                    f"\rCapturing batches (bs={size} avail_mem={self._free_gb():.2f} GB): "
                    f"{100 * done // len(sizes):>3}%|{'█' * done:<6}| {done}/{len(sizes)}"
                )
            self._raw(line + "\n")
            self._log(
                f"Capture {name} CUDA graph end. elapsed={seconds:.2f} s, "
                f"mem usage={self._graph_mib() * part / parts / 1024:.2f} GB, "
                f"avail mem={self._free_gb():.2f} GB.",
                0,
            )
