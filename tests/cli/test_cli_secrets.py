"""Secrets of the headless verbs: asked on the terminal, unseen, and only where there is one."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hosts"))

from ssh_loopback import Behaviour, Loopback, serve

SECRET = "s3cret-at-the-terminal"
RUN = "import sys; from specdash.cli.main import main; main(sys.argv[1:])"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / ".ssh" / "known_hosts").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return tmp_path


class Terminal:
    """A verb at a terminal of its own; stdout goes to a pipe, as with ``--json | jq``."""

    def __init__(self, *words: str) -> None:
        self.master, slave = pty.openpty()

        def own_terminal() -> None:
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, *words],
            stdin=slave,
            stdout=subprocess.PIPE,
            stderr=slave,
            preexec_fn=own_terminal,
        )
        self.slave = slave
        self.seen = ""

    async def until(self, words: str) -> None:
        """Read what the terminal shows until ``words`` are there."""
        async with asyncio.timeout(30):
            while words not in self.seen:
                data = await asyncio.to_thread(os.read, self.master, 4096)
                self.seen += data.decode("utf-8", "replace")

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    @property
    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self.slave)[3] & termios.ECHO)

    async def end(self) -> tuple[int, str]:
        """Exit status and stdout."""
        stdout, _ = await asyncio.to_thread(self.process.communicate, None, 30)
        os.set_blocking(self.master, False)
        with suppress(OSError):
            self.seen += os.read(self.master, 65536).decode("utf-8", "replace")
        return self.process.returncode, stdout.decode()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@asynccontextmanager
async def at_a_terminal(home: Path) -> AsyncIterator[tuple[Terminal, Loopback]]:
    async with serve(home, Behaviour(password=SECRET)) as server:
        server.trust()
        terminal = Terminal("gpus", server.target, "--json")
        try:
            yield terminal, server
        finally:
            terminal.close()


async def test_a_password_is_asked_at_the_terminal_and_not_echoed(home: Path) -> None:
    async with at_a_terminal(home) as (terminal, server):
        await terminal.until("password:")
        assert not terminal.echoes
        terminal.type("not-this-one\n")
        await terminal.until("not accepted, again:")
        terminal.type(f"{SECRET}\n")
        _, stdout = await terminal.end()
        assert terminal.echoes
        assert server.behaviour.sessions > 0, "it was let in"
    document = json.loads(stdout)
    assert document.get("error", {}).get("code") != "permission-denied"
    assert SECRET not in stdout + terminal.seen
    assert "not-this-one" not in stdout + terminal.seen


async def test_ctrl_c_at_the_question_leaves_a_terminal_that_echoes(home: Path) -> None:
    async with at_a_terminal(home) as (terminal, _):
        await terminal.until("password:")
        terminal.type("half\x03")
        status, stdout = await terminal.end()
        assert status == 130
        assert terminal.echoes
        assert "Traceback" not in terminal.seen
        assert json.loads(stdout)["error"]["code"] == "interrupted"


async def test_an_empty_line_goes_on_without(home: Path) -> None:
    async with at_a_terminal(home) as (terminal, _):
        await terminal.until("password:")
        terminal.type("\n")
        status, stdout = await terminal.end()
        assert status == 3
        assert json.loads(stdout)["error"]["code"] == "permission-denied"


async def test_without_a_terminal_nobody_is_asked(home: Path) -> None:
    async with serve(home, Behaviour(password=SECRET)) as server:
        server.trust()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            RUN,
            "gpus",
            server.target,
            "--json",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        stdout, stderr = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 3
    assert json.loads(stdout)["error"]["code"] == "permission-denied"
    assert b"password:" not in stderr
