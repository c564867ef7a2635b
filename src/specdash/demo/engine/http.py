"""A small HTTP/1.1 server: enough for an inference API, light enough to pace many streams.

Keep-alive, bodies by length or in chunks, chunked streaming, and the loss of a client noticed at once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import urlsplit

HEAD_LIMIT = 64 * 1024
BODY_LIMIT = 32 * 1024 * 1024


@dataclass(slots=True)
class Ask:
    """One request. ``connection`` answers it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: Connection
    http_1_0: bool = False
    on_lost: list[Callable[[], None]] = field(default_factory=list)

    def json(self) -> Any:
        """The body as JSON; ValueError where it is not."""
        return json.loads(self.body)


Handler = Callable[[Ask], Awaitable[None]]


class Connection(asyncio.Protocol):
    """One client. Requests are answered one after the other."""

    def __init__(self, handler: Handler, open_ones: set[Connection]) -> None:
        self._handler = handler
        self._open = open_ones
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._ask: Ask | None = None
        self._close_after = False
        self._chunked = False

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._open.discard(self)
        self._transport = None
        if self._ask is not None:
            for tell in self._ask.on_lost:
                tell()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    @property
    def lost(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def drop(self) -> None:
        """Close without another byte."""
        if self._transport is not None:
            self._transport.abort()

    # Requests

    def _next(self) -> None:
        if self._task is not None or self.lost:
            return
        try:
            ask = self._take()
        except ValueError as error:
            self._close_after = True
            self.reply(400, {"error": {"message": str(error)}})
            return
        if ask is None:
            return
        self._ask = ask
        wants = ask.headers.get("connection", "").lower()
        self._close_after = wants == "close" or (ask.http_1_0 and wants != "keep-alive")
        self._task = asyncio.create_task(self._serve(ask))

    async def _serve(self, ask: Ask) -> None:
        try:
            await self._handler(ask)
        except Exception as error:  # noqa: BLE001 - the client gets what went wrong
            self.reply(500, {"error": {"message": f"internal: {error!r}"}})
        finally:
            self._task = None
            self._ask = None
        if self._close_after and self._transport is not None:
            self._transport.close()
        else:
            self._next()

    def _take(self) -> Ask | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEAD_LIMIT:
                raise ValueError("request head too large")
            return None
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise ValueError("malformed request line")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                raise ValueError("malformed header")
            headers[name.strip().lower()] = value.strip()
        taken = self._body(headers, end + 4)
        if taken is None:
            if "100-continue" in headers.get("expect", "").lower() and len(self._buffer) == end + 4:
                self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return None
        body, used = taken
        del self._buffer[:used]
        return Ask(
            words[0],
            urlsplit(words[1]).path,
            headers,
            body,
            self,
            http_1_0=words[2] == "HTTP/1.0",
        )

    def _body(self, headers: Mapping[str, str], start: int) -> tuple[bytes, int] | None:
        """The body and where it ends; None while it is not all there."""
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return self._chunks(start)
        try:
            size = int(headers.get("content-length", "0"))
        except ValueError:
            raise ValueError("bad content-length") from None
        if not 0 <= size <= BODY_LIMIT:
            raise ValueError("body too large")
        if len(self._buffer) < start + size:
            return None
        return bytes(self._buffer[start : start + size]), start + size

    def _chunks(self, at: int) -> tuple[bytes, int] | None:
        body = bytearray()
        while True:
            line_end = self._buffer.find(b"\r\n", at)
            if line_end < 0:
                return None
            size = int(bytes(self._buffer[at:line_end]).split(b";")[0], 16)
            at = line_end + 2
            if len(self._buffer) < at + size + 2:
                return None
            body += self._buffer[at : at + size]
            at += size + 2
            if size == 0:
                return bytes(body), at

    # Answers

    def reply(
        self,
        status: int,
        body: object = b"",
        *,
        kind: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """A whole answer; anything but bytes becomes JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head_only = self._ask is not None and self._ask.method == "HEAD"
        fields = {"content-length": str(len(data)), "content-type": kind, **(headers or {})}
        self._head(status, fields)
        if not head_only:
            self._write(data)
        if self._task is None and self._close_after and self._transport is not None:
            self._transport.close()

    def begin_stream(self, kind: str = "text/event-stream; charset=utf-8") -> None:
        """An answer whose end is not known: in chunks, or up to the close for HTTP/1.0."""
        old = self._ask is not None and self._ask.http_1_0
        self._chunked = not old
        fields = {"content-type": kind}
        if old:
            self._close_after = True
        else:
            fields["transfer-encoding"] = "chunked"
        self._head(200, fields)

    def send(self, data: bytes) -> None:
        """A piece of a stream."""
        if self._chunked:
            self._write(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            self._write(data)

    def end_stream(self) -> None:
        if self._chunked:
            self._write(b"0\r\n\r\n")

    def _head(self, status: int, fields: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "server: uvicorn"]
        lines.extend(f"{name}: {value}" for name, value in fields.items())
        if self._close_after:
            lines.append("connection: close")
        self._write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


class HttpServer:
    """A listening server; ``drop_all`` is for the end."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._open: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> None:
        """Bind and accept; OSError where the address is taken."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._handler, self._open), host, port
        )

    def stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()

    def drop_all(self) -> None:
        for connection in list(self._open):
            connection.drop()
