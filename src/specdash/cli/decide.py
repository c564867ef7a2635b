"""Who decides without a cockpit: the flags, and at a terminal the person in front of it."""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass

from specdash.cli.output import Out
from specdash.core.ports import Question


@dataclass(frozen=True, slots=True)
class Consent:
    """What the command line allows beforehand."""

    yes: bool = False
    reap_orphans: bool = False
    allow_reload: bool = False
    confirm: str = ""
    force_free: frozenset[str] = frozenset()

    @staticmethod
    def of(args: argparse.Namespace) -> Consent:
        return Consent(
            yes=args.yes,
            reap_orphans=args.reap_orphans,
            allow_reload=args.allow_reload,
            confirm=args.confirm or "",
            force_free=frozenset(args.force_free or ()),
        )


def consent_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that answer a cycle's questions."""
    parser.add_argument(
        "--yes",
        action="store_true",
        help="do not ask before stop, ending the rig's own processes, write, reload and start, "
        "nor before going back to the last good config",
    )
    parser.add_argument(
        "--reap-orphans",
        action="store_true",
        help="also end processes that are probably the rig's own",
    )
    parser.add_argument(
        "--force-free",
        metavar="NAME",
        action="append",
        help="also end foreign processes of this name that hold GPU memory; may be repeated",
    )
    parser.add_argument(
        "--confirm", metavar="RIG", help="the rig's name again, needed where it is protected"
    )
    parser.add_argument(
        "--allow-reload",
        action="store_true",
        help="reload even where that can take GPUs from other containers",
    )


class FlagDecide:
    """Implements ``Decide``. What no flag allows is asked at a terminal, else it is no."""

    def __init__(self, consent: Consent, out: Out) -> None:
        self._consent = consent
        self._out = out

    async def ask(self, question: Question) -> bool:
        if self._allowed(question):
            return True
        if self._consent.yes or not self._out.is_terminal:
            return False
        self._out.say(question.title)
        for line in question.details:
            self._out.say(f"  {line}")
        wanted = question.type_to_confirm
        self._out.say(f"Type {wanted} to go on:" if wanted else "y to go on, anything else is no:")
        answer = (await asyncio.to_thread(sys.stdin.readline)).strip()
        return answer == wanted if wanted else answer.lower() in ("y", "yes")

    def _allowed(self, question: Question) -> bool:
        consent = self._consent
        match question.kind:
            case "run-plan" | "restore":
                return consent.yes
            case "reap-orphans":
                return consent.reap_orphans
            case "force-free":
                return question.subject in consent.force_free
            case "protected":
                return consent.confirm == question.subject
            case "allow-reload":
                return consent.allow_reload
