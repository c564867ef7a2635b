"""``specdash bench --url``: measure any endpoint; no SSH, no rig."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from specdash.bench.address import parse_address
from specdash.bench.against import Change, Earlier, compare, differs, read_earlier
from specdash.bench.protocol import Endpoint, Identity, Workload
from specdash.bench.runner import WorkerBench, open_bench
from specdash.bench.workloads import KINDS, load_prompts
from specdash.cli.output import Out
from specdash.cli.tables import cells_table, figure, table
from specdash.cli.values import seconds, whole, whole_list
from specdash.core.clock import SystemClock
from specdash.core.errors import (
    EXIT_OK,
    InterruptedRunError,
    SpecdashError,
    UsageError,
    WorkFailedError,
)
from specdash.core.events import CellMeasured, CellProgress
from specdash.core.records import Cell
from specdash.core.text import make_safe

HELP = "Measure the output speed of any OpenAI-compatible, SGLang or llama.cpp endpoint."
USES_SSH = False

DEFAULT_CONCURRENCY = (1, 4, 16)
DEFAULT_BUDGET_S = 60.0
_NO_BUDGET_S = 86_400.0
_SAY_EVERY_S = 2.0
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", metavar="URL", required=True, help="the server's root, its /v1, or a full endpoint"
    )
    parser.add_argument(
        "--concurrency",
        metavar="LIST",
        type=whole_list,
        default=DEFAULT_CONCURRENCY,
        help="requests at once, a cell each (default 1,4,16)",
    )
    parser.add_argument(
        "--model", metavar="M", help="model name to send (default: the first the endpoint names)"
    )
    parser.add_argument(
        "--api-key-env", metavar="V", help="the environment variable that holds the key"
    )
    parser.add_argument(
        "--header",
        metavar="H",
        action="append",
        default=[],
        help="'Name: value', sent with every request and shown nowhere; may be repeated",
    )
    parser.add_argument(
        "--prompts",
        metavar="KIND|FILE",
        default="mixed",
        help=f"{', '.join(KINDS)}, or a JSONL or text file (default mixed)",
    )
    parser.add_argument(
        "--output-tokens",
        metavar="N",
        type=whole(1),
        default=256,
        help="tokens per request (default 256)",
    )
    parser.add_argument(
        "--temperature",
        metavar="T",
        type=_temperature,
        default=0.0,
        help="sampling temperature (default 0)",
    )
    parser.add_argument(
        "--budget",
        metavar="S",
        type=seconds,
        help="seconds per cell, warm-up apart (default 60, or none with --requests)",
    )
    parser.add_argument(
        "--requests", metavar="N", type=whole(1), help="exactly this many requests per cell"
    )
    parser.add_argument(
        "--against", metavar="FILE", help="compare with this file, the output of an earlier --json"
    )


@dataclass
class _Run:
    """What is known so far; every end of the verb prints it."""

    url: str
    workload: Mapping[str, object]
    earlier: Earlier | None
    identity: Identity | None = None
    model: str | None = None
    cells: list[Cell] = field(default_factory=list)

    def body(self) -> dict[str, object]:
        """The document of the contract."""
        engine = None if self.identity is None else self.identity.dialect
        body: dict[str, object] = {
            "url": self.url,
            "model": None if self.model is None else make_safe(self.model),
            "engine": None if engine in ("auto", "openai") else engine,
            "workload": dict(self.workload),
            "cells": [cell.to_json() for cell in self.cells],
        }
        if self.earlier is not None:
            body["against"] = {
                "path": self.earlier.path,
                "differs": list(self.differs()),
                "cells": [change.to_json() for change in self.changes()],
            }
        return body

    def changes(self) -> list[Change]:
        return [] if self.earlier is None else compare(self.earlier, self.cells)

    def differs(self) -> tuple[str, ...]:
        if self.earlier is None:
            return ()
        return differs(self.earlier, self.model, self.workload)


async def run(args: argparse.Namespace, out: Out) -> int:
    address = parse_address(args.url)
    endpoint = Endpoint(
        url=args.url,
        model=args.model,
        api_key=_api_key(args.api_key_env),
        headers=_headers(args.header),
    )
    load_prompts(args.prompts)  # said now, not after the endpoint was found
    earlier = None if args.against is None else read_earlier(args.against)
    workload = _workload(args)
    shown = {**workload.to_json(), "budget_s": _budget(args)}
    state = _Run(address.shown, shown, earlier, model=args.model)
    try:
        async with open_bench(endpoint, workload, clock=SystemClock()) as bench:
            await _measure(bench, args.concurrency, state, out)
    except asyncio.CancelledError:
        out.error(InterruptedRunError("interrupted; what was measured stands"), state.body())
        _show(state, out)
        return InterruptedRunError.exit_code
    except SpecdashError as error:
        out.error(error, state.body())
        _show(state, out)
        return error.exit_code
    return _finish(state, out)


async def _measure(bench: WorkerBench, concurrency: Sequence[int], state: _Run, out: Out) -> None:
    state.identity = await bench.identify()
    state.model = state.identity.model
    out.say(f"{state.identity.dialect} at {state.url}, model {state.model or 'unnamed'}")
    for streams in concurrency:
        if out.trouble is not None:
            return  # nobody reads the events
        said = -math.inf
        out.live(f"{streams} at once: warming up")
        # Nothing was restarted for this measurement: caches may know the prompts.
        async with aclosing(bench.measure(streams, fresh=False)) as events:
            async for event in events:
                out.event(event)
                if isinstance(event, CellMeasured):
                    state.cells.append(event.cell)
                    _say_cell(event.cell, bench, out)
                elif isinstance(event, CellProgress):
                    out.live(_progress(event))
                    if not out.can_redraw and event.t - said >= _SAY_EVERY_S:
                        said = event.t
                        out.say(_progress(event))


def _progress(event: CellProgress) -> str:
    head = f"{event.concurrency} at once"
    if event.warming:
        return f"{head}: warming up, {event.in_flight} in flight"
    parts = [
        f"{figure(event.tok_s)} tok/s now",
        f"{figure(event.mean_tok_s)} mean",
        f"{figure(event.per_request_tok_s)} per request",
        f"TTFT {figure(event.ttft_ms, 0)} ms",
    ]
    if event.accept_length is not None:
        parts.append(f"accept {event.accept_length:.2f}")
    parts.append(f"{event.done} done")
    if event.failed:
        parts.append(f"{event.failed} failed")
    clock = f"{event.elapsed_s:.1f}"
    if event.budget_s < _NO_BUDGET_S:
        clock += f"/{event.budget_s:g}"
    return f"{head}: {', '.join(parts)}, {clock} s"


def _say_cell(cell: Cell, bench: WorkerBench, out: Out) -> None:
    flags = f" ({', '.join(cell.flags)})" if cell.flags else ""
    rate = "no figure" if cell.output_tok_s is None else f"{cell.output_tok_s:.1f} tok/s"
    out.say(f"{cell.concurrency} at once: {rate}{flags}")
    for cause, count in cell.requests.errors.items():
        example = bench.problems.get(cause, "")
        out.say(f"  {count} x {cause}" + (f": {example}" if example else ""))


def _finish(state: _Run, out: Out) -> int:
    bad = [cell for cell in state.cells if not cell.good]
    body = state.body()
    if bad:
        places = ", ".join(str(cell.concurrency) for cell in bad)
        error = WorkFailedError(
            f"no request ended well at concurrency {places}",
            remedy="The causes are counted in the cell; the server's log says more.",
            code="no-good-request",
        )
        out.error(error, body)
    else:
        out.document(body)
    out.line({"event": "bench_ended", **body})
    _show(state, out)
    return WorkFailedError.exit_code if bad else EXIT_OK


def _show(state: _Run, out: Out) -> None:
    if not state.cells:
        return
    out.result(cells_table(state.cells))
    if state.earlier is None:
        return
    rows = [
        (
            str(change.concurrency),
            figure(change.before),
            figure(change.after),
            figure(change.difference),
            "n/a" if change.percent is None else f"{change.percent:+.1f} %",
            f"{figure(change.low)}..{figure(change.high)}",
            change.verdict,
        )
        for change in state.changes()
    ]
    head = ("at once", "before", "after", "change", "", "95 % interval", "verdict")
    out.result(f"\nagainst {state.earlier.path}\n{table(head, rows)}")
    if state.differs():
        out.result(f"not the same work: {', '.join(state.differs())} differ")


def _workload(args: argparse.Namespace) -> Workload:
    budget = _budget(args)
    return Workload(
        prompts=args.prompts,
        output_tokens=args.output_tokens,
        temperature=args.temperature,
        budget_s=_NO_BUDGET_S if budget is None else budget,
        requests=args.requests,
        # A short look should not wait long for a dead server, nor a long one give up early.
        stall_s=30.0 if budget is None else min(30.0, max(5.0, 5 * budget)),
    )


def _budget(args: argparse.Namespace) -> float | None:
    if args.budget is not None:
        return float(args.budget)
    return None if args.requests is not None else DEFAULT_BUDGET_S


def _temperature(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text} is not in 0..100")
    return value


def _api_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UsageError(
            f"--api-key-env: the variable {variable!r} is not set",
            remedy="Export the key under that name; it is read from there and shown nowhere.",
            code="no-api-key",
        )
    if not key.isprintable():
        raise UsageError(
            f"--api-key-env: the value of {variable!r} cannot be sent in a header", code="bad-key"
        )
    return key


def _headers(given: Sequence[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for place, item in enumerate(given, start=1):
        name, colon, value = item.partition(":")
        value = value.strip()
        if not colon or not _HEADER.fullmatch(name.strip()) or not _sendable(value):
            raise UsageError(
                f"--header number {place} is not of the form 'Name: value'",
                remedy="Its value is not repeated here, since it may be a secret.",
                code="bad-header",
            )
        headers[name.strip()] = value
    return headers


def _sendable(value: str) -> bool:
    return all(char == "\t" or (ord(char) >= 32 and ord(char) != 127) for char in value)
