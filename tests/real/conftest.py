"""Fixtures of the real tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import rig_up
from needs import cannot_run


@pytest.fixture(scope="session")
def real_rig() -> Iterator[rig_up.RealRig]:
    """The real rig, up for all tests of this worker; put back by each test that changes it."""
    if (reason := rig_up.missing()) is not None:
        cannot_run(reason)
    rig = rig_up.bring_up()
    yield rig
    rig.machine.close()
