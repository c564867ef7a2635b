"""The engine's HTTP endpoint as the session reaches it: direct, or through a tunnel of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit, urlunsplit

from specdash.core.errors import UnreachableError
from specdash.engines.http import AiohttpHttp
from specdash.engines.protocol import HttpReply
from specdash.hosts.protocol import Host, Tunnel


class TunnelledHttp:
    """Implements ``Http``. Opens the tunnel on first use, and again after the link was lost."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        tunnel_host: Callable[[], Awaitable[Host]] | None = None,
    ) -> None:
        self._url = url
        self._api_key = api_key
        self._tunnel_host = tunnel_host
        self._tunnel: Tunnel | None = None
        self._http: AiohttpHttp | None = None
        self._through: Host | None = None
        # The status stream and a cycle ask at the same time; one of them opens.
        self._opening = asyncio.Lock()
        self._closed = False

    async def get(self, path: str, *, timeout_s: float = 5.0) -> HttpReply:
        try:
            http = await self._open()
        except UnreachableError as error:
            return HttpReply(None, error=error.message)
        return await http.get(path, timeout_s=timeout_s)

    async def post(
        self, path: str, body: Mapping[str, object], *, timeout_s: float = 60.0
    ) -> HttpReply:
        try:
            http = await self._open()
        except UnreachableError as error:
            return HttpReply(None, error=error.message)
        return await http.post(path, body, timeout_s=timeout_s)

    async def close(self) -> None:
        """Drop connections and the tunnel."""
        self._closed = True
        async with self._opening:
            await self._drop()

    async def _drop(self) -> None:
        http, self._http = self._http, None
        tunnel, self._tunnel = self._tunnel, None
        if http is not None:
            await http.close()
        if tunnel is not None:
            await tunnel.close()

    async def _open(self) -> AiohttpHttp:
        async with self._opening:
            if self._closed:
                raise UnreachableError("The rig is closed.")
            host = None if self._tunnel_host is None else await self._tunnel_host()
            if host is not self._through:
                # The link was lost and made anew: the tunnel went with it.
                await self._drop()
            if self._http is None:
                self._http = AiohttpHttp(await self._local_url(host), api_key=self._api_key)
                self._through = host
            return self._http

    async def _local_url(self, host: Host | None) -> str:
        if host is None:
            return self._url
        parts = urlsplit(self._url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tunnel = await host.tunnel(parts.hostname or "127.0.0.1", port)
        netloc = f"127.0.0.1:{self._tunnel.local_port}"
        return urlunsplit((parts.scheme, netloc, parts.path, "", ""))
