"""The measuring process's own SSH connection."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from mock_endpoint import mock_endpoint

from specdash.bench.protocol import Endpoint, SshTunnel, Workload
from specdash.bench.runner import open_bench
from specdash.core.clock import SystemClock
from specdash.core.errors import UnreachableError
from specdash.rig.schema import HostSpec

sys.path.insert(0, str(Path(__file__).parents[1] / "hosts"))

from ssh_loopback import Behaviour, serve

WORK = Workload(output_tokens=32, requests=3, budget_s=20.0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / ".ssh" / "known_hosts").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path


def seen_from_outside(pid: int) -> bytes:
    """What any user of the machine could read of a process."""
    return b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))


@pytest.mark.parametrize("password", ["s3cret-pa55", "wrong-pa55"], ids=["right", "wrong"])
async def test_a_password_given_on_screen_opens_the_tunnel(home: Path, password: str) -> None:
    async with (
        mock_endpoint(step_s=0.001) as mock,
        serve(home, Behaviour(password="s3cret-pa55")) as server,
    ):
        server.trust()
        tunnel = SshTunnel(
            via="svc",
            hosts={"svc": HostSpec("svc", ssh=server.target)},
            secrets={"svc": password},
        )
        endpoint = Endpoint(mock.url, tunnel=tunnel)
        async with open_bench(endpoint, WORK, clock=SystemClock()) as bench:
            worker = bench._worker
            assert worker is not None
            assert password.encode() not in seen_from_outside(worker._process.pid)
            if password.startswith("wrong"):
                with pytest.raises(UnreachableError) as caught:
                    await bench.identify()
                assert password not in str(caught.value.evidence) + caught.value.message
                return
            events = [event async for event in bench.measure(2)]
            assert server.behaviour.logins == 1
    assert events[-1].cell.requests.ok == 3


async def test_the_tunnel_ends_with_the_process(home: Path) -> None:
    async with mock_endpoint() as mock, serve(home, Behaviour(password="s3cret-pa55")) as server:
        server.trust()
        hosts = {"svc": HostSpec("svc", ssh=server.target)}
        tunnel = SshTunnel(via="svc", hosts=hosts, secrets={"svc": "s3cret-pa55"})
        endpoint = Endpoint(mock.url, tunnel=tunnel)
        async with open_bench(endpoint, WORK, clock=SystemClock()) as bench:
            await bench.identify()
            (connection,) = server.behaviour.connections
        await connection.wait_closed()
        assert connection.is_closed()
