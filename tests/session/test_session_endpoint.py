"""The tunnel to the endpoint is opened once, kept, and made anew only with a new connection."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

from aiohttp import web
from aiohttp.test_utils import TestServer

from specdash.core.errors import UnreachableError
from specdash.hosts.protocol import Host
from specdash.session.endpoint import TunnelledHttp


@dataclass
class FakeTunnel:
    local_port: int
    closed: bool = False

    async def close(self) -> None:
        self.closed = True


@dataclass
class TunnelHost:
    port: int
    opened: list[FakeTunnel] = field(default_factory=list)

    async def tunnel(self, address: str, port: int) -> FakeTunnel:
        await asyncio.sleep(0)
        self.opened.append(FakeTunnel(self.port))
        return self.opened[-1]


async def _answer(_: web.Request) -> web.Response:
    return web.json_response({"ok": True})


async def _server() -> TestServer:
    app = web.Application()
    app.router.add_get("/health", _answer)
    server = TestServer(app)
    await server.start_server()
    return server


async def test_many_askers_share_one_tunnel_and_a_new_link_brings_a_new_one() -> None:
    server = await _server()
    hosts = [TunnelHost(server.port or 0), TunnelHost(server.port or 0)]
    current = hosts[0]

    async def through() -> Host:
        return cast("Host", current)

    http = TunnelledHttp("http://gpu.lan:30000", tunnel_host=through)
    replies = await asyncio.gather(*(http.get("/health") for _ in range(5)))
    assert [reply.status for reply in replies] == [200] * 5
    assert (await http.get("/none")).status == 404
    assert len(hosts[0].opened) == 1
    current = hosts[1]
    assert (await http.get("/health")).status == 200
    assert hosts[0].opened[0].closed
    assert len(hosts[1].opened) == 1
    await http.close()
    assert hosts[1].opened[0].closed
    assert (await http.get("/health")).status is None
    await server.close()


async def test_a_host_that_cannot_be_reached_is_an_answer_not_an_exception() -> None:
    async def through() -> Host:
        raise UnreachableError("svc is down")

    http = TunnelledHttp("http://gpu.lan:30000", tunnel_host=through)
    reply = await http.post("/generate", {})
    assert reply.status is None
    assert reply.error == "svc is down"
    await http.close()
