"""Requests to one endpoint over aiohttp: the I/O around :class:`Meter`.

Facts behind the settings: aiohttp's default total timeout ends a long stream at 300 s; its line
iterator refuses long lines, so raw pieces are read; a kept connection hides a restarted server
(the first request on it fails), and ``sglang.bench_serving`` opens one a request, so that time
to first token means the same.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from specdash.bench.address import Address
from specdash.bench.causes import Trouble, trouble_of
from specdash.bench.meter import Meter
from specdash.bench.wire import Ask, Recipe

CONNECT_S = 10.0
SILENCE_FACTOR = 2.0
"""A stream that sends bytes but no token may be silent this many times as long as a dead one."""

_ERROR_BYTES = 4096
_BODY_LIMIT = 64 * 1024 * 1024

NETWORK_ERRORS = (aiohttp.ClientError, aiohttp.http.HttpProcessingError, OSError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to a plain request; ``status`` None where nothing came (``trouble`` says why)."""

    status: int | None
    body: bytes = b""
    trouble: Trouble | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def json(self) -> Any:
        """None where the body is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


class Client:
    """One session to one endpoint. ``local_port`` is where a tunnel to it begins."""

    def __init__(
        self,
        address: Address,
        *,
        api_key: str | None,
        headers: Mapping[str, str],
        stall_s: float,
        now: Callable[[], float],
        local_port: int | None = None,
    ) -> None:
        self.address = address
        self._now = now
        self._stall_s = stall_s
        self._local_port = local_port
        own = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        if api_key:
            own["Authorization"] = f"Bearer {api_key}"
        elif address.authorization:
            own["Authorization"] = address.authorization
        given = {name.lower() for name in headers}
        self._headers = {name: value for name, value in own.items() if name.lower() not in given}
        self._headers.update(headers)
        self._tls_name: str | None = None
        if local_port is not None:
            parts = urlsplit(address.root)
            if "host" not in given:
                self._headers["Host"] = parts.netloc
            if parts.scheme == "https":
                self._tls_name = parts.hostname
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Client:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_S, sock_read=self._stall_s
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            read_bufsize=2**20,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def stream(self, recipe: Recipe, ask: Ask, meter: Meter) -> float | None:
        """Send one request and let ``meter`` see all that comes. Whatever happens ends in the
        meter; only cancellation is raised, and drops the connection. Returns the seconds the
        server asked to be left alone, if it did."""
        body = json.dumps(recipe.body(ask), ensure_ascii=False).encode("utf-8", "replace")
        try:
            async with asyncio.timeout(None) as deadline:
                silence = _Silence(deadline, meter, SILENCE_FACTOR * self._stall_s, self._now)
                try:
                    return await self._stream(self.address.url(recipe.route), body, meter)
                finally:
                    silence.stop()
        except NETWORK_ERRORS as error:
            trouble = trouble_of(error)
            meter.fail(trouble.cause, self._now(), trouble.detail)
        return None

    async def _stream(self, url: str, body: bytes, meter: Meter) -> float | None:
        now = self._now
        meter.started = meter.heard = now()
        response = await self._open("POST", url, data=body, headers={"Accept": "text/event-stream"})
        try:
            if not 200 <= response.status < 300:
                text = (await response.content.read(_ERROR_BYTES)).decode("utf-8", "replace")
                meter.fail(f"http-{response.status}", now(), message_of(text))
                meter.reply = text
                return _retry_after(response.headers)
            read = response.content.readany
            while data := await read():
                if meter.feed(data, now()):
                    break
            meter.end(now())
        finally:
            # Not release(): a stream that is not at its end must be dropped, and the server
            # must learn of it.
            response.close()
        return None

    async def once(self, recipe: Recipe, ask: Ask) -> Reply:
        """The same request, not streamed."""
        body = json.dumps(recipe.body(ask, stream=False), ensure_ascii=False)
        return await self._plain(
            "POST",
            self.address.url(recipe.route),
            data=body.encode("utf-8", "replace"),
            timeout_s=self._stall_s,
        )

    async def get(self, path: str, *, timeout_s: float = 5.0, api: bool = False) -> Reply:
        """GET of a path below the root, or below the API base."""
        base = self.address.api if api else self.address.root
        return await self._plain("GET", base + path, data=None, timeout_s=timeout_s)

    async def _plain(self, method: str, url: str, *, data: bytes | None, timeout_s: float) -> Reply:
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._open(method, url, data=data, headers={})
                try:
                    body = await _read_limited(response)
                    return Reply(response.status, body, headers=dict(response.headers))
                finally:
                    response.close()
        except NETWORK_ERRORS as error:
            return Reply(None, trouble=trouble_of(error))

    async def _open(
        self, method: str, url: str, *, data: bytes | None, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is not open")
        if self._local_port is not None:
            parts = urlsplit(url)
            url = urlunsplit(parts._replace(netloc=f"127.0.0.1:{self._local_port}"))
        return await self._session.request(
            method,
            url,
            data=data,
            headers={**headers, **self._headers},
            # A redirect would carry the user's headers to somebody else.
            allow_redirects=False,
            server_hostname=self._tls_name,
        )


class _Silence:
    """Ends a request that gives bytes (comments, say) but no token. The transport's own timeout
    sees silence in bytes."""

    def __init__(
        self,
        deadline: asyncio.Timeout,
        meter: Meter,
        limit_s: float,
        now: Callable[[], float],
    ) -> None:
        self._deadline = deadline
        self._meter = meter
        self._limit_s = limit_s
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(limit_s, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        left = self._limit_s - (self._now() - self._meter.heard)
        if left <= 0:
            self._deadline.reschedule(self._loop.time())
        else:
            self._timer = self._loop.call_later(left, self._look)


def message_of(text: str) -> str:
    """The message in an error body, or its beginning."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if isinstance(body, dict):
        error = body.get("error", body)
        if isinstance(error, dict):
            for key in ("message", "detail", "error"):
                if isinstance(error.get(key), str):
                    return str(error[key])[:500]
        if isinstance(error, str):
            return error[:500]
    return " ".join(text.split())[:500]


async def _read_limited(response: aiohttp.ClientResponse) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := await response.content.readany():
        size += len(piece)
        if size > _BODY_LIMIT:
            break
        pieces.append(piece)
    return b"".join(pieces)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    raw = headers.get("Retry-After", "")
    try:
        seconds = float(raw)
    except ValueError:
        return None
    return seconds if 0 <= seconds < 86_400 else None
