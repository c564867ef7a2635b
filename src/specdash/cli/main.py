"""Entry point: find the verb, parse its words, run it, turn errors into exit codes."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from specdash import __version__
from specdash.cli.output import Out
from specdash.core.errors import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_UNREACHABLE,
    InterruptedRunError,
    SpecdashError,
    UsageError,
)

VERBS: dict[str, str] = {
    "demo": "open the cockpit on the rig in a box (simulated)",
    "rig": "list, show and check rig files",
    "plan": "show what a cycle would run and change; touches nothing",
    "cycle": "one restart-and-measure, headless",
    "bench": "measure any endpoint; no SSH",
    "edit": "find or change the speculation settings of a launch config",
    "gpus": "read GPU memory once, or watch it",
    "themes": "list the themes",
}
"""Verb -> one line of help. The module of a verb is ``specdash.cli.verbs.VERB``."""


class _Parser(argparse.ArgumentParser):
    """argparse that raises instead of leaving, so that ``--json`` can answer."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(
            f"{self.prog}: {message}", remedy=f"See `{self.prog} --help`.", code="usage"
        )


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The ``specdash`` command."""
    sys.exit(run(sys.argv[1:] if argv is None else list(argv)))


def run(argv: list[str]) -> int:
    """Run one command line; returns the exit code."""
    words = _split_global(argv)
    out = Out(json_document="--json" in words, jsonl="--jsonl" in words)
    try:
        return _dispatch(words, out)
    except SpecdashError as error:
        out.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        out.error(InterruptedRunError("interrupted"))
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our stdout went away; keep Python's own flush at exit quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK


def _split_global(argv: list[str]) -> list[str]:
    return list(argv)


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
    parser.add_argument("--jsonl", action="store_true", help="a JSON line an event on stdout")
    parser.add_argument(
        "-F",
        "--ssh-config",
        metavar="FILE",
        type=Path,
        action="append",
        help="ssh config to use instead of ~/.ssh/config",
    )
    module.arguments(parser)
    return parser


def _run_async(module: ModuleType, args: argparse.Namespace, out: Out) -> int:
    if getattr(module, "OWNS_LOOP", False):
        return int(module.run(args, out))

    async def body() -> int:
        loop = asyncio.get_running_loop()
        if (task := asyncio.current_task()) is not None:
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, task.cancel)
        return int(await module.run(args, out))

    try:
        return asyncio.run(body())
    except asyncio.CancelledError:
        raise InterruptedRunError("interrupted") from None


def _without_verb(words: list[str], out: Out) -> int:
    from specdash.cli.start import open_without_verb

    return open_without_verb(words, out)


__all__ = ["EXIT_UNREACHABLE", "VERBS", "__version__", "build_parser", "main", "run"]
