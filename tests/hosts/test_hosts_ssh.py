from __future__ import annotations

import asyncio
import importlib.util
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest
import pytest_asyncio
from process_traces import Traces
from ssh_loopback import Behaviour, Loopback, serve

from specdash.core.clock import SystemClock, wait_until
from specdash.core.errors import UnreachableError, UsageError
from specdash.hosts.options import SecretQuestion
from specdash.hosts.pool import HostPool, SshOptions
from specdash.hosts.protocol import Completed, LinkLostError
from specdash.rig.schema import HostSpec


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory of our own: no config, key, agent or known host of the machine counts."""
    (tmp_path / ".ssh").mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path


@pytest_asyncio.fixture
async def server(home: Path) -> AsyncIterator[Loopback]:
    """Lets a key in that the client has, with a host key the client knows."""
    async with serve(home) as loopback:
        loopback.behaviour.keys.append(loopback.client_key)
        loopback.write_key()
        loopback.trust()
        yield loopback


class Asked:
    """An operator who answers from a list."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.questions: list[SecretQuestion] = []

    async def __call__(self, question: SecretQuestion) -> str | None:
        self.questions.append(question)
        return self.answers.pop(0) if self.answers else None


def keygen(path: Path, passphrase: str) -> None:
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)]
    subprocess.run(words, check=True)


async def refused(pool: HostPool, name: str = "svc") -> UnreachableError:
    with pytest.raises(UnreachableError) as caught:
        await pool.get(name)
    await pool.close()
    assert caught.value.exit_code == 3
    assert caught.value.message
    assert "\n" not in caught.value.message
    return caught.value


async def test_run_lines_and_status(server: Loopback, traces: Traces) -> None:
    seen: list[Completed] = []
    pool = HostPool(
        {"svc": HostSpec("svc", ssh=server.target)}, SshOptions(), on_command=seen.append
    )
    host = await pool.get("svc")
    assert host.name == "svc"
    done = await host.run(["sh", "-c", "printf '\\377'; echo e >&2; cat; exit 3"], stdin=b"\0x")
    assert (done.exit_status, done.stdout, done.stderr) == (3, b"\xff\0x", b"e\n")
    loop = "echo a; echo b >&2; while :; do sleep 0.1; done"
    async with host.lines(["env", traces.variable, "sh", "-c", loop]) as lines:
        assert [await anext(lines), await anext(lines)] == [b"a", b"b"]
    await traces.until(0)
    done = await host.run(["env", traces.variable, "sleep", "600"], timeout_s=0.3)
    assert done.timed_out
    await traces.until(0)
    assert [item.timed_out for item in seen] == [False, True]
    await pool.close()
    await pool.close()


async def test_callers_share_one_connection_and_at_most_eight_sessions(server: Loopback) -> None:
    pool = server.pool()
    hosts = await asyncio.gather(*(pool.get("svc") for _ in range(5)))
    assert len({id(host) for host in hosts}) == 1
    results = await asyncio.gather(*(hosts[0].run(["echo", str(i)]) for i in range(20)))
    assert [item.stdout for item in results] == [f"{i}\n".encode() for i in range(20)]
    assert server.behaviour.logins == 1
    await pool.close()


async def test_sessions_that_are_all_busy_are_said(
    server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdash.hosts.ssh._OPEN_S", 0.2)
    pool = server.pool()
    host = await pool.get("svc")
    long = [asyncio.ensure_future(host.run(["sleep", "600"])) for _ in range(8)]

    async def probe() -> bool | None:
        return True if server.behaviour.sessions == 8 else None

    await wait_until(probe, clock=SystemClock(), deadline_s=10, every_s=0.02)
    with pytest.raises(UnreachableError, match="all 8 sessions"):
        await host.run(["true"], timeout_s=0.2)
    long.pop().cancel()
    assert (await host.run(["true"])).ok
    for task in long:
        task.cancel()
    await asyncio.gather(*long, return_exceptions=True)
    await pool.close()


async def test_a_lost_link_is_an_error_and_the_next_get_connects_again(
    server: Loopback, traces: Traces
) -> None:
    seen: list[Completed] = []
    pool = HostPool(
        {"svc": HostSpec("svc", ssh=server.target)}, SshOptions(), on_command=seen.append
    )
    host = await pool.get("svc")
    running = asyncio.ensure_future(host.run(["env", traces.variable, "sleep", "600"]))
    await traces.until(1)

    async def follow() -> None:
        async with host.lines(["env", traces.variable, "sleep", "600"]) as lines:
            async for _ in lines:
                pass

    following = asyncio.ensure_future(follow())
    await traces.until(2)
    server.behaviour.connections[0].abort()
    with pytest.raises(LinkLostError, match="svc"):
        await running
    with pytest.raises(LinkLostError):
        await following
    assert [item.exit_status for item in seen] == [None]
    await traces.until(0)
    with pytest.raises(LinkLostError):
        await host.run(["true"])
    again = await pool.get("svc")
    assert again is not host
    assert (await again.run(["true"])).ok
    assert server.behaviour.logins == 2
    await pool.close()


async def test_a_tunnel_carries_bytes(server: Loopback) -> None:
    async def upper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        writer.close()

    engine = await asyncio.start_server(upper, "127.0.0.1", 0)
    pool = server.pool()
    host = await pool.get("svc")
    tunnel = await host.tunnel("127.0.0.1", engine.sockets[0].getsockname()[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", tunnel.local_port)
    writer.write(b"tokens\n")
    assert await reader.read() == b"TOKENS\n"
    writer.close()
    await tunnel.close()
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", tunnel.local_port)
    await pool.close()
    engine.close()


async def test_alias_user_port_and_key_come_from_the_config(server: Loopback) -> None:
    key = server.write_key("other_key")
    (server.home / ".ssh" / "id_ed25519").unlink()
    server.config(
        f"Host *.example\n  Port 1\nHost gpu\n  HostName 127.0.0.1\n  Port {server.port}\n"
        f"  User someone\n  IdentityFile ~/.ssh/missing\n  IdentityFile {key}\n"
        "  RequestTTY force\n  RemoteCommand exit 9\n"
    )
    pool = HostPool({"svc": HostSpec("svc", ssh="gpu")}, SshOptions())
    host = await pool.get("svc")
    assert (await host.run(["sh", "-c", "test -t 0 || echo no tty"])).stdout == b"no tty\n"
    await pool.close()


async def test_a_config_file_given_replaces_the_usual_one(server: Loopback, tmp_path: Path) -> None:
    server.config("Host gpu\n  HostName 127.0.0.1\n  Port 1\n")
    other = tmp_path / "other config"
    other.write_text(f"Host gpu\n  HostName 127.0.0.1\n  Port {server.port}\n")
    pool = HostPool({"svc": HostSpec("svc", ssh="gpu")}, SshOptions(config_files=(other,)))
    assert (await (await pool.get("svc")).run(["true"])).ok
    await pool.close()


async def test_a_missing_config_file(server: Loopback) -> None:
    error = await refused(server.pool(config_files=(Path("/nonexistent/config"),)))
    assert error.code == "ssh-config"
    assert "/nonexistent/config" in error.message


@pytest.mark.parametrize(
    "line",
    [
        "Port 22 # the usual one",
        "ProxyCommand it's",
        "ConnectTimeout 5s",
        "IdentityFile ~/.ssh/${SPECDASH_NOT_SET}",
        "Port",
    ],
)
async def test_an_unusable_config_is_named_with_its_line(server: Loopback, line: str) -> None:
    path = server.config(f"Host *\n  {line}\n")
    error = await refused(server.pool())
    assert error.code == "ssh-config"
    assert str(path) in error.message
    assert "line 2" in error.message or line.startswith("IdentityFile")
    assert error.remedy


async def test_ciphers_that_nobody_has(server: Loopback) -> None:
    server.config("Ciphers rot13\n")
    error = await refused(server.pool())
    assert error.code == "no-common-algorithm"
    assert "Ciphers" in error.remedy


# Host keys


async def test_unknown_host_key(server: Loopback) -> None:
    (server.home / ".ssh" / "known_hosts").unlink()
    error = await refused(server.pool())
    assert error.code == "host-key-unknown"
    assert server.host_key.get_fingerprint() in error.message
    assert error.remedy


async def test_changed_host_key(server: Loopback) -> None:
    (server.home / ".ssh" / "known_hosts").unlink()
    server.trust(asyncssh.generate_private_key("ssh-ed25519"))
    error = await refused(server.pool())
    assert error.code == "host-key-changed"
    assert "HAS CHANGED" in error.message
    assert server.host_key.get_fingerprint() in error.message
    assert "ssh-keygen -R" in error.remedy


async def test_a_key_of_another_type_is_known(server: Loopback) -> None:
    (server.home / ".ssh" / "known_hosts").unlink()
    server.trust(asyncssh.generate_private_key("ecdsa-sha2-nistp256"))
    error = await refused(server.pool())
    assert error.code == "host-key-unknown"
    assert "another type" in error.message
    assert server.host_key.get_fingerprint() in error.message


async def test_revoked_host_key(server: Loopback) -> None:
    server.trust(marker="@revoked ")
    error = await refused(server.pool())
    assert error.code == "host-key-revoked"


async def test_an_address_alone_proves_nothing_about_a_name(server: Loopback) -> None:
    server.config(
        f"Host gpu\n  HostName 127.0.0.1\n  HostKeyAlias gpu-alias\n  Port {server.port}\n"
    )
    pool = HostPool({"svc": HostSpec("svc", ssh="gpu")}, SshOptions())
    assert (await refused(pool)).code == "host-key-unknown"
    server.trust(name=f"[gpu-alias]:{server.port}")
    pool = HostPool({"svc": HostSpec("svc", ssh="gpu")}, SshOptions())
    await pool.get("svc")
    await pool.close()


@pytest.mark.parametrize(
    "line",
    ["UserKnownHostsFile none", "UserKnownHostsFile /dev/null", "StrictHostKeyChecking no"],
)
async def test_the_check_cannot_be_switched_off(server: Loopback, line: str) -> None:
    (server.home / ".ssh" / "known_hosts").unlink()
    server.config(f"{line}\nStrictHostKeyChecking no\n")
    assert (await refused(server.pool())).code == "host-key-unknown"


async def test_system_wide_known_hosts_count(
    server: Loopback, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = server.home / ".ssh" / "known_hosts"
    system = tmp_path / "ssh_known_hosts"
    known.rename(system)
    monkeypatch.setattr("specdash.hosts.ssh_trust._SYSTEM_FILES", (str(system),))
    pool = server.pool()
    await pool.get("svc")
    await pool.close()


async def test_hashed_and_broken_lines(server: Loopback) -> None:
    known = server.home / ".ssh" / "known_hosts"
    public = server.host_key.export_public_key().decode()
    import base64
    import hashlib
    import hmac

    salt = b"0123456789abcdefghij"
    digest = hmac.new(salt, f"[127.0.0.1]:{server.port}".encode(), hashlib.sha1).digest()
    hashed = f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
    known.write_bytes(
        b"broken\n|9|x|y ssh-ed25519 AAAA\n@odd x y\n\xff\xfe\n" + f"{hashed} {public}".encode()
    )
    pool = server.pool()
    await pool.get("svc")
    await pool.close()


# Letting in


async def test_key_refused_names_user_and_keys(server: Loopback) -> None:
    server.behaviour.keys.clear()
    server.behaviour.keys.append(asyncssh.generate_private_key("ssh-ed25519"))
    error = await refused(server.pool())
    assert error.code == "permission-denied"
    assert "user tester" in error.message
    assert str(server.home / ".ssh" / "id_ed25519") in error.message
    assert error.remedy


async def test_password_is_asked_once_and_kept_in_memory(home: Path) -> None:
    async with serve(home, Behaviour(password="s3cret")) as server:
        server.trust()
        ask = Asked("wrong", "s3cret")
        pool = server.pool(ask=ask)
        await pool.get("svc")
        assert [(q.kind, q.attempt, q.host) for q in ask.questions] == [
            ("password", 1, "svc"),
            ("password", 2, "svc"),
        ]
        assert "tester@127.0.0.1" in ask.questions[0].subject
        server.behaviour.connections[-1].abort()
        other = server.pool(secrets=pool.secrets())  # as the measuring process gets them
        await other.get("svc")
        await pool.get("svc")
        assert len(ask.questions) == 2
        assert "s3cret" not in repr(SshOptions(secrets=pool.secrets()))
        await pool.close()
        await other.close()


async def test_password_by_host_name(home: Path) -> None:
    async with serve(home, Behaviour(password="s3cret")) as server:
        server.trust()
        pool = server.pool(secrets={"svc": "s3cret"})
        await pool.get("svc")
        await pool.close()


async def test_nobody_to_ask_for_a_password(home: Path) -> None:
    async with serve(home, Behaviour(password="s3cret")) as server:
        server.trust()
        assert (await refused(server.pool())).code == "permission-denied"
        ask = Asked()
        assert (await refused(server.pool(ask=ask))).code == "permission-denied"
        ask = Asked("a", "b", "c", "d", "e")
        assert (await refused(server.pool(ask=ask))).code == "permission-denied"
        assert len(ask.questions) == 3


async def test_one_time_codes_are_asked_and_not_kept(home: Path) -> None:
    prompts = [("Password: ", False, "pw"), ("Code\x1b[2J: ", True, "123")]
    async with serve(home, Behaviour(kbdint=prompts)) as server:
        server.trust()
        ask = Asked("pw", "123")
        pool = server.pool(ask=ask)
        await pool.get("svc")
        assert [(q.kind, q.echo) for q in ask.questions] == [("password", False), ("answer", True)]
        assert ask.questions[1].prompt == "Code: "
        assert list(pool.secrets().values()) == ["pw"]
        await pool.close()


async def test_encrypted_key(server: Loopback) -> None:
    path = server.write_key(passphrase="open sesame", form="pkcs8-pem")
    error = await refused(server.pool())
    assert error.code == "key-encrypted"
    assert str(path) in error.message
    assert "ssh-add" in error.remedy
    ask = Asked("wrong", "open sesame")
    pool = server.pool(ask=ask)
    await pool.get("svc")
    assert [(q.kind, q.subject) for q in ask.questions] == [("passphrase", str(path))] * 2
    other = server.pool(secrets=pool.secrets())
    await other.get("svc")
    await pool.close()
    await other.close()


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")
async def test_encrypted_key_as_ssh_keygen_writes_it(server: Loopback) -> None:
    """Needs bcrypt; without it nobody is asked in vain."""
    key = server.home / ".ssh" / "id_ed25519"
    key.unlink()
    keygen(key, "open sesame")
    server.behaviour.keys.append(asyncssh.read_public_key(f"{key}.pub"))
    ask = Asked("open sesame")
    pool = server.pool(ask=ask)
    if importlib.util.find_spec("bcrypt") is None:
        error = await refused(pool)
        assert error.code == "key-encrypted"
        assert "bcrypt" in error.remedy
        assert ask.questions == []
        return
    await pool.get("svc")
    await pool.close()


async def test_waiting_for_an_answer_is_not_the_hosts_delay(home: Path) -> None:
    async with serve(home, Behaviour(password="s3cret")) as server:
        server.trust()

        async def slow(question: SecretQuestion) -> str:
            await asyncio.sleep(1.0)
            return "s3cret"

        pool = server.pool(ask=slow, connect_timeout_s=0.8)
        await pool.get("svc")
        await pool.close()


async def test_a_socket_of_an_agent_that_is_gone(
    server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = server.home / "agent"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(gone))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(gone))
    pool = server.pool()
    await pool.get("svc")
    await pool.close()


# Not reached


async def test_refused_connection(home: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    pool = HostPool({"svc": HostSpec("svc", ssh=f"localhost:{port}")}, SshOptions())
    assert (await refused(pool)).code == "connection-refused"


async def test_unresolved_name(home: Path) -> None:
    pool = HostPool({"svc": HostSpec("svc", ssh="specdash-nowhere.invalid")}, SshOptions())
    error = await refused(pool)
    assert error.code == "name-not-resolved"
    assert "specdash-nowhere.invalid" in error.message


async def test_a_port_that_never_speaks(home: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        target = f"127.0.0.1:{listener.getsockname()[1]}"
        pool = HostPool({"svc": HostSpec("svc", ssh=target)}, SshOptions(connect_timeout_s=0.3))
        assert (await refused(pool)).code == "connect-timed-out"


async def test_a_port_that_speaks_something_else(home: Path) -> None:
    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 60)
        writer.close()

    web = await asyncio.start_server(http, "127.0.0.1", 0)
    target = f"127.0.0.1:{web.sockets[0].getsockname()[1]}"
    pool = HostPool({"svc": HostSpec("svc", ssh=target)}, SshOptions(connect_timeout_s=5))
    assert (await refused(pool)).code == "ssh-protocol"
    web.close()


# Jump hosts and the pool


async def test_jump_hosts_are_verified_like_any_other(home: Path) -> None:
    async with serve(home) as jump, serve(home) as far:
        for server in (jump, far):
            server.behaviour.keys.append(far.client_key)
        far.write_key()
        far.trust()
        far.config(
            f"Host far\n  HostName 127.0.0.1\n  Port {far.port}\n  ProxyJump me@jump\n"
            f"Host jump\n  HostName 127.0.0.1\n  Port {jump.port}\n"
        )
        specs = {"svc": HostSpec("svc", ssh="far")}
        error = await refused(HostPool(specs, SshOptions()))
        assert error.code == "host-key-unknown"
        assert str(jump.port) in error.message
        jump.trust()
        pool = HostPool(specs, SshOptions())
        assert (await (await pool.get("svc")).run(["echo", "far"])).stdout == b"far\n"
        assert far.behaviour.sessions == 1
        assert jump.behaviour.sessions == 0
        await pool.close()
        jump.config(
            f"Host far\n  HostName 127.0.0.1\n  Port 1\n  ProxyJump jump\n"
            f"Host jump\n  HostName 127.0.0.1\n  Port {jump.port}\n"
        )
        error = await refused(HostPool(specs, SshOptions()))
        assert error.code == "jump-failed"


async def test_jump_hosts_in_a_circle(server: Loopback) -> None:
    server.config("Host *\n  ProxyJump bastion\n")
    error = await refused(server.pool())
    assert error.code == "jump-loop"


async def test_pool_refuses_what_is_not_in_the_rig(home: Path) -> None:
    pool = HostPool(
        {
            "a": HostSpec("a", via="b", enter="pct:1"),
            "b": HostSpec("b", via="a", enter="pct:2"),
            "c": HostSpec("c", via="gone", enter="pct:2"),
            "here": HostSpec("here", local=True),
        },
        SshOptions(),
    )
    for name, code in (("zz", "no-host"), ("a", "host-loop"), ("c", "no-host")):
        with pytest.raises(UsageError) as caught:
            await pool.get(name)
        assert caught.value.code == code
    assert (await pool.get("here")) is (await pool.get("here"))
    await pool.close()
    with pytest.raises(UsageError):
        await pool.get("here")


async def test_containers_share_the_outer_connection(server: Loopback) -> None:
    specs = {
        "node": HostSpec("node", ssh=server.target),
        "one": HostSpec("one", via="node", enter="docker:one"),
        "two": HostSpec("two", via="node", enter="docker:two"),
    }
    pool = HostPool(specs, SshOptions())
    one, two = await asyncio.gather(pool.get("one"), pool.get("two"))
    assert server.behaviour.logins == 1
    server.behaviour.connections[0].abort()

    async def probe() -> bool | None:
        return True if await pool.get("one") is not one else None

    await wait_until(probe, clock=SystemClock(), deadline_s=10, every_s=0.02)
    assert await pool.get("two") is not two
    assert server.behaviour.logins == 2
    await pool.close()


async def test_a_failed_attempt_is_tried_again_by_the_next_caller(server: Loopback) -> None:
    known = server.home / ".ssh" / "known_hosts"
    text = known.read_text()
    known.write_text("")
    pool = server.pool()
    results = await asyncio.gather(pool.get("svc"), pool.get("svc"), return_exceptions=True)
    assert [getattr(item, "code", None) for item in results] == ["host-key-unknown"] * 2
    assert server.behaviour.logins == 1
    known.write_text(text)
    await pool.get("svc")
    await pool.close()


async def test_noise_of_a_login_shell_is_not_output(server: Loopback) -> None:
    """What an rc file prints comes before the mark, on both streams."""
    from specdash.hosts.shell import wrap

    assert wrap(["true"], mark="m").mark == b"\x02m\n"
    pool = server.pool()
    host = await pool.get("svc")
    original = host.open  # type: ignore[attr-defined]

    async def noisy(words: tuple[str, ...], *, wait_s: float) -> object:
        text = 'echo Welcome; echo "tput: no terminal" >&2; exec "$@"'
        return await original(("/bin/sh", "-c", text, "sh", *words), wait_s=wait_s)

    host.open = noisy  # type: ignore[attr-defined]
    done = await host.run(["sh", "-c", "echo out; echo err >&2"])
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")
    async with host.lines(["echo", "line"]) as lines:
        assert [line async for line in lines] == [b"line"]

    async def nologin(words: tuple[str, ...], *, wait_s: float) -> object:
        text = "echo This account is currently not available.; exit 1"
        return await original(("/bin/sh", "-c", text), wait_s=wait_s)

    host.open = nologin  # type: ignore[attr-defined]
    with pytest.raises(UnreachableError, match="does not run commands") as caught:
        await host.run(["true"])
    assert caught.value.evidence == ("This account is currently not available.",)
    await pool.close()
