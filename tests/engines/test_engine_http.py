"""Short questions to a real server on this machine's loopback, and to none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from specdash.core.errors import UsageError
from specdash.engines.http import AiohttpHttp, root_url

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def _server(handler: Handler) -> AsyncIterator[str]:
    runner = web.AppRunner(_app(handler))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _app(handler: Handler) -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    return app


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("http://h:30000", "http://h:30000"),
        ("http://h:30000/", "http://h:30000"),
        ("http://h:30000/v1", "http://h:30000"),
        ("http://h:30000/v1/", "http://h:30000"),
        (" http://h/v1/chat/completions ", "http://h"),
        ("https://h/base/v1", "https://h/base"),
        ("http://h/generate", "http://h"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
        ("http://h/v1?x=1#y", "http://h"),
    ],
)
def test_root_of_an_address(url: str, root: str) -> None:
    assert root_url(url) == root


@pytest.mark.parametrize(
    "url", ["", "h:30000", "ftp://h", "http://", "http:///v1", "http://h:port", "http://h:99999"]
)
def test_no_address(url: str) -> None:
    with pytest.raises(UsageError):
        root_url(url)


async def test_paths_start_at_the_root_and_headers_go_along() -> None:
    async def handler(request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        return web.json_response(
            {
                "path": request.path,
                "key": request.headers.get("Authorization"),
                "extra": request.headers.get("X-Team"),
                "body": body,
            }
        )

    async with _server(handler) as url:
        http = AiohttpHttp(url + "/v1", api_key="s3cret\n", headers={"X-Team": "a"})
        assert (await http.get("/health")).json() == {
            "path": "/health",
            "key": "Bearer s3cret",
            "extra": "a",
            "body": None,
        }
        posted = (await http.post("/generate", {"text": "ä"})).json()
        assert (posted["path"], posted["body"]) == ("/generate", {"text": "ä"})
        await http.close()


async def test_a_refusal_is_an_answer() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=503, text="Loading model")

    async with _server(handler) as url:
        http = AiohttpHttp(url)
        reply = await http.get("/health")
        assert (reply.status, reply.body, reply.json()) == (503, b"Loading model", None)
        await http.close()


async def test_redirects_are_not_followed_with_the_key() -> None:
    async def handler(request: web.Request) -> web.Response:
        raise web.HTTPFound("http://127.0.0.1:9/elsewhere")

    async with _server(handler) as url:
        http = AiohttpHttp(url, api_key="s3cret")
        assert (await http.get("/health")).status == 302
        await http.close()


async def test_silence_ends_at_the_deadline() -> None:
    waiting = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        await waiting.wait()
        return web.Response()

    async with _server(handler) as url:
        http = AiohttpHttp(url)
        reply = await http.get("/health", timeout_s=0.05)
        waiting.set()
        assert reply.status is None
        assert "no answer within 0.05 s" in reply.error
        await http.close()


async def test_a_body_without_end_is_cut() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        try:
            while True:
                await answer.write(b"x" * 65536)
        except ConnectionError:
            return answer

    async with _server(handler) as url:
        http = AiohttpHttp(url)
        reply = await http.get("/metrics", timeout_s=30)
        assert reply.status == 200
        assert len(reply.body) == 8 * 1024 * 1024
        await http.close()


async def test_nobody_there(unused_port: int) -> None:
    http = AiohttpHttp(f"http://127.0.0.1:{unused_port}")
    reply = await http.get("/health")
    assert reply.status is None
    assert reply.error == "no connection: connection refused"
    await http.close()
    await http.close()
    assert (await http.get("/health")).error == "the connection was closed"


async def test_garbage_and_hang_ups_are_absence() -> None:
    answers = [b"SSH-2.0-OpenSSH_9.2\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nx"]

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answers.pop(0))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    http = AiohttpHttp(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    for _ in range(3):
        reply = await http.get("/health")
        assert reply.status is None
        assert reply.error
    await http.close()
    server.close()


async def test_a_header_that_cannot_be_sent_is_said() -> None:
    http = AiohttpHttp("http://127.0.0.1:9", headers={"X-Bad": "a\r\nb: c"})
    reply = await http.get("/health")
    assert reply.status is None
    assert reply.error
    await http.close()


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
