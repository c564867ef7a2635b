"""The measuring process's own SSH connection, for an endpoint that only a host can see."""

from __future__ import annotations

from contextlib import AsyncExitStack
from urllib.parse import urlsplit

from specdash.bench.address import Address
from specdash.bench.protocol import SshTunnel

_PORTS = {"http": 80, "https": 443}


async def local_port_of(tunnel: SshTunnel, address: Address, stack: AsyncExitStack) -> int:
    """A local port that leads to ``address`` as ``tunnel.via`` sees it; ``stack`` hangs up.

    Raises UnreachableError where the host cannot be reached.
    """
    # Here, so that a direct endpoint does not pay for loading SSH.
    from specdash.hosts.options import SshOptions
    from specdash.hosts.pool import HostPool

    parts = urlsplit(address.root)
    pool = HostPool(
        tunnel.hosts, SshOptions(config_files=tunnel.ssh_config, secrets=dict(tunnel.secrets))
    )
    stack.push_async_callback(pool.close)
    host = await pool.get(tunnel.via)
    opened = await host.tunnel(parts.hostname or "127.0.0.1", parts.port or _PORTS[parts.scheme])
    stack.push_async_callback(opened.close)
    return opened.local_port
