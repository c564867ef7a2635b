"""A host that is this machine, and what it leaves behind."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from process_traces import Traces

from specdash.hosts.local import LocalHost


@pytest.fixture
def traces() -> Traces:
    return Traces()


@pytest_asyncio.fixture
async def local() -> AsyncIterator[LocalHost]:
    host = LocalHost("here")
    yield host
    await host.close()


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL soon after SIGTERM."""
    monkeypatch.setattr("specdash.hosts.shell.GRACE_S", 0.3)
