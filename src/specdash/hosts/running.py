"""Running and streaming on anything that can start an argument list."""

from __future__ import annotations

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from specdash.core.errors import UnreachableError, WorkFailedError
from specdash.hosts.channel import Channel, Inbox
from specdash.hosts.protocol import Completed, LinkLostError, Tunnel, evidence_of
from specdash.hosts.shell import GRACE_S, Unframer, Wrapped, wrap

OnCommand = Callable[[Completed], None]

MAX_OUTPUT = 64 << 20
"""Bytes one command may print before it is ended."""

_DRAIN_S = 2.0  # a child left behind may hold the streams open after the command's end
_END_S = 1.0
_MAX_LINE = 1 << 20


class NotStartedError(UnreachableError):
    """The host was reached but the command could not be started there."""

    default_code = "not-started"


class ShellHost(ABC):
    """What every host shares: the script around a command, its deadline, its streams."""

    def __init__(self, name: str, *, sudo: bool, on_command: OnCommand | None) -> None:
        self._name = name
        self._sudo: tuple[str, ...] = ("sudo", "-n", "--") if sudo else ()
        self._on_command = on_command

    @property
    def name(self) -> str:
        return self._name

    @property
    @abstractmethod
    def alive(self) -> bool:
        """False once the link is lost or closed."""

    @abstractmethod
    async def open(self, words: Sequence[str], *, wait_s: float) -> Channel:
        """Start ``words`` (see shell.login_line for what they may hold).

        ``wait_s``: how long to wait for a free session. Raises UnreachableError.
        """

    @abstractmethod
    async def tunnel(self, address: str, port: int) -> Tunnel: ...

    @abstractmethod
    async def close(self) -> None: ...

    def explain_start(self, noise: bytes) -> NotStartedError | None:
        """Why a command could not be started, from what was printed instead of its output."""
        if self._sudo and b"sudo:" in noise:
            return NotStartedError(
                f"{self._name}: sudo does not let specdash in without a password",
                remedy="Allow the login to run sudo with NOPASSWD there, log in as root, or drop "
                "`sudo = true`.",
                code="sudo-refused",
            )
        return None

    def refusal(self, status: int) -> NotStartedError:
        """What to say where nothing is recognised."""
        return NotStartedError(
            f"{self._name} does not run commands: its shell answered with exit {status}",
            remedy="Check that the login has a usable shell there (no nologin, no forced command).",
        )

    async def run(
        self, argv: Sequence[str], *, timeout_s: float = 30.0, stdin: bytes | None = None
    ) -> Completed:
        """See :class:`specdash.hosts.protocol.Host`."""
        words = tuple(argv)
        clock = asyncio.get_running_loop().time
        began = clock()
        # The deadline over there only counts where the closing of stdin does not get through.
        wrapped = wrap(words, mark=_mark(), deadline_s=timeout_s + 2 * GRACE_S, stdin=stdin)
        channel = await self._start(wrapped, wait_s=timeout_s)
        out, err = _Collected(channel.out, wrapped), _Collected(channel.err, wrapped)
        readers = asyncio.gather(out.collect(), err.collect())
        timed_out = False
        status: int | None = None
        try:
            try:
                async with asyncio.timeout(timeout_s):
                    status = await _first_of(channel, readers)
            except TimeoutError:
                timed_out = True
                channel.send_eof()
                status = await channel.end(GRACE_S + 3.0)
            await _settle(readers, _DRAIN_S)
        finally:
            await channel.end(_END_S)
            readers.cancel()
            await asyncio.gather(readers, return_exceptions=True)
        completed = Completed(
            host=self._name,
            argv=words,
            exit_status=status,
            stdout=bytes(out.data),
            stderr=bytes(err.data),
            seconds=clock() - began,
            timed_out=timed_out,
        )
        if not timed_out and status is not None and not out.frame.begun:
            raise self._not_started(status, out.frame.noise + err.frame.noise)
        if self._on_command is not None:
            self._on_command(completed)
        if status is None and not timed_out:
            raise LinkLostError(
                f"the connection to {self._name} was lost while {words[0]} ran",
                remedy="Its outcome is unknown; read the state again once the host answers.",
                evidence=evidence_of(completed),
            )
        return completed

    def lines(self, argv: Sequence[str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """See :class:`specdash.hosts.protocol.Host`."""
        return self._lines(tuple(argv))

    @asynccontextmanager
    async def _lines(self, argv: tuple[str, ...]) -> AsyncIterator[AsyncIterator[bytes]]:
        wrapped = wrap(argv, mark=_mark(), merge_stderr=True)
        channel = await self._start(wrapped, wait_s=30.0)
        err = _Collected(channel.err, wrapped)
        reader = asyncio.ensure_future(err.collect())
        lines = self._read_lines(channel, wrapped, argv, err, reader)
        try:
            yield lines
        finally:
            await lines.aclose()
            await channel.end(_END_S)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _read_lines(
        self,
        channel: Channel,
        wrapped: Wrapped,
        argv: tuple[str, ...],
        err: _Collected,
        reader: asyncio.Future[None],
    ) -> AsyncGenerator[bytes, None]:
        frame = Unframer(wrapped.mark)
        rest = b""
        while data := await channel.out.read():
            *whole, rest = (rest + frame.feed(data)).split(b"\n")
            for line in whole:
                yield line.removesuffix(b"\r")
            while len(rest) > _MAX_LINE:
                yield rest[:_MAX_LINE]
                rest = rest[_MAX_LINE:]
        if rest:
            yield rest.removesuffix(b"\r")
        status = await channel.exit_status()
        if status is None:
            raise LinkLostError(
                f"the connection to {self._name} was lost while {argv[0]} was followed",
                remedy="specdash connects again on the next command.",
            )
        if not frame.begun:
            await _settle(reader, _DRAIN_S)
            raise self._not_started(status, frame.noise + err.frame.noise)

    async def open_as(self, words: Sequence[str], *, wait_s: float) -> Channel:
        """Start ``words`` with the rights this host's commands have (sudo)."""
        return await self.open((*self._sudo, *words), wait_s=wait_s)

    async def _start(self, wrapped: Wrapped, *, wait_s: float) -> Channel:
        channel = await self.open_as(wrapped.words, wait_s=wait_s)
        if wrapped.stdin:
            channel.send(wrapped.stdin)
        return channel

    def _not_started(self, status: int, noise: bytes) -> NotStartedError:
        lines = [line for line in noise.decode("utf-8", "replace").splitlines() if line.strip()]
        error = self.explain_start(noise) or self.refusal(status)
        error.evidence = tuple(lines[-6:])
        return error


class _Collected:
    def __init__(self, inbox: Inbox, wrapped: Wrapped) -> None:
        self._inbox = inbox
        self.frame = Unframer(wrapped.mark)
        self.data = bytearray()

    async def collect(self) -> None:
        while chunk := await self._inbox.read():
            self.data += self.frame.feed(chunk)
            if len(self.data) > MAX_OUTPUT:
                raise WorkFailedError(
                    f"a command printed more than {MAX_OUTPUT >> 20} MiB and was ended",
                    code="output-too-large",
                )


async def _first_of(channel: Channel, readers: asyncio.Future[tuple[None, None]]) -> int | None:
    """The exit status; a reader that fails ends the wait."""
    exit_status = asyncio.ensure_future(channel.exit_status())
    waiting: set[asyncio.Future[Any]] = {exit_status, readers}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if readers.done():
            readers.result()
        return await exit_status
    finally:
        exit_status.cancel()


async def _settle(reader: asyncio.Future[Any], within_s: float) -> None:
    done, _ = await asyncio.wait({reader}, timeout=within_s)
    for ended in done:
        ended.result()


def _mark() -> str:
    return secrets.token_hex(6)
