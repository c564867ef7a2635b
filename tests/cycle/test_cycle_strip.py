"""Containers that a reload would strip of their GPUs are named; without Docker there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from specdash.cycle.strip import containers_at_risk, needs_reload
from specdash.hosts.protocol import Completed, Host

INSPECTED = b"""\
{"name":"/triton","runtime":"nvidia","devices":null}
{"name":"/web","runtime":"runc","devices":null}
{"name":"/vllm","runtime":"runc","devices":[{"Driver":"","Count":-1,"Capabilities":[["gpu"]]}]}
not json
"""


class DockerHost:
    """Answers docker's three questions."""

    name = "svc"

    def __init__(self, ids: bytes, driver: bytes = b"systemd\n", status: int = 0) -> None:
        self._answers = {"ps": ids, "info": driver, "inspect": INSPECTED}
        self._status = status

    async def run(
        self, argv: Sequence[str], *, timeout_s: float = 30.0, stdin: bytes | None = None
    ) -> Completed:
        answer = self._answers[argv[1]]
        return Completed("svc", tuple(argv), self._status, answer, b"", 0.0)


@pytest.mark.parametrize(
    ("host", "names"),
    [
        (DockerHost(b"aa\nbb\ncc\n"), ("triton", "vllm")),
        (DockerHost(b"aa\n", b"cgroupfs\n"), ()),
        (DockerHost(b""), ()),
        (DockerHost(b"", status=127), ()),
    ],
)
async def test_who_is_at_risk(host: DockerHost, names: tuple[str, ...]) -> None:
    assert await containers_at_risk(cast("Host", host)) == names


@pytest.mark.parametrize(
    ("path", "reload"),
    [
        ("/etc/systemd/system/sglang.service", True),
        ("/etc/systemd/system/sglang.service.d/10-depth.conf", True),
        ("/etc/default/sglang", False),
        ("/opt/start.sh", False),
        ("/etc/app.conf", False),
    ],
)
def test_which_edits_need_a_reload(path: str, reload: bool) -> None:
    assert needs_reload(path) is reload
