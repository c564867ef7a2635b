"""``specdash cycle``: one restart-and-measure, headless."""

from __future__ import annotations

import argparse
import asyncio

from specdash.cli.decide import Consent, FlagDecide, consent_arguments
from specdash.cli.narrate import Narrator
from specdash.cli.open import opened_session
from specdash.cli.output import Out
from specdash.cli.resolve import DEMO, rig_named, user_places
from specdash.cli.tables import cycle_text
from specdash.cli.values import candidate_arguments, seconds, whole_list
from specdash.core.errors import EXIT_OK, RefusedError, SpecdashError, UsageError
from specdash.core.settings import Candidate
from specdash.cycle.runner import Ask, Result
from specdash.session.session import RigSession

HELP = (
    "Stop, edit the launch config, start and measure, once; or, with --measure-only, measure what runs "
    "now. Takes --steps or --measure-only."
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rig", metavar="RIG", help="a rig's name, a rig file, or demo")
    candidate_arguments(parser, required=False)
    parser.add_argument(
        "--measure-only", action="store_true", help="measure what runs now; no restart"
    )
    parser.add_argument(
        "--concurrency",
        metavar="LIST",
        type=whole_list,
        help="requests at once, a cell each, as 1,4,16 (default: the rig's)",
    )
    parser.add_argument(
        "--note", metavar="TEXT", default="", help="why it is tried; kept with the results"
    )
    parser.add_argument(
        "--speed",
        metavar="X",
        type=seconds,
        help="demo only: stop, release and load X times as fast",
    )
    consent_arguments(parser)


async def run(args: argparse.Namespace, out: Out) -> int:
    candidate = _candidate(args)
    if args.speed is not None and args.rig != DEMO:
        raise UsageError("--speed is for demo; real loads take their time.")
    consent = Consent.of(args)
    if candidate is not None and not consent.yes and not out.is_terminal:
        if args.rig != DEMO:
            rig_named(args.rig, user_places())
        raise RefusedError(
            "Nothing was run: there is no terminal to ask and no --yes.",
            remedy="Look at `specdash plan` with the same words, then pass --yes.",
            code="no-yes",
        )
    unattended = consent.yes or not out.is_terminal
    async with opened_session(
        args, out, FlagDecide(consent, out), unattended=unattended
    ) as session:
        result = await _run_cycle(session, args, candidate, unattended, out)
    _report(result, out)
    return EXIT_OK if result.error is None else result.error.exit_code


def _candidate(args: argparse.Namespace) -> Candidate | None:
    if args.measure_only:
        if args.steps is not None or args.topk is not None or args.draft_tokens is not None:
            raise UsageError("--measure-only changes nothing: leave --steps and the like out.")
        return None
    if args.steps is None:
        raise UsageError("Say what to try with --steps N, or pass --measure-only.")
    return Candidate(args.steps, args.topk, args.draft_tokens, args.note)


async def _run_cycle(
    session: RigSession,
    args: argparse.Namespace,
    candidate: Candidate | None,
    unattended: bool,
    out: Out,
) -> Result:
    narrator = Narrator(out)
    reader = asyncio.create_task(narrator.follow(session.events()))
    await asyncio.sleep(0)
    try:
        await session.open()
        return await session.run_cycle(
            Ask(
                candidate,
                args.concurrency or session.rig.bench.concurrency,
                approved=False,
                unattended=unattended,
            )
        )
    finally:
        await narrator.drained()
        reader.cancel()
        await asyncio.wait({reader})


def _report(result: Result, out: Out) -> None:
    body = result.record.to_json()
    error: SpecdashError | None = result.error
    if error is not None:
        if result.plan is not None and result.record.outcome == "refused":
            body["plan"] = result.plan.to_json()
        out.error(error, body)
    else:
        out.document(body)
    out.result(cycle_text(result.record))
