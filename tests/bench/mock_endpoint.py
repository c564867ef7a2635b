"""An endpoint of known speed and chosen faults, down to the bytes it sends."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Manners:
    """How the mock behaves. ``usage``: continuous, final, in-finish, before-finish or none."""

    dialect: str = "openai"
    model: str = "mock-model"
    tokens_per_chunk: int = 1
    step_s: float = 0.002
    ttft_s: float = 0.005
    usage: str = "continuous"
    whole_usage: bool = True
    eol: bytes = b"\n"
    comments: bool = False
    named_events: bool = False
    text: str = "tok "
    field: str = "content"
    pad: int = 0
    split: int = 0
    refuses: tuple[str, ...] = ()
    honours_eos_at: int | None = None
    capacity: int | None = None
    draft_k: int = 0
    done_twice: bool = False
    close_delimited: bool = False
    fault: Callable[[int], str | None] = lambda number: None
    probes: bool = True
    metrics: bool = False
    routes: tuple[str, ...] = ("generate", "chat", "completions")
    needs_key: str | None = None
    base: str = ""


@dataclass
class Seen:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Mock:
    manners: Manners
    port: int = 0
    requests: list[Seen] = field(default_factory=list)
    gets: list[str] = field(default_factory=list)
    running: int = 0
    peak: int = 0
    dropped: int = 0
    rounds: int = 0
    accepted: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.manners.base}"

    def prompts(self) -> list[str]:
        found = []
        for seen in self.requests:
            body = seen.body
            if "messages" in body:
                found.append("\n".join(m["content"] for m in body["messages"]))
            else:
                found.append(body.get("text") or body.get("prompt") or "")
        return found


@asynccontextmanager
async def mock_endpoint(**manners: Any) -> AsyncIterator[Mock]:
    mock = Mock(Manners(**manners))
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await _serve(mock, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    mock.port = server.sockets[0].getsockname()[1]
    try:
        yield mock
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _serve(mock: Mock, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    lines = head.split("\r\n")
    method, path, _ = lines[0].split(" ", 2)
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines[1:] if line)
    }
    raw = await reader.readexactly(int(headers.get("content-length", "0")))
    path = path.removeprefix(mock.manners.base)
    if mock.manners.needs_key and headers.get("authorization") != (
        f"Bearer {mock.manners.needs_key}"
    ):
        await _reply(writer, 401, {"error": {"message": "no key"}})
        return
    if method == "GET":
        mock.gets.append(path)
        await _get(mock, path, writer)
        return
    body = json.loads(raw)
    number = len(mock.requests)
    mock.requests.append(Seen(path, headers, body))
    await _post(mock, number, path.partition("?")[0], body, reader, writer)


async def _reply(writer: asyncio.StreamWriter, status: int, body: object, extra: str = "") -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    writer.write(
        f"HTTP/1.1 {status} X\r\nContent-Length: {len(raw)}\r\n{extra}"
        "Content-Type: application/json\r\nConnection: close\r\n\r\n".encode()
        + raw
    )
    await writer.drain()


async def _get(mock: Mock, path: str, writer: asyncio.StreamWriter) -> None:
    manners = mock.manners
    if not manners.probes:
        await _reply(writer, 404, {"detail": "Not Found"})
    elif path == "/v1/models":
        await _reply(writer, 200, {"data": [{"id": manners.model, "owned_by": "x"}]})
    elif path == "/server_info" and manners.dialect == "sglang":
        await _reply(
            writer,
            200,
            {
                "speculative_algorithm": "EAGLE3",
                "internal_states": [{"effective_max_running_requests_per_dp": manners.capacity}],
            },
        )
    elif path == "/props" and manners.dialect == "llama.cpp":
        await _reply(writer, 200, {"total_slots": manners.capacity or 4})
    elif path == "/metrics" and manners.metrics:
        text = (
            "# HELP x\n"
            f'vllm:spec_decode_num_drafts_total{{engine="0"}} {mock.rounds}.0\n'
            f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {mock.accepted}.0\n'
            f'vllm:num_requests_waiting{{engine="0"}} 0.0\n'
        )
        await _reply(writer, 200, text.encode())
    else:
        await _reply(writer, 404, {"detail": "Not Found"})


async def _post(
    mock: Mock,
    number: int,
    path: str,
    body: dict[str, Any],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    manners = mock.manners
    route = {
        "/generate": "generate",
        "/v1/chat/completions": "chat",
        "/v1/completions": "completions",
    }.get(path)
    if route is None or route not in manners.routes:
        await _reply(writer, 404, {"detail": "Not Found"})
        return
    flat = json.dumps(body)
    for name in manners.refuses:
        if f'"{name}"' in flat:
            await _reply(writer, 400, {"error": {"message": f"Unrecognized argument: {name}"}})
            return
    fault = manners.fault(number)
    if fault is not None and await _faulty_head(fault, writer):
        return
    limit = body.get("max_tokens") or body.get("max_completion_tokens")
    if route == "generate":
        limit = body["sampling_params"]["max_new_tokens"]
    asked_past_eos = body.get("ignore_eos") or body.get("sampling_params", {}).get("ignore_eos")
    total = limit
    finish = "length"
    if manners.honours_eos_at is not None and not asked_past_eos:
        total, finish = min(limit, manners.honours_eos_at), "stop"
    if not body.get("stream"):
        usage = {"usage": {"completion_tokens": total}} if manners.whole_usage else {}
        await _reply(writer, 200, {"choices": [{"finish_reason": finish}], **usage})
        return
    mock.running += 1
    mock.peak = max(mock.peak, mock.running)
    gone = asyncio.create_task(reader.read(1))
    try:
        await _stream(mock, route, body, total, finish, fault, writer, gone)
    finally:
        mock.running -= 1
        if gone.done():
            mock.dropped += 1
        gone.cancel()


async def _faulty_head(fault: str, writer: asyncio.StreamWriter) -> bool:
    if fault.isdigit():
        extra = "Retry-After: 0\r\n" if fault == "429" else ""
        await _reply(writer, int(fault), {"error": {"message": "the engine is on fire"}}, extra)
        return True
    if fault == "reset":
        writer.transport.abort()
        return True
    if fault == "hang":
        await asyncio.Event().wait()
    if fault == "html":
        await _reply(writer, 200, b"<html>welcome</html>")
        return True
    if fault == "not-http":
        writer.write(b"\x00\x01garbage\r\n\r\n")
        await writer.drain()
        return True
    return False


async def _stream(
    mock: Mock,
    route: str,
    body: dict[str, Any],
    total: int,
    finish: str,
    fault: str | None,
    writer: asyncio.StreamWriter,
    gone: asyncio.Task[bytes],
) -> None:
    manners = mock.manners
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    head += (
        "Connection: close\r\n\r\n"
        if manners.close_delimited
        else "Transfer-Encoding: chunked\r\n\r\n"
    )
    writer.write(head.encode())
    await writer.drain()

    def piece(raw: bytes) -> None:
        if manners.close_delimited:
            writer.write(raw)
            return
        size = manners.split or len(raw)
        for place in range(0, len(raw), size):
            part = raw[place : place + size]
            writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")

    def event(data: str | bytes, name: str | None = None) -> None:
        raw = data.encode() if isinstance(data, str) else data
        line = b"data: " + raw + manners.eol
        if name or manners.named_events:
            line = f"event: {name or 'message'}".encode() + manners.eol + line
        if manners.comments:
            line = b": ping" + manners.eol + line
        piece(line + manners.eol)

    loop = asyncio.get_running_loop()
    begun = loop.time() + manners.ttft_s
    chunks = math.ceil(total / manners.tokens_per_chunk)
    sent = 0
    for place in range(chunks):
        # Absolute moments, so that lateness does not add up.
        due = begun + (min((place + 1) * manners.tokens_per_chunk, total) - 1) * manners.step_s
        await asyncio.sleep(max(0.0, due - loop.time()))
        if gone.done():
            return
        new = min(manners.tokens_per_chunk, total - sent)
        sent += new
        mock.rounds += 1
        mock.accepted += new - 1
        last = place == chunks - 1
        if place == 2 and fault is not None and await _faulty_middle(fault, event, piece, writer):
            return
        for data in _events(mock, route, sent, new, total, place + 1, finish if last else None):
            event(data)
        await writer.drain()
    if manners.usage == "final" and route != "generate":
        event(json.dumps({"choices": [], "usage": {"completion_tokens": total}}))
    event("[DONE]")
    if manners.done_twice:
        event("[DONE]")
    if not manners.close_delimited:
        writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _faulty_middle(
    fault: str,
    event: Callable[..., None],
    piece: Callable[[bytes], None],
    writer: asyncio.StreamWriter,
) -> bool:
    if fault == "bad-json":
        event('{"choices": [{"delta": {')
        await asyncio.Event().wait()
    if fault == "cut-event":
        piece(b'data: {"choices": [{"del')
        writer.write(b"0\r\n\r\n")
    if fault == "early-close":
        writer.write(b"0\r\n\r\n")
    if fault == "abort":
        await writer.drain()
        writer.transport.abort()
    if fault == "error-event":
        event(json.dumps({"error": {"message": "CUDA error: device-side assert"}}))
        writer.write(b"0\r\n\r\n")
    if fault == "mid-hang":
        await writer.drain()
        await asyncio.Event().wait()
    if fault == "loris":
        while True:
            piece(b": still here\n\n")
            await writer.drain()
            await asyncio.sleep(0.05)
    if fault in ("cut-event", "early-close", "error-event", "abort"):
        await writer.drain()
        return True
    return False


def _events(
    mock: Mock, route: str, sent: int, new: int, total: int, rounds: int, finish: str | None
) -> list[str]:
    manners = mock.manners
    if route == "generate":
        meta: dict[str, Any] = {
            "completion_tokens": sent,
            "finish_reason": {"type": finish} if finish else None,
        }
        if finish and manners.draft_k:
            histogram = [0] * manners.draft_k + [rounds]
            meta |= {
                "spec_verify_ct": rounds,
                "spec_accept_length": sent / rounds,
                "spec_correct_drafts_histogram": histogram,
            }
        text = manners.text * sent + "x" * manners.pad
        return [json.dumps({"text": text, "meta_info": meta}, ensure_ascii=False)]
    text = manners.text * new + "x" * manners.pad
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
    if route == "chat":
        choice["delta"] = {manners.field: text}
    else:
        choice["text"] = text
    body: dict[str, Any] = {"choices": [choice], "usage": None}
    if manners.usage == "continuous" or (manners.usage == "in-finish" and finish):
        body["usage"] = {"completion_tokens": sent}
    if manners.dialect == "llama.cpp":
        body["timings"] = {"predicted_n": sent, "cache_n": 0}
        if manners.draft_k:
            body["timings"] |= {
                "draft_n": manners.draft_k * rounds,
                "draft_n_accepted": sent - rounds,
            }
    events = [json.dumps(body, ensure_ascii=False)]
    if manners.usage == "before-finish" and finish:
        choice["finish_reason"] = None
        events = [
            json.dumps(body, ensure_ascii=False),
            json.dumps({"choices": [], "usage": {"completion_tokens": total}}),
            json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}),
        ]
    return events
