"""Secrets for the headless verbs: asked on the terminal itself, and only where there is one."""

from __future__ import annotations

import asyncio
import getpass
import os
import termios
import threading
from contextlib import suppress
from typing import Any

from specdash.cli.output import Out
from specdash.core.ports import AskSecret, SecretQuestion
from specdash.core.text import make_safe

TTY = "/dev/tty"

Modes = list[Any]
"""What ``tcgetattr`` gives."""


def secrets_at(out: Out) -> AskSecret | None:
    """Who is asked for passwords and passphrases: the person at the terminal, else nobody.

    A process in the background of its terminal has no person either: reading would stop it.
    """
    return TerminalSecrets() if out.is_terminal and _in_front(TTY) else None


class TerminalSecrets:
    """Asks one secret at a time. What is typed is not echoed and not kept here."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def __call__(self, question: SecretQuestion) -> str | None:
        """What was typed; None for an empty line or the end of input, which goes on without."""
        async with self._turn:
            try:
                return await _typed(_prompt(question), echo=question.echo) or None
            except (EOFError, OSError):
                return None


def _prompt(question: SecretQuestion) -> str:
    again = "" if question.attempt == 1 else "not accepted, again: "
    prompt = question.prompt.rstrip() or f"{question.kind} for {question.subject}:"
    return make_safe(f"{question.host}: {again}{prompt}") + " "


async def _typed(prompt: str, *, echo: bool) -> str:
    """A line typed at the terminal, read in a thread that a Ctrl-C can leave behind.

    The thread must not be one of the loop's: those are waited for at the end.
    """
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()

    def settle(value: str | None, error: BaseException | None) -> None:
        if typed.done():
            return
        if error is None:
            typed.set_result(value or "")
        else:
            typed.set_exception(error)

    def read() -> None:
        value, failed = None, None
        try:
            value = _visible(prompt) if echo else getpass.getpass(prompt)
        except (EOFError, OSError) as error:
            failed = error
        # The loop may be closed by now: nobody waits for the answer any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, value, failed)

    before = _modes()
    threading.Thread(target=read, name="secret", daemon=True).start()
    try:
        return await typed
    finally:
        _restore(before)


def _visible(prompt: str) -> str:
    with open(TTY, "r+", encoding="utf-8", buffering=1) as terminal:  # noqa: PTH123
        terminal.write(prompt)
        terminal.flush()
        line = terminal.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def _in_front(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(fd)


def _modes() -> Modes | None:

    with suppress(OSError, termios.error), open(TTY, "rb", buffering=0) as terminal:  # noqa: PTH123
        return termios.tcgetattr(terminal.fileno())
    return None


def _restore(modes: Modes | None) -> None:
    """The terminal echoes again, also where the question was left by a Ctrl-C."""
    if modes is None:
        return
    with suppress(OSError, termios.error), open(TTY, "rb", buffering=0) as terminal:  # noqa: PTH123
        termios.tcsetattr(terminal.fileno(), termios.TCSADRAIN, modes)
