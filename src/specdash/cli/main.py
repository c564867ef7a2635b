"""Entry point: find the verb, parse its words, run it, turn errors into exit codes."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, NoReturn

from specdash import __version__
from specdash.cli.output import Out
from specdash.core.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_UNREACHABLE,
    InternalError,
    InterruptedRunError,
    SpecdashError,
    UsageError,
)

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

VERBS: dict[str, str] = {
    "demo": "open the cockpit on the rig in a box (simulated)",
    "rig": "list, show and check rig files",
    "plan": "show what a cycle would run and change; touches nothing",
    "cycle": "one restart-and-measure without the cockpit",
    "bench": "measure any endpoint; no SSH",
    "edit": "show or change the speculation settings in a launch config",
    "gpus": "read GPU memory once, or watch it",
    "themes": "list the themes",
}
"""Verb -> one line of help. The module of a verb is ``specdash.cli.verbs.VERB``."""


class _Parser(argparse.ArgumentParser):
    """argparse that raises instead of leaving, so that ``--json`` can answer."""

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        with suppress(OSError):  # nobody reads it any more
            super().print_help(file)

    def error(self, message: str) -> NoReturn:
        raise UsageError(
            f"{self.prog}: {message}", remedy=f"See `{self.prog} --help`.", code="usage"
        )


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The ``specdash`` command."""
    _open_streams()
    code = run(sys.argv[1:] if argv is None else list(argv))
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            # Keep Python's own flush at exit quiet.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if stream is sys.stdout and not isinstance(error, BrokenPipeError):
                code = code or EXIT_FAILED
    sys.exit(code)


def _open_streams() -> None:
    """Streams that were closed lead to the null device; no text is too foreign to be written."""
    # In the order of their numbers, so that each gets its own.
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open()  # noqa: SIM115  for the life of the process
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def run(argv: list[str]) -> int:
    """Run one command line; returns the exit code."""
    words = verb_first(argv)
    out = Out(json_document="--json" in words, jsonl="--jsonl" in words)
    code = _run(words, out)
    if out.trouble is not None and not isinstance(out.trouble, BrokenPipeError):
        out.say(f"specdash: the output cannot be written: {out.trouble.strerror}.")
        return code or EXIT_FAILED
    return code


def _run(words: list[str], out: Out) -> int:
    try:
        if out.json and out.jsonl:
            out.jsonl = False
            raise UsageError(
                "--json is one document and --jsonl is a line an event.",
                remedy="Give one of the two.",
            )
        return _dispatch(words, out)
    except SpecdashError as error:
        out.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        out.error(InterruptedRunError("interrupted"))
        return EXIT_INTERRUPTED
    except Exception as bug:  # noqa: BLE001  the last resort: shown whole, and still one document
        out.say(traceback.format_exc())
        out.error(
            InternalError(
                f"specdash itself made a mistake: {type(bug).__name__}.",
                remedy="Please report it with the lines above.",
            )
        )
        return EXIT_FAILED


def verb_first(argv: Sequence[str]) -> list[str]:
    """What every verb takes may stand in front of it: ``specdash --json cycle ...``."""
    front: list[str] = []
    rest = list(argv)
    while rest:
        if rest[0] in ("-F", "--ssh-config"):
            taken = 2
        elif rest[0] in ("--json", "--jsonl") or re.match("-F.|--ssh-config=", rest[0]):
            taken = 1
        else:
            break
        front += rest[:taken]
        del rest[:taken]
    return [rest[0], *front, *rest[1:]] if rest and rest[0] in VERBS else list(argv)


def _dispatch(words: list[str], out: Out) -> int:
    if not words or words[0] not in VERBS:
        return _without_verb(words, out)
    verb = words[0]
    module = importlib.import_module(f"specdash.cli.verbs.{verb}")
    parser = build_parser(verb, module)
    try:
        args = parser.parse_args(words[1:])
    except SystemExit as stop:  # --help
        return int(stop.code or 0)
    return _run_async(module, args, out)


def build_parser(verb: str, module: ModuleType) -> argparse.ArgumentParser:
    """The parser of one verb, with what every verb takes."""
    parser = _Parser(prog=f"specdash {verb}", description=module.HELP, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--jsonl", action="store_true", help="one JSON line per event on stdout")
    if not getattr(module, "USES_SSH", True):
        module.arguments(parser)
        parser.set_defaults(ssh_config=None)
        return parser
    parser.add_argument(
        "-F",
        "--ssh-config",
        metavar="FILE",
        type=Path,
        action="append",
        help="ssh config to use instead of ~/.ssh/config; may be repeated",
    )
    module.arguments(parser)
    return parser


def _run_async(module: ModuleType, args: argparse.Namespace, out: Out) -> int:
    if getattr(module, "OWNS_LOOP", False):
        return int(module.run(args, out))

    async def body() -> int:
        with _signals_cancel(asyncio.current_task()):
            return int(await module.run(args, out))

    try:
        return asyncio.run(body())
    except asyncio.CancelledError:
        raise InterruptedRunError("interrupted") from None


@contextmanager
def _signals_cancel(task: asyncio.Task[int] | None) -> Iterator[None]:
    """Each signal cancels the verb, which comes to an orderly end; again hurries it there.

    Where the loop does not turn (a verb reads a file that does not end) a second one ends it.
    """
    loop = asyncio.get_running_loop()
    waiting = False

    def cancel() -> None:
        nonlocal waiting
        waiting = False
        if task is not None:
            task.cancel()

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal waiting
        if waiting:
            raise KeyboardInterrupt
        waiting = True
        loop.call_soon_threadsafe(cancel)

    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    # What nohup or a shell's background job lets pass stays so.
    taken = [number for number, known in before.items() if known is not signal.SIG_IGN]
    for number in taken:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])


def _without_verb(words: list[str], out: Out) -> int:
    from specdash.cli.start import open_without_verb

    return open_without_verb(words, out)


__all__ = ["EXIT_UNREACHABLE", "VERBS", "__version__", "build_parser", "main", "run"]
