"""What the load generator costs: CPU a chunk and timing error, beside a raw socket reader.

    python benchmarks/load_generator.py [--streams 1,32,128] [--rate 50] [--seconds 4]

One source of known truth on one core sends pre-encoded events and notes when it sent each; one
client at a time, in a process of its own on another core, reads them. CPU a chunk is marginal: a
long run less a short one, so that start-up does not count. Timing error is the moment the client
noted less the moment of sending (both CLOCK_MONOTONIC), so it holds the socket's own delay, which
the raw reader shows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing as mp
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

SHORT_S = 1.0
PER_CHUNK = 3
_STREAM = re.compile(rb"stream-(\d+)-")


@dataclass(frozen=True)
class Load:
    streams: int
    rate: float
    seconds: float

    @property
    def chunks(self) -> int:
        """Chunks a stream."""
        return max(2, round(self.rate * self.seconds))


def loop_factory(kind: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if kind == "asyncio":
        return None
    import uvloop

    return uvloop.new_event_loop


def has_uvloop() -> bool:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return False
    return True


def encoded(chunks: int) -> list[bytes]:
    """The bytes of each chunk, HTTP framing included."""
    found = []
    for place in range(1, chunks + 1):
        body = {
            "id": "chatcmpl-0123456789abcdef",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "mock",
            "choices": [
                {
                    "index": 0,
                    "delta": {"content": " some generated text"},
                    "finish_reason": "length" if place == chunks else None,
                }
            ],
            "usage": {
                "prompt_tokens": 100,
                "completion_tokens": PER_CHUNK * place,
                "total_tokens": 100 + PER_CHUNK * place,
            },
        }
        raw = b"data: " + json.dumps(body).encode() + b"\n\n"
        found.append(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")
    return found


def source(pipe: Connection, core: int | None) -> None:
    """Serve loads until told None; after each, send back when every chunk was sent."""
    pin(core)
    with asyncio.Runner(loop_factory=loop_factory("uvloop" if has_uvloop() else "asyncio")) as run:
        run.run(_source(pipe))


async def _source(pipe: Connection) -> None:
    loop = asyncio.get_running_loop()
    while (load := await loop.run_in_executor(None, pipe.recv)) is not None:
        sent: dict[int, list[float]] = {}
        chunks = encoded(load.chunks)
        done = asyncio.Event()

        async def serve(
            reader: asyncio.StreamReader,
            writer: asyncio.StreamWriter,
            load: Load = load,
            sent: dict[int, list[float]] = sent,
            chunks: list[bytes] = chunks,
            done: asyncio.Event = done,
        ) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            found = _STREAM.search(await reader.readexactly(length))
            stream = int(found[1]) if found else -1
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            times: list[float] = []
            begun = loop.time() + 0.2 + stream / load.streams / load.rate
            for place, raw in enumerate(chunks):
                await asyncio.sleep(max(0.0, begun + place / load.rate - loop.time()))
                times.append(time.monotonic())
                writer.write(raw)
            writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            sent[stream] = times
            await writer.drain()
            writer.close()
            if len(sent) == load.streams:
                done.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
        cpu, wall = time.process_time(), time.monotonic()
        pipe.send(server.sockets[0].getsockname()[1])
        await done.wait()
        share = (time.process_time() - cpu) / (time.monotonic() - wall)
        server.close()
        pipe.send((sent, share))


def pin(core: int | None) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})


def client(kind: str, loop: str, port: int, load: Load, core: int | None, pipe: Connection) -> None:
    """Read all streams; send back (CPU seconds, arrival times by stream)."""
    pin(core)
    read = {"raw": _raw, "specdash": _specdash}[kind]
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        pipe.send(runner.run(read(port, load)))


async def _raw(port: int, load: Load) -> tuple[float, dict[int, list[float]]]:
    times: dict[int, list[float]] = {k: [] for k in range(load.streams)}
    loop = asyncio.get_running_loop()
    ended = [loop.create_future() for _ in range(load.streams)]

    class Reader(asyncio.Protocol):
        def __init__(self, stream: int) -> None:
            self.stream = stream

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            body = f"stream-{self.stream}-".encode()
            head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            transport.write(head.encode() + body)  # type: ignore[attr-defined]

        def data_received(self, data: bytes) -> None:
            now = time.monotonic()
            times[self.stream] += [now] * data.count(b"data: {")

        def connection_lost(self, error: Exception | None) -> None:
            ended[self.stream].set_result(None)

    cpu = time.process_time()
    for stream in range(load.streams):
        await loop.create_connection(lambda stream=stream: Reader(stream), "127.0.0.1", port)
    await asyncio.gather(*ended)
    return time.process_time() - cpu, times


async def _specdash(port: int, load: Load) -> tuple[float, dict[int, list[float]]]:
    from specdash.bench.address import parse_address
    from specdash.bench.client import Client
    from specdash.bench.meter import Meter
    from specdash.bench.wire import Ask, Recipe
    from specdash.bench.workloads import Prompt

    recipe = Recipe("chat", "openai", "mock", 0.0, ignore_eos=True)
    address = parse_address(f"http://127.0.0.1:{port}")
    meters = [Meter(recipe.reader(), 0.0, stream=k) for k in range(load.streams)]
    async with Client(
        address, api_key=None, headers={}, stall_s=30.0, now=time.monotonic
    ) as sender:
        cpu = time.process_time()
        await asyncio.gather(
            *(
                sender.stream(
                    recipe, Ask(Prompt((("user", f"stream-{meter.stream}-"),)), 64), meter
                )
                for meter in meters
            )
        )
        spent = time.process_time() - cpu
    bad = [meter for meter in meters if meter.tokens != PER_CHUNK * load.chunks]
    if bad:
        raise SystemExit(f"{len(bad)} streams lost tokens: {bad[0].cause} {bad[0].detail}")
    return spent, {meter.stream: meter.times for meter in meters}


def measured(
    kind: str, loop: str, load: Load, feed: Connection, core: int | None
) -> tuple[float, list[float], float]:
    """CPU seconds, timing errors in seconds, share of its core the source used."""
    feed.send(load)
    port = feed.recv()
    here, there = mp.Pipe()
    process = mp.get_context("spawn").Process(
        target=client, args=(kind, loop, port, load, core, there)
    )
    process.start()
    cpu, times = here.recv()
    process.join()
    sent, share = feed.recv()
    errors = [
        got - gone
        for stream, moments in times.items()
        for got, gone in zip(moments, sent[stream], strict=True)
    ]
    return cpu, errors, share


def quantile(values: list[float], fraction: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--streams", default="1,32,128")
    parser.add_argument("--rate", type=float, default=50.0, help="chunks a second and stream")
    parser.add_argument("--seconds", type=float, default=4.0)
    args = parser.parse_args()
    cores: list[int | None] = sorted(os.sched_getaffinity(0))  # type: ignore[assignment]
    ours, other = (cores[0], cores[1]) if len(cores) > 1 else (None, None)
    feed, far = mp.Pipe()
    server = mp.get_context("spawn").Process(target=source, args=(far, other))
    server.start()
    print(
        f"{'client':<20} {'streams':>7} {'us/chunk':>9} {'p50 ms':>8} {'p99 ms':>8} {'source':>7}"
    )
    loops = ["asyncio", "uvloop"] if has_uvloop() else ["asyncio"]
    for streams in (int(part) for part in args.streams.split(",")):
        for kind in ("raw", "specdash"):
            for loop in loops:
                row: list[Any] = []
                for seconds in (SHORT_S, SHORT_S + args.seconds):
                    load = Load(streams, args.rate, seconds)
                    row.append((load, *measured(kind, loop, load, feed, ours)))
                (short, cpu_short, _, _), (long, cpu_long, errors, share) = row
                chunks = streams * (long.chunks - short.chunks)
                cost = 1e6 * (cpu_long - cpu_short) / chunks
                print(
                    f"{kind + ' ' + loop:<20} {streams:>7} {cost:>9.1f}"
                    f" {1000 * quantile(errors, 0.5):>8.3f} {1000 * quantile(errors, 0.99):>8.3f}"
                    f" {share:>6.0%}",
                    flush=True,
                )
    feed.send(None)
    server.join()


if __name__ == "__main__":
    main()
