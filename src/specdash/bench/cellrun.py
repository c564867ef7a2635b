"""One cell against one endpoint: learn how to ask, run the loop, count what was not counted,
and make the figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from specdash.bench.client import Client
from specdash.bench.closedloop import TICK_S, ClosedLoop, Plan
from specdash.bench.counters import Scrape, between, read_metrics
from specdash.bench.detect import Found
from specdash.bench.meter import Meter
from specdash.bench.protocol import Workload
from specdash.bench.reading import count_of_whole
from specdash.bench.window import Measured, acceptance, build_cell, tpot_s
from specdash.bench.wire import Ask, Recipe
from specdash.bench.workloads import PromptSet
from specdash.core.clock import Clock
from specdash.core.events import CellProgress
from specdash.core.records import Cell, CellFlag
from specdash.core.settings import Capacity

PROBE_TOKENS = 4
MAX_TRIES = 10
MAX_REPEATS = 4
BYTES_PER_TOKEN = 4.0
"""English text under common tokenisers; used where nothing else is known, and marked."""

CLIENT_BOUND_CPU = 0.9
"""Share of one core from which on the client, not the server, may set the pace."""

CLIENT_BOUND_LAG_S = 0.05
RECENT_S = 1.0


@dataclass
class Endpoint:
    """What is known of the endpoint so far. ``recipe`` None: not yet asked."""

    client: Client
    found: Found
    recipe: Recipe
    asked: bool = False
    has_metrics: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """A cell and, for each cause of failure, one example in words."""

    cell: Cell
    problems: dict[str, str] = field(default_factory=dict)


class CellRun:
    """One cell. Calls ``report`` about ten times a second."""

    def __init__(
        self,
        endpoint: Endpoint,
        workload: Workload,
        prompts: PromptSet,
        *,
        concurrency: int,
        capacity: Capacity,
        fresh: bool,
        round_: int,
        clock: Clock,
        report: Callable[[CellProgress], None],
    ) -> None:
        self._endpoint = endpoint
        self._workload = workload
        self._concurrency = concurrency
        self._fresh = fresh
        self._clock = clock
        self._report = report
        self._capacity = capacity.max_running_requests or endpoint.found.capacity
        self._measured_prompts = prompts.ordered(
            seed=workload.seed, concurrency=concurrency, round_=round_
        )
        self._warm_prompts = prompts.warm_up(
            seed=workload.seed, concurrency=concurrency, round_=round_
        )
        self._asks: dict[Meter, Ask] = {}
        self._before: Scrape | None = None
        self._after: Scrape | None = None
        self._cpu_at_open: tuple[float, float] | None = None
        self._cpu_share = 0.0
        self._lags: list[float] = []
        self._ticked: float | None = None
        self._estimated = False
        plan = Plan(
            concurrency=concurrency,
            output_tokens=workload.output_tokens,
            budget_s=workload.budget_s,
            requests=workload.requests,
            stall_s=workload.stall_s,
            saturated=min(concurrency, self._capacity or concurrency),
        )
        self._loop = ClosedLoop(
            plan,
            self._send,
            self._new_meter,
            self._measured_prompts,
            self._warm_prompts,
            clock,
            self._tick,
        )

    async def run(self) -> Outcome:
        """Never raises for what the endpoint does."""
        loop = self._loop
        window = None
        if await self._learn_to_ask():
            window = await loop.run(self._at_open, self._at_close)
            await self._count_the_uncounted()
        lost: dict[str, int] = {}
        if loop.begun is None:
            # The warm-up is all there was, so its failures are the cell's.
            for meter in loop.warm_up_meters:
                if meter.state == "failed":
                    lost[meter.cause] = lost.get(meter.cause, 0) + 1
        counters = None
        if self._before is not None and self._after is not None:
            counters = between(self._before, self._after)
        measured = Measured(
            concurrency=self._concurrency,
            meters=loop.meters,
            window=window,
            flags=self._flags(),
            counters=counters,
            lost=lost,
        )
        return Outcome(build_cell(measured), self._problems())

    async def _learn_to_ask(self) -> bool:
        """One tiny request, changed until the endpoint takes it: other route, fewer
        parameters. Where it refuses all of them the first way stands, and its answer will be
        the cause of the failures. False where the endpoint is silent."""
        endpoint = self._endpoint
        if endpoint.asked:
            return True
        recipe = endpoint.recipe
        for _ in range(MAX_TRIES):
            meter = Meter(recipe.reader(), self._clock.now())
            ask = Ask(next(self._warm_prompts), min(PROBE_TOKENS, self._workload.output_tokens))
            await endpoint.client.stream(recipe, ask, meter)
            if meter.state == "good":
                endpoint.recipe = recipe
                endpoint.asked = True
                return True
            if meter.cause == "stalled":
                self._loop.warm_up_meters.append(meter)
                return False
            status = meter.cause.removeprefix("http-")
            other = recipe.after_refusal(int(status), meter.reply) if status.isdigit() else None
            if other is None:
                break
            recipe = other
        return True

    def _new_meter(self, started: float, stream: int, index: int, ignored: bool) -> Meter:
        return Meter(
            self._endpoint.recipe.reader(), started, stream=stream, index=index, ignored=ignored
        )

    async def _send(self, ask: Ask, meter: Meter) -> float | None:
        self._asks[meter] = ask
        return await self._endpoint.client.stream(self._endpoint.recipe, ask, meter)

    async def _at_open(self) -> None:
        self._cpu_at_open = (time.process_time(), self._clock.now())
        self._lags.clear()
        self._before = await self._scrape()

    async def _at_close(self) -> None:
        if self._cpu_at_open is not None:
            cpu, moment = self._cpu_at_open
            passed = self._clock.now() - moment
            if passed > 0:
                self._cpu_share = (time.process_time() - cpu) / passed
        self._after = await self._scrape()

    async def _scrape(self) -> Scrape | None:
        if not self._endpoint.found.has_metrics:
            return None
        reply = await self._endpoint.client.get("/metrics", timeout_s=1.0)
        return read_metrics(reply.text) if reply.status == 200 else None

    async def _count_the_uncounted(self) -> None:
        """Streams that never told a count: the same request again, not streamed, tells it.

        Where the repeats confirm that a request which ended at its length limit has exactly that
        many tokens, these counts are exact; all else is estimated from tokens per byte of text,
        and marked.
        """
        meters = [m for m in self._loop.meters if m.waiting and m.state != "failed"]
        if not meters:
            return
        ended = [m for m in meters if m.state == "good" and not m.tokens][:MAX_REPEATS]
        replies = await asyncio.gather(
            *(self._endpoint.client.once(self._endpoint.recipe, self._asks[m]) for m in ended)
        )
        tokens = 0
        size = 0
        confirmed = bool(ended)
        for meter, reply in zip(ended, replies, strict=True):
            total, finish = count_of_whole(reply.json()) if reply.status == 200 else (None, None)
            limit = self._asks[meter].max_tokens
            confirmed = confirmed and finish == meter.finish == "length" and total == limit
            if total:
                tokens += total
                size += meter.text_size
        full = [m for m in meters if m.state == "good" and m.finish == "length"]
        if not tokens:
            tokens = sum(self._asks[m].max_tokens for m in full)
            size = sum(m.text_size for m in full)
        rate = tokens / size if tokens and size else 1 / BYTES_PER_TOKEN
        for meter in full:
            meter.settle(self._asks[meter].max_tokens)
        for meter in meters:
            if meter.waiting:
                waiting = sum(size for _, size in meter.waiting)
                guess = meter.tokens + max(1, round(waiting * rate))
                meter.settle(min(self._asks[meter].max_tokens, guess))
                confirmed = False
        self._estimated = not confirmed

    def _flags(self) -> tuple[CellFlag, ...]:
        flags: list[CellFlag] = []
        waiting = self._after.waiting if self._after is not None else None
        if (self._capacity is not None and self._concurrency > self._capacity) or waiting:
            flags.append("queued")
        lag = sorted(self._lags)[len(self._lags) // 2] if self._lags else 0.0
        if self._cpu_share > CLIENT_BOUND_CPU or lag > CLIENT_BOUND_LAG_S:
            flags.append("client-bound")
        if self._estimated:
            flags.append("estimated-tokens")
        if not self._fresh:
            flags.append("not-fresh")
        if self._loop.timed_out:
            flags.append("cut")
        if self._workload.ignore_eos and self._ended_early():
            flags.append("no-ignore-eos")
        return tuple(flags)

    def _ended_early(self) -> bool:
        """The endpoint refused ``ignore_eos``, or took it and ended before the limit."""
        return not self._endpoint.recipe.forces_length or any(
            meter.state == "good"
            and meter.finish != "length"
            and meter.tokens < self._asks[meter].max_tokens
            for meter in self._loop.meters
        )

    def _problems(self) -> dict[str, str]:
        problems: dict[str, str] = {}
        for meter in (*self._loop.meters, *self._loop.warm_up_meters):
            if meter.state == "failed" and meter.detail:
                problems.setdefault(meter.cause, meter.detail)
        return problems

    def _tick(self) -> None:
        now = self._clock.now()
        if self._ticked is not None:
            self._lags.append(max(0.0, now - self._ticked - TICK_S))
        self._ticked = now
        self._report(self._progress(now))

    def _progress(self, now: float) -> CellProgress:
        loop = self._loop
        opened = loop.opened
        sound = [meter for meter in loop.meters if meter.state != "failed"]
        recent = None
        mean = None
        if opened is not None and now > opened:
            recent_from = max(opened, now - RECENT_S)
            got = sum(m.tokens - m.tokens_by(recent_from) for m in sound if m.heard >= recent_from)
            recent = got / (now - recent_from)
            mean = sum(m.tokens - m.tokens_by(opened) for m in sound) / (now - opened)
        speeds = [value for value in map(tpot_s, sound[-2 * self._concurrency :]) if value]
        firsts = [m.first - m.started for m in sound if m.first is not None]
        length, _ = acceptance(sound, None)
        return CellProgress(
            t=self._clock.wall(),
            concurrency=self._concurrency,
            warming=opened is None,
            tok_s=recent,
            mean_tok_s=mean,
            per_request_tok_s=sum(1 / value for value in speeds) / len(speeds) if speeds else None,
            ttft_ms=1000 * sum(firsts) / len(firsts) if firsts else None,
            accept_length=length,
            in_flight=loop.in_flight,
            done=sum(meter.state == "good" and not meter.ignored for meter in sound),
            failed=len(loop.meters) - len(sound),
            elapsed_s=loop.elapsed_s,
            budget_s=self._workload.budget_s,
        )
