"""The hosts of one rig: connected once, shared, connected again after a lost link."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from specdash.core.errors import UsageError
from specdash.hosts.local import LocalHost
from specdash.hosts.nested import NestedHost, parse_entry
from specdash.hosts.options import (
    AskSecret,
    SecretKind,
    SecretQuestion,
    SecretStore,
    SshOptions,
)
from specdash.hosts.protocol import Host
from specdash.hosts.running import OnCommand, ShellHost
from specdash.hosts.ssh import SshHost, connect
from specdash.rig.schema import HostSpec

__all__ = ["AskSecret", "HostPool", "SecretKind", "SecretQuestion", "SshOptions"]


class HostPool:
    """Hosts by their name in the rig file.

    ``on_command`` is told of every command that ended; it must not block.
    """

    def __init__(
        self,
        specs: Mapping[str, HostSpec],
        options: SshOptions,
        *,
        on_command: OnCommand | None = None,
    ) -> None:
        self._specs = dict(specs)
        self._options = options
        self._on_command = on_command
        self._store = SecretStore(options.secrets)
        self._hosts: dict[str, ShellHost] = {}
        self._pending: dict[str, asyncio.Task[ShellHost]] = {}
        self._closed = False

    async def get(self, name: str) -> Host:
        """The host, connected. Callers that ask at the same time share one attempt.

        Raises UnreachableError (see ssh_login), and UsageError for a name that is not there.
        """
        self._check_chain(name)
        return await self._get(name)

    def is_up(self, name: str) -> bool:
        """Whether the host is connected now; nothing is tried."""
        host = self._hosts.get(name)
        return host is not None and host.alive

    def secrets(self) -> Mapping[str, str]:
        """What was given so far, for the ``secrets`` of another process's SshOptions."""
        return self._store.view()

    async def close(self) -> None:
        """Hang up everywhere, containers before the hosts they are in. May be called twice."""
        self._closed = True
        pending = list(self._pending.values())
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        hosts = list(self._hosts.values())
        self._hosts.clear()
        await asyncio.gather(*(host.close() for host in reversed(hosts)), return_exceptions=True)

    def _check_chain(self, name: str) -> None:
        chain: list[str] = []
        step: str | None = name
        while step is not None:
            if step in chain:
                raise UsageError(
                    f"the host {name} is entered by way of itself ({' -> '.join((*chain, step))})",
                    remedy="Correct `via` in the rig file.",
                    code="host-loop",
                )
            chain.append(step)
            if step not in self._specs:
                known = ", ".join(sorted(self._specs)) or "none"
                raise UsageError(
                    f"there is no host {step} in the rig",
                    remedy=f"Known hosts: {known}.",
                    code="no-host",
                )
            step = self._specs[step].via

    async def _get(self, name: str) -> ShellHost:
        if self._closed:
            raise UsageError("the rig's connections are closed", code="closed")
        host = self._hosts.get(name)
        if host is not None and host.alive:
            return host
        task = self._pending.get(name)
        if task is None:
            task = asyncio.ensure_future(self._make(name))
            self._pending[name] = task
            task.add_done_callback(lambda done: self._made(name, done))
        return await asyncio.shield(task)

    def _made(self, name: str, task: asyncio.Task[ShellHost]) -> None:
        self._pending.pop(name, None)
        # Retrieved here too, so that an attempt nobody waits for any more is not reported as lost.
        if not task.cancelled() and task.exception() is None:
            self._hosts[name] = task.result()

    async def _make(self, name: str) -> ShellHost:
        spec = self._specs[name]
        old = self._hosts.pop(name, None)
        if old is not None:
            await old.close()
        if spec.via is not None:
            entry = parse_entry(spec.enter or "")
            outer = await self._get(spec.via)
            return NestedHost(name, outer, entry, sudo=spec.sudo, on_command=self._on_command)
        if spec.ssh is not None:
            connection = await connect(spec.ssh, name, self._options, self._store)
            return SshHost(name, connection, sudo=spec.sudo, on_command=self._on_command)
        return LocalHost(name, sudo=spec.sudo, on_command=self._on_command)
