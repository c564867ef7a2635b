"""The hosts room against a real OpenSSH server, and through real login shells."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from needs import cannot_run, require
from sshd import Sshd, run, sshd, write_config

from specdash.core.clock import SystemClock, wait_until
from specdash.core.errors import UnreachableError
from specdash.hosts.files import FileChangedError, commit_file, read_file, stage_file
from specdash.hosts.pool import HostPool, SshOptions
from specdash.hosts.protocol import Host, LinkLostError
from specdash.rig.schema import HostSpec

pytestmark = pytest.mark.real

SHELLS = ("sh", "dash", "bash", "zsh", "fish", "tcsh")
HOSTILE = [
    "",
    " ",
    "two  words",
    "'",
    '"\'"',
    "$HOME",
    "`id`",
    "$(id)",
    "\\",
    "\\\\",
    "a\\",
    "line\nbreak\n",
    "\n",
    "\r\t",
    "!",
    "!!x",
    "^a^b",
    "~",
    "*",
    "{a,b}",
    "=ls",
    "%b\\0101",
    "#",
    ";&|<>()",
    "é漢字🙂",
    "\udcff\udc80",
    "".join(os.fsdecode(bytes([byte])) for byte in range(1, 256)),
    '{"method":"eagle3","num_speculative_tokens":3}',
]
ECHO = "import os,sys;sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode,sys.argv[1:])))"


def shell_command(path: str) -> str:
    """What sshd does for a user whose login shell is ``path``: run it with -c and the command."""
    return f'exec {path} -c "$SSH_ORIGINAL_COMMAND"'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    forced = {shell: shell_command(path) for shell in SHELLS if (path := shutil.which(shell))}
    forced["noisy"] = f'echo "Welcome!"; echo oops >&2; {shell_command("/bin/sh")}'
    forced["nologin"] = "echo This account is currently not available.; exit 1"
    with sshd(tmp_path_factory.mktemp("sshd"), forced) as running:
        yield running


class Client:
    """A client with a home directory of its own that knows the server's key."""

    def __init__(self, server: Sshd, home: Path) -> None:
        self.server = server
        self.home = home
        self.known = home / "known_hosts"
        self.pools: list[HostPool] = []
        self.trust()

    def trust(self, key: str | None = None) -> None:
        self.known.write_text(
            "".join(
                f"[127.0.0.1]:{port} {key or self.server.host_key}\n"
                for port in self.server.ports.values()
            )
        )

    def config(self, extra: str = "") -> Path:
        blocks = [
            f"Host {name}\n  HostName 127.0.0.1\n  Port {port}\n"
            for name, port in self.server.ports.items()
        ]
        common = (
            f"Host *\n  IdentityFile {self.server.client_key}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.known}\n"
        )
        return write_config(self.home, extra + "".join(blocks) + common)

    def pool(self, *names: str, extra: str = "") -> HostPool:
        specs = {name: HostSpec(name, ssh=name) for name in names}
        pool = HostPool(specs, SshOptions(config_files=(self.config(extra),)))
        self.pools.append(pool)
        return pool

    async def host(self, name: str = "plain") -> Host:
        return await self.pool(name).get(name)


@pytest.fixture
async def client(server: Sshd, tmp_path: Path):  # type: ignore[no-untyped-def]
    client = Client(server, tmp_path)
    yield client
    for pool in client.pools:
        await pool.close()


def marked(mark: str) -> list[str]:
    """Living processes with ``mark`` in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(entry.name)
            except OSError:
                continue
    return found


async def until_marked(mark: str, count: int) -> None:
    async def probe() -> bool | None:
        return True if len(marked(mark)) == count else None

    await wait_until(probe, clock=SystemClock(), deadline_s=20, every_s=0.05)


@pytest.fixture
def mark(tmp_path: Path) -> str:
    return f"SPECDASH_REAL_{tmp_path.name}_{os.getpid()}"


@pytest.mark.parametrize("shell", SHELLS)
async def test_argv_stdin_and_status_through_login_shells(client: Client, shell: str) -> None:
    require(shell)
    host = await client.host(shell)
    done = await host.run([sys.executable, "-c", ECHO, *HOSTILE])
    assert done.stdout.split(b"\0") == [os.fsencode(item) for item in HOSTILE]
    assert done.stderr == b""
    data = bytes(range(256)) * 50
    done = await host.run(["sh", "-c", "cat; echo err >&2; exit 42"], stdin=data)
    assert (done.exit_status, done.stdout, done.stderr) == (42, data, b"err\n")


@pytest.mark.parametrize("shell", SHELLS)
async def test_a_stream_that_is_left_ends_through_login_shells(
    client: Client, shell: str, mark: str
) -> None:
    require(shell)
    host = await client.host(shell)
    loop = "echo one; echo two >&2; sleep 600 & sleep 600"
    async with host.lines(["env", f"{mark}=1", "sh", "-c", loop]) as lines:
        assert [await anext(lines), await anext(lines)] == [b"one", b"two"]
    await until_marked(mark, 0)


async def test_a_deadline_ends_the_command_and_its_children(client: Client, mark: str) -> None:
    host = await client.host()
    loop = "echo one; sleep 600 & sleep 600"
    done = await host.run(["env", f"{mark}=1", "sh", "-c", loop], timeout_s=5.0)
    assert done.timed_out
    assert done.stdout == b"one\n"
    await until_marked(mark, 0)


async def test_what_a_login_shell_prints_is_not_output(client: Client) -> None:
    host = await client.host("noisy")
    done = await host.run(["sh", "-c", "echo out; echo err >&2"])
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")


async def test_a_login_without_a_shell(client: Client) -> None:
    host = await client.host("nologin")
    with pytest.raises(UnreachableError, match="does not run commands") as caught:
        await host.run(["true"])
    assert caught.value.evidence == ("This account is currently not available.",)


async def test_more_commands_than_sshd_allows_sessions(client: Client) -> None:
    host = await client.host()
    results = await asyncio.gather(*(host.run(["echo", str(i)], timeout_s=60) for i in range(24)))
    assert [item.stdout for item in results] == [f"{i}\n".encode() for i in range(24)]


async def test_a_dropped_connection_ends_what_ran(client: Client, mark: str) -> None:
    host = await client.host()
    sleeper = ["env", f"{mark}=1", "sh", "-c", "sleep 600 & sleep 600"]
    running = asyncio.ensure_future(host.run(sleeper, timeout_s=600))
    await until_marked(mark, 3)
    os.kill(await session_pid(host), signal.SIGKILL)
    with pytest.raises(LinkLostError):
        await running
    await until_marked(mark, 0)
    with pytest.raises(LinkLostError):
        await host.run(["true"])
    again = await client.pools[-1].get("plain")
    assert (await again.run(["true"])).ok


async def test_a_killed_client_leaves_nothing(client: Client, mark: str) -> None:
    """SIGKILL of the whole application: only the server can notice."""
    program = (
        "import asyncio,sys,pathlib\n"
        "from specdash.hosts.pool import HostPool, SshOptions\n"
        "from specdash.rig.schema import HostSpec\n"
        "async def main():\n"
        "    options = SshOptions(config_files=(pathlib.Path(sys.argv[1]),))\n"
        "    host = await HostPool({'h': HostSpec('h', ssh='plain')}, options).get('h')\n"
        "    async with host.lines(sys.argv[2:]) as lines:\n"
        "        async for line in lines:\n"
        "            print(line.decode(), flush=True)\n"
        "asyncio.run(main())\n"
    )
    remote = ["env", f"{mark}=1", "sh", "-c", "echo up; sleep 600 & sleep 600"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        str(client.config()),
        *remote,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"up\n"
    await until_marked(mark, 3)
    process.kill()
    await process.wait()
    await until_marked(mark, 0)


async def test_a_frozen_peer_is_noticed(client: Client) -> None:
    host = await client.host()
    pid = await session_pid(host)
    os.kill(pid, signal.SIGSTOP)
    try:
        # Only the keepalive can end this one: its own deadline lies far beyond.
        async with asyncio.timeout(60):
            with pytest.raises(LinkLostError):
                await host.run(["true"], timeout_s=600)
    finally:
        # Once it runs again it finds its client gone and may end by itself first.
        for number in (signal.SIGCONT, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


async def session_pid(host: Host) -> int:
    """The server process of this connection: the parent of the script that runs the command."""
    script = 'read -r _ _ _ parent _ <"/proc/$PPID/stat"; echo "$parent"'
    done = await host.run(["sh", "-c", script])
    return int(done.stdout)


async def refusal(client: Client, name: str = "plain", extra: str = "") -> UnreachableError:
    with pytest.raises(UnreachableError) as caught:
        await client.pool(name, extra=extra).get(name)
    assert caught.value.exit_code == 3
    return caught.value


async def test_unknown_host_key(client: Client) -> None:
    client.known.unlink()
    for extra in ("", "StrictHostKeyChecking no\n", "UserKnownHostsFile none\n"):
        error = await refusal(client, extra=extra)
        assert error.code == "host-key-unknown"
        assert client.server.fingerprint() in error.message


async def test_changed_host_key(client: Client, tmp_path: Path) -> None:
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other"))
    client.trust(" ".join((tmp_path / "other.pub").read_text().split()[:2]))
    error = await refusal(client)
    assert error.code == "host-key-changed"
    assert client.server.fingerprint() in error.message


async def test_hashed_known_hosts(client: Client) -> None:
    run("ssh-keygen", "-H", "-f", str(client.known))
    assert "127.0.0.1" not in client.known.read_text()
    assert (await (await client.host()).run(["true"])).ok


async def test_key_refused(client: Client, tmp_path: Path) -> None:
    other = tmp_path / "other"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other))
    config = write_config(
        tmp_path,
        f"Host refused\n  HostName 127.0.0.1\n  Port {client.server.ports['plain']}\n"
        f"  IdentityFile {other}\n  IdentitiesOnly yes\n  UserKnownHostsFile {client.known}\n",
    )
    pool = HostPool({"h": HostSpec("h", ssh="refused")}, SshOptions(config_files=(config,)))
    with pytest.raises(UnreachableError) as caught:
        await pool.get("h")
    assert caught.value.code == "permission-denied"
    assert str(other) in caught.value.message
    assert client.server.user in caught.value.message
    await pool.close()


async def test_proxy_jump(client: Client) -> None:
    logins = client.server.log().count("Accepted publickey")
    pool = client.pool("noisy", extra="Host noisy\n  ProxyJump plain\n")
    done = await (await pool.get("noisy")).run(["sh", "-c", "echo $SSH_CONNECTION"])
    assert done.stdout.split()[-1] == str(client.server.ports["noisy"]).encode()
    assert client.server.log().count("Accepted publickey") == logins + 2


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o4755])
async def test_a_replaced_file_keeps_mode_and_owner(
    client: Client, tmp_path: Path, mode: int
) -> None:
    path = tmp_path / "infer 'x' $y.service"
    path.write_bytes(b"[Service]\nExecStart=/bin/true --k 3\n")
    if os.geteuid() == 0:
        os.chown(path, 12345, 23456)
    path.chmod(mode)
    link = tmp_path / "link.service"
    link.symlink_to(path)
    before = path.stat()
    host = await client.host()
    image = await read_file(host, str(link))
    staged = await stage_file(host, image, b"[Service]\nExecStart=/bin/true --k 4\n\0\xff")
    committed = await commit_file(host, staged, image)
    after = path.stat()
    assert path.read_bytes() == staged.data
    assert link.is_symlink()
    assert (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)) == (
        before.st_uid,
        before.st_gid,
        mode,
    )
    with pytest.raises(FileChangedError):
        await commit_file(host, await stage_file(host, image, b"late"), image)
    assert path.read_bytes() == staged.data
    kept = await read_file(host, committed.backup)
    assert kept.data == image.data


async def test_tunnel(client: Client) -> None:
    async def upper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        writer.close()

    engine = await asyncio.start_server(upper, "127.0.0.1", 0)
    host = await client.host()
    tunnel = await host.tunnel("127.0.0.1", engine.sockets[0].getsockname()[1])
    for _ in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", tunnel.local_port)
        writer.write(b"tokens\n")
        assert await reader.read() == b"TOKENS\n"
        writer.close()
    await tunnel.close()
    engine.close()


def test_the_shells_of_the_matrix_are_all_there() -> None:
    """In CI the matrix has to be whole; elsewhere a missing shell is skipped above."""
    missing = [shell for shell in SHELLS if shutil.which(shell) is None]
    if missing:
        cannot_run(f"not installed: {', '.join(missing)}")
