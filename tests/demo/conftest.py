from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import aiohttp
import asyncssh
import pytest

from specdash.demo.box import Box, Isolation, start_box
from specdash.demo.faults import Fault

UNIT = "sglang-qwen.service"
PATIENCE_S = 30.0


@dataclass
class Ran:
    status: int | None
    out: str
    err: str


@dataclass
class Rig:
    """A box with plain clients: nothing of the product between the test and the box."""

    box: Box
    svc: asyncssh.SSHClientConnection
    node: asyncssh.SSHClientConnection
    http: aiohttp.ClientSession

    async def sh(self, command: str, *, on: str = "svc", stdin: str | None = None) -> Ran:
        connection = self.svc if on == "svc" else self.node
        done = await connection.run(
            command,
            encoding=None,
            **({"stdin": asyncssh.DEVNULL} if stdin is None else {"input": stdin.encode()}),
        )
        return Ran(done.exit_status, _text(done.stdout), _text(done.stderr))

    async def show(self, *names: str) -> dict[str, str]:
        ran = await self.sh(f"systemctl show {UNIT} -p {','.join(names)}")
        return dict(line.split("=", 1) for line in ran.out.splitlines())

    async def get(self, path: str) -> tuple[int | None, object]:
        try:
            async with self.http.get(self.box.rig.engine.url + path) as reply:
                body = await reply.read()
                kind = reply.headers.get("content-type", "")
                return reply.status, await reply.json() if "json" in kind and body else body
        except aiohttp.ClientError:
            return None, None

    async def post(self, path: str, body: object) -> tuple[int, object]:
        async with self.http.post(self.box.rig.engine.url + path, json=body) as reply:
            return reply.status, await reply.json()

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Poll an async condition; fails after PATIENCE_S."""
        end = time.monotonic() + PATIENCE_S
        while True:
            value = condition()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return
            assert time.monotonic() < end, f"never came true: {what}"
            await asyncio.sleep(0.02)

    async def ready(self) -> None:
        async def healthy() -> bool:
            return (await self.get("/health"))[0] == 200

        await self.until(healthy, "healthy")

    async def state(self, wanted: str) -> None:
        async def reached() -> bool:
            return (await self.show("ActiveState"))["ActiveState"] == wanted

        await self.until(reached, f"state {wanted}")

    async def edit(self, *flags: tuple[str, str]) -> None:
        """Change flags of the unit with sed, as a person would."""
        script = ";".join(f"s/{name} [^ ]*/{name} {value}/" for name, value in flags)
        ran = await self.sh(f"sed -i '{script}' {self.box.rig.config.path}")
        assert ran.status == 0, ran.err

    async def used(self) -> list[int]:
        ran = await self.sh(
            "nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits", on="node"
        )
        return [int(line) for line in ran.out.split()]


def _text(data: bytes | str | None) -> str:
    return data.decode() if isinstance(data, bytes) else data or ""


OpenRig = Callable[..., AbstractAsyncContextManager[Rig]]


@pytest.fixture
def open_rig() -> OpenRig:
    @asynccontextmanager
    async def opened(
        *,
        steps: int = 1,
        speed: float = 1000.0,
        faults: tuple[Fault, ...] = (),
        isolation: Isolation | None = None,
        stopped: bool = False,
    ) -> AsyncIterator[Rig]:
        async with contextlib.AsyncExitStack() as stack:
            box = await stack.enter_async_context(
                await start_box(
                    steps=steps, speed=speed, faults=faults, isolation=isolation, stopped=stopped
                )
            )
            config = [str(box.ssh_config)]
            svc = await stack.enter_async_context(asyncssh.connect("svc", config=config))
            node = await stack.enter_async_context(asyncssh.connect("node", config=config))
            http = await stack.enter_async_context(aiohttp.ClientSession())
            yield Rig(box, svc, node, http)

    return opened
