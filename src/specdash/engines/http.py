"""The endpoint over HTTP: short questions, each with its own deadline."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from specdash.core.errors import UsageError
from specdash.engines.protocol import HttpReply

_LARGEST_BODY = 8 * 1024 * 1024
_CONNECT_S = 5.0
_OPENAI_TAILS = ("/chat/completions", "/completions", "/models", "/embeddings")


def root_url(url: str) -> str:
    """The root behind ``url``: a root, ``.../v1`` or a full OpenAI endpoint; a base path stays.

    Raises UsageError where it is not an http or https address.
    """
    text = url.strip()
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(
            f"{text!r} is not the address of an endpoint.",
            remedy="Give it as http://HOST:PORT or https://HOST:PORT/v1.",
            code="bad-url",
        )
    path = parts.path.rstrip("/")
    for tail in _OPENAI_TAILS:
        if path.endswith("/v1" + tail):
            path = path.removesuffix(tail)
    path = path.removesuffix("/generate").removesuffix("/v1")
    return urlunsplit((parts.scheme, parts.netloc, path, "", "")).rstrip("/")


class AiohttpHttp:
    """An :class:`~specdash.engines.protocol.Http` over aiohttp.

    A connection serves one request only: llama-server closes after a stream, and a forwarded
    port may lead to another process after a restart. Proxies of the environment are not used,
    redirects are not followed, so that a key goes nowhere else. Neither a refusal nor silence
    raises.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Raises UsageError where ``base_url`` is not an http address."""
        self._root = root_url(base_url)
        self._headers = dict(headers or {})
        # A key read from a file often ends in a newline.
        key = (api_key or "").strip()
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def get(self, path: str, *, timeout_s: float = 5.0) -> HttpReply:
        return await self._ask("GET", path, None, timeout_s)

    async def post(
        self, path: str, body: Mapping[str, object], *, timeout_s: float = 60.0
    ) -> HttpReply:
        return await self._ask("POST", path, json.dumps(body).encode(), timeout_s)

    async def close(self) -> None:
        """Drop the connections. May be called twice."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _ask(self, method: str, path: str, data: bytes | None, timeout_s: float) -> HttpReply:
        if self._closed:
            return HttpReply(None, error="the connection was closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True), trust_env=False
            )
        headers = self._headers
        if data is not None:
            headers = {**headers, "Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, _CONNECT_S))
        try:
            async with self._session.request(
                method,
                self._root + path,
                data=data,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                return HttpReply(answer.status, await _body(answer.content))
        except TimeoutError:
            return HttpReply(None, error=f"no answer within {timeout_s:g} s")
        except aiohttp.ClientConnectorCertificateError as error:
            return HttpReply(None, error=f"the certificate is not trusted: {error}")
        except aiohttp.ClientSSLError as error:
            return HttpReply(None, error=f"TLS failed: {error}")
        except aiohttp.ClientConnectorError as error:
            return HttpReply(None, error=f"no connection: {_reason(error.os_error)}")
        except aiohttp.ServerDisconnectedError:
            return HttpReply(None, error="the server hung up without an answer")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return HttpReply(None, error=str(error) or type(error).__name__)


def _reason(error: OSError) -> str:
    # asyncio puts the address into strerror; a failed look-up has no errno of the system.
    number = error.errno
    return os.strerror(number).lower() if number is not None and number > 0 else str(error)


async def _body(stream: aiohttp.StreamReader) -> bytes:
    """The body, cut where it is larger than any answer of an engine."""
    parts: list[bytes] = []
    size = 0
    async for part in stream.iter_chunked(65536):
        parts.append(part)
        size += len(part)
        if size >= _LARGEST_BODY:
            break
    return b"".join(parts)[:_LARGEST_BODY]
