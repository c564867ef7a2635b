"""``specdash rig``: list, show and check rig files."""

from __future__ import annotations

import argparse

from specdash.cli.decide import Consent, FlagDecide
from specdash.cli.open import opened_session
from specdash.cli.output import Out
from specdash.cli.resolve import DEMO, opened_rig, rig_named, user_places
from specdash.core.errors import EXIT_FAILED, EXIT_OK, EXIT_UNREACHABLE, EXIT_USAGE, SpecdashError
from specdash.rig.load import load_rig
from specdash.rig.store import dump_rig, rig_files, rig_to_json

HELP = "List, show and check rig files."


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in (
        ("list", "the rigs of the rigs directory"),
        ("show", "a rig as specdash reads it, with the defaults filled in"),
        ("check", "try everything a cycle will need; touches nothing"),
    ):
        action = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        if name != "list":
            action.add_argument("rig", metavar="RIG", help="a rig's name, a rig file, or demo")
        # Also behind the action, where people write them. SUPPRESS keeps what stood before it.
        action.add_argument(
            "--json",
            action="store_true",
            default=argparse.SUPPRESS,
            help="one JSON document on stdout",
        )
        action.add_argument(
            "--jsonl",
            action="store_true",
            default=argparse.SUPPRESS,
            help="one JSON line per event on stdout",
        )
        action.add_argument(
            "-F",
            "--ssh-config",
            metavar="FILE",
            action="append",
            type=_path,
            default=argparse.SUPPRESS,
            help="ssh config to use instead of ~/.ssh/config; may be repeated",
        )


def _path(text: str) -> object:
    from pathlib import Path

    return Path(text)


async def run(args: argparse.Namespace, out: Out) -> int:
    match args.action:
        case "list":
            return _list(out)
        case "show":
            return await _show(args, out)
        case _:
            return await _check(args, out)


def _list(out: Out) -> int:
    where = user_places()
    rows: list[dict[str, object]] = []
    for path in rig_files(where.rigs):
        try:
            load_rig(path)
        except SpecdashError as error:
            rows.append({"name": path.stem, "path": str(path), "ok": False})
            out.say(f"{path.stem}: {error.message}")
        else:
            rows.append({"name": path.stem, "path": str(path), "ok": True})
    out.document({"rigs": rows})
    for row in rows:
        out.line({"event": "rig", **row})
    if rows:
        out.result(
            "\n".join(f"{r['name']}  {'ok' if r['ok'] else 'BAD'}  {r['path']}" for r in rows)
        )
    else:
        out.result(f"no rigs in {where.rigs}")
    return EXIT_OK


async def _show(args: argparse.Namespace, out: Out) -> int:
    async with opened_rig(args.rig, args.ssh_config) as opened:
        rig = opened.rig
    out.document({"rig": {"name": rig.name, "path": str(rig.path), **rig_to_json(rig)}})
    out.line({"event": "rig", "name": rig.name, **rig_to_json(rig)})
    out.result(dump_rig(rig).rstrip())
    return EXIT_OK


async def _check(args: argparse.Namespace, out: Out) -> int:
    if args.rig != DEMO:
        rig_named(args.rig, user_places())
    async with opened_session(args, out, FlagDecide(Consent(), out)) as session:
        report = await session.check_rig()
    body: dict[str, object] = {
        "rig": session.rig.name,
        "checks": [check.to_json() for check in report.checks],
    }
    for check in report.checks:
        out.line({"event": "check", **check.to_json()})
    lines = []
    for check in report.checks:
        lines.append(f"{'ok  ' if check.ok else 'FAIL'} {check.name}: {check.message}")
        if check.remedy and not check.ok:
            lines.append(f"     {check.remedy}")
    out.result("\n".join(lines))
    if report.error is None:
        out.document(body)
        return EXIT_OK
    out.document({**body, "error": report.error.to_json()})
    # What is not unreachable or wrong in the rig file is a check that failed.
    code = report.error.exit_code
    return code if code in (EXIT_UNREACHABLE, EXIT_USAGE) else EXIT_FAILED
