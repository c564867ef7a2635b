"""Measure: each concurrency in turn, with what the GPUs did meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from specdash.bench.protocol import Bench, BenchEvent
from specdash.core.errors import WorkFailedError
from specdash.core.events import CellMeasured, CellProgress
from specdash.core.gpu import Snapshot
from specdash.core.records import Cell, CellFlag
from specdash.core.settings import Capacity
from specdash.cycle.progress import Progress, StageRunner
from specdash.cycle.world import World
from specdash.gpus.idle import selected
from specdash.gpus.reasons import is_throttled


@dataclass
class Skip:
    """Lets the operator cut the running cell, or the rest of the measurement."""

    cell: asyncio.Event = field(default_factory=asyncio.Event)
    rest: bool = False

    def cut(self, *, rest: bool = False) -> None:
        self.rest = self.rest or rest
        self.cell.set()


@dataclass
class _GpuWatch:
    """Power and throttling of the rig's GPUs while a cell's window is open."""

    world: World
    open: bool = False
    watts: list[float] = field(default_factory=list)
    throttled: bool = False

    def see(self, snapshot: Snapshot) -> None:
        if not self.open:
            return
        gpus = selected(snapshot, self.world.rig.gpus)
        draws = [gpu.power_draw_w for gpu in gpus]
        known = [draw for draw in draws if draw is not None]
        if gpus and len(known) == len(gpus):
            self.watts.append(sum(known))
        if any(is_throttled(gpu.throttle_reasons) for gpu in gpus):
            self.throttled = True


async def measure(
    world: World,
    bench: Bench,
    concurrency: Sequence[int],
    capacity: Capacity,
    progress: Progress,
    stages: StageRunner,
    skip: Skip,
    *,
    fresh: bool,
) -> None:
    """Measure every concurrency; cells are kept as they come.

    Raises WorkFailedError where no cell has one good request.
    """
    await bench.identify()
    for position, streams in enumerate(concurrency, start=1):
        if skip.rest:
            break
        stages.note(f"cell {position} of {len(concurrency)}: {streams} at once")
        await world.journal.write("cell", concurrency=streams)
        cell = await _cell(world, bench, streams, capacity, skip, fresh=fresh)
        if cell is not None:
            progress.cells.append(cell)
            world.emit(CellMeasured(t=world.clock.wall(), cell=cell))
    good = [cell for cell in progress.cells if cell.good]
    stages.result(f"{len(good)} of {len(concurrency)} cells")
    if not good and not skip.rest and not skip.cell.is_set():
        raise no_good_request(progress.cells)


async def _cell(
    world: World, bench: Bench, streams: int, capacity: Capacity, skip: Skip, *, fresh: bool
) -> Cell | None:
    watch = _GpuWatch(world)
    forget = world.gpus.watch(watch.see)
    skip.cell.clear()
    cut = asyncio.ensure_future(skip.cell.wait())
    measured: Cell | None = None
    try:
        async with aclosing(bench.measure(streams, capacity=capacity, fresh=fresh)) as events:
            while True:
                step = asyncio.ensure_future(anext(events, None))
                try:
                    await asyncio.wait({step, cut}, return_when=asyncio.FIRST_COMPLETED)
                except asyncio.CancelledError:
                    await _give_up(step)
                    raise
                if not step.done():
                    await _give_up(step)
                    return None
                event = step.result()
                if event is None:
                    return measured
                if isinstance(event, CellMeasured):
                    measured = _with_gpus(event.cell, watch)
                    continue
                if isinstance(event, CellProgress):
                    watch.open = not event.warming
                world.emit(event)
    finally:
        cut.cancel()
        forget()


async def _give_up(step: asyncio.Future[BenchEvent | None]) -> None:
    step.cancel()
    await asyncio.wait({step})
    if not step.cancelled():
        step.exception()


def _with_gpus(cell: Cell, watch: _GpuWatch) -> Cell:
    joules: float | None = None
    if watch.watts and cell.output_tok_s:
        joules = sum(watch.watts) / len(watch.watts) / cell.output_tok_s
    flags: tuple[CellFlag, ...] = cell.flags
    if watch.throttled and "throttled" not in flags:
        flags = (*flags, "throttled")
    return replace(cell, joules_per_token=joules, flags=flags)


def no_good_request(cells: Sequence[Cell]) -> WorkFailedError:
    """The error of a measurement without one good request."""
    causes: dict[str, int] = {}
    for cell in cells:
        for cause, count in cell.requests.errors.items():
            causes[cause] = causes.get(cause, 0) + count
    listed = ", ".join(f"{cause}: {count}" for cause, count in sorted(causes.items()))
    return WorkFailedError(
        "Not one request of the measurement ended well.",
        remedy="The engine's log says more than the client can see.",
        code="no-good-request",
        evidence=(listed,) if listed else (),
    )
