"""``specdash plan``: what a cycle would run and change; touches nothing."""

from __future__ import annotations

import argparse

from specdash.cli.decide import Consent, FlagDecide
from specdash.cli.open import opened_session
from specdash.cli.output import Out
from specdash.cli.values import candidate_arguments
from specdash.core.errors import EXIT_OK, EXIT_REFUSED
from specdash.core.plan import Plan, command_text
from specdash.core.settings import Candidate

HELP = "Show what a cycle would run and change: the diff and the exact commands. Touches nothing."


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rig", metavar="RIG", help="a rig's name, a rig file, or demo")
    candidate_arguments(parser, required=True)


async def run(args: argparse.Namespace, out: Out) -> int:
    async with opened_session(args, out, FlagDecide(Consent(), out)) as session:
        plan = await session.plan(Candidate(args.steps, args.topk, args.draft_tokens))
    body = plan.to_json()
    if plan.refusals:
        first = plan.refusals[0]
        body["error"] = {"code": first.code, "message": first.message, "remedy": first.remedy}
    out.document(body)
    out.line({"event": "plan", **body})
    out.result(plan_text(plan))
    return EXIT_REFUSED if plan.refusals else EXIT_OK


def plan_text(plan: Plan) -> str:
    """The plan for people: what changes, what runs, what to mind, what stands against it."""
    after = plan.resolution.settings.short() if plan.resolution else "?"
    lines = [f"{plan.rig}: {plan.before.short()} -> {after}"]
    lines += plan.resolution.notes if plan.resolution else ()
    for stage in plan.stages:
        for write in stage.writes:
            lines += ["", *write.diff.splitlines()]
    if plan.stages:
        lines.append("")
    for stage in plan.stages:
        lines += [f"{stage.name:7} {stage.host}$ {command_text(argv)}" for argv in stage.commands]
    if plan.warnings:
        lines += ["", *(f"! WARNING: {warning}" for warning in plan.warnings)]
    for refusal in plan.refusals:
        lines += ["", f"REFUSED: {refusal.message}", f"  {refusal.remedy}"]
    return "\n".join(lines)
