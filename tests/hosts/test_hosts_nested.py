from __future__ import annotations

import stat
from pathlib import Path

import pytest
from process_traces import Traces
from test_hosts_shell import ECHO, HOSTILE

from specdash.core.errors import UnreachableError, UsageError
from specdash.hosts.files import commit_file, read_file, stage_file
from specdash.hosts.local import LocalHost
from specdash.hosts.nested import NestedHost, parse_entry
from specdash.hosts.running import NotStartedError

# Stand-ins that enter "containers" as the real tools do: no shell, argv passed on, a marker that
# proves the way.
TOOLS = {
    "pct": 'test "$1 $2 $3" = "exec 129 --" || { echo "Configuration file \'nodes/n/lxc/$2.conf\' '
    'does not exist" >&2; exit 2; }; shift 3; INSIDE="$INSIDE pct" exec "$@"',
    "docker": 'test "$1 $2" = "exec -i" || exit 9; test "$3" = engine || { echo "Error response '
    'from daemon: No such container: $3" >&2; exit 1; }; shift 3; INSIDE="$INSIDE docker" exec "$@"',
    "lxc-attach": 'test "$1" = -n && test "$3" = -- || exit 9; test "$2" = up || { echo '
    '"lxc-attach: $2: Failed to get init pid" >&2; exit 1; }; shift 3; INSIDE="$INSIDE lxc" exec "$@"',
    "sudo": 'test "$1 $2" = "-n --" || exit 9; test -z "$SUDO_ASKS" || { echo "sudo: a password is '
    'required" >&2; exit 1; }; shift 2; INSIDE="$INSIDE sudo" exec "$@"',
}


@pytest.fixture(autouse=True)
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "tools"
    place.mkdir()
    for name, text in TOOLS.items():
        path = place / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    return place


def nest(entry: str, outer: LocalHost | NestedHost, *, sudo: bool = False) -> NestedHost:
    return NestedHost(f"in-{entry}", outer, parse_entry(entry), sudo=sudo)


@pytest.mark.parametrize(
    ("entry", "way"), [("pct:129", " pct"), ("docker:engine", " docker"), ("lxc:up", " lxc")]
)
async def test_argv_and_status_pass_through_every_door(
    local: LocalHost, entry: str, way: str
) -> None:
    import os
    import sys

    inside = nest(entry, local)
    done = await inside.run([sys.executable, "-c", ECHO, *HOSTILE])
    assert done.stdout.split(b"\0") == [os.fsencode(item) for item in HOSTILE]
    done = await inside.run(["sh", "-c", 'echo "$INSIDE"; cat; exit 42'], stdin=b"\0in")
    assert (done.exit_status, done.stdout) == (42, way.encode() + b"\n\0in")
    assert done.host == f"in-{entry}"


async def test_doors_and_sudo_compose(tools: Path) -> None:
    node = LocalHost("node", sudo=True)
    container = nest("pct:129", node, sudo=True)
    inner = nest("docker:engine", container)
    done = await inner.run(["sh", "-c", "echo $INSIDE"])
    assert done.stdout == b"sudo pct sudo docker\n"
    await node.close()


async def test_a_deadline_reaches_inside(local: LocalHost, traces: Traces) -> None:
    done = await nest("pct:129", local).run(
        ["env", traces.variable, "sh", "-c", "sleep 600 & wait"], timeout_s=0.4
    )
    assert done.timed_out
    await traces.until(0)


async def test_files_are_replaced_inside(local: LocalHost, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old\0")
    inside = nest("lxc:up", local)
    image = await read_file(inside, str(path))
    await commit_file(inside, await stage_file(inside, image, b"new\0"), image)
    assert path.read_bytes() == b"new\0"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("pct:130", "no such container on that node"),
        ("docker:gone", "no such container"),
        ("lxc:down", "not running"),
    ],
)
async def test_a_container_that_cannot_be_entered(
    local: LocalHost, entry: str, reason: str
) -> None:
    with pytest.raises(NotStartedError, match=reason) as caught:
        await nest(entry, local).run(["true"])
    assert caught.value.exit_code == 3
    assert caught.value.evidence
    with pytest.raises(NotStartedError, match=reason):
        async with nest(entry, local).lines(["true"]) as lines:
            await anext(lines)


async def test_a_refusal_in_unknown_words_still_names_the_container(
    local: LocalHost, tools: Path
) -> None:
    (tools / "pct").write_text("#!/bin/sh\necho 'Beschaeftigt' >&2\nexit 5\n")
    with pytest.raises(NotStartedError, match=r"pct 129.*here.*exit 5") as caught:
        await nest("pct:129", local).run(["true"])
    assert caught.value.evidence == ("Beschaeftigt",)


async def test_a_missing_tool_is_named(local: LocalHost, tools: Path) -> None:
    (tools / "pct").unlink()
    with pytest.raises(UnreachableError, match="pct"):
        await nest("pct:129", local).run(["true"])


async def test_sudo_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_ASKS", "1")
    node = LocalHost("node", sudo=True)
    for host in (node, nest("pct:129", node)):
        with pytest.raises(NotStartedError, match="sudo") as caught:
            await host.run(["true"])
        assert caught.value.code == "sudo-refused"
        assert "NOPASSWD" in caught.value.remedy


async def test_tunnels_go_through_the_outer_host(local: LocalHost) -> None:
    inside = nest("pct:129", local)
    for address in ("127.0.0.1", "localhost", "::1", "127.1.2.3"):
        with pytest.raises(UnreachableError, match="cannot be reached"):
            await inside.tunnel(address, 30000)
    tunnel = await inside.tunnel("192.0.2.7", 30000)
    assert tunnel.local_port > 0
    await tunnel.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pct",
        "pct:",
        "pct:x",
        "pct:0",
        "pct:1;id",
        "docker:",
        "docker:-x",
        "kvm:1",
        "docker:a b",
    ],
)
def test_what_is_no_entry(text: str) -> None:
    with pytest.raises(UsageError):
        parse_entry(text)
