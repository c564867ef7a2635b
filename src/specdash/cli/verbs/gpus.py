"""``specdash gpus``: GPU readings once, watched, or from a saved output of nvidia-smi."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from specdash.cli.gpu_text import snapshot_text
from specdash.cli.output import Out
from specdash.cli.resolve import DEMO, opened_rig, rig_named, user_places
from specdash.cli.secrets import secrets_at
from specdash.cli.ssh_names import aliases, is_ssh_host
from specdash.cli.values import whole
from specdash.core.clock import SystemClock
from specdash.core.errors import (
    EXIT_FAILED,
    EXIT_OK,
    SpecdashError,
    UsageError,
    WorkFailedError,
)
from specdash.core.events import GpusSampled
from specdash.core.gpu import Snapshot
from specdash.core.text import make_safe
from specdash.gpus.once import snapshot
from specdash.gpus.parse import parse
from specdash.gpus.stream import watch
from specdash.hosts.protocol import Host
from specdash.rig.schema import HostSpec, Rig
from specdash.rig.store import rig_files

HELP = "Read GPU memory once, or watch it: of this machine, a host, a rig, or a saved output."

_LARGEST_FILE = 256 * 1024 * 1024
_INTERVAL_MS = (100, 60_000)
_LOCAL = "local"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "host",
        metavar="HOST",
        nargs="?",
        help="a rig, a rig file, an ssh alias, user@host or demo; nothing: this machine",
    )
    parser.add_argument(
        "--from",
        dest="file",
        metavar="FILE",
        help="read a saved output of nvidia-smi in any form; - is stdin",
    )
    parser.add_argument(
        "--fields",
        metavar="LIST",
        help="with --from: the columns of CSV saved without its header, as in --query-gpu=LIST",
    )
    parser.add_argument("--watch", action="store_true", help="go on until interrupted")
    parser.add_argument(
        "--count", metavar="N", type=whole(1), help="with --watch: end after N readings"
    )
    parser.add_argument(
        "--interval-ms",
        metavar="N",
        type=whole(*_INTERVAL_MS),
        default=500,
        help="with --watch: milliseconds between readings (default 500)",
    )


async def run(args: argparse.Namespace, out: Out) -> int:
    _check_usage(args)
    if args.file is not None:
        return _from_file(args, out)
    name = args.host or _LOCAL
    try:
        async with _opened(args.host, args.ssh_config, out) as target:
            if target.simulated:
                out.say("SIMULATED: this is the rig in a box, not hardware.")
            taken = replace(await snapshot(target.host), source=target.source)
            if args.watch and _readable(taken):
                return await _watch(target, args, out)
    except SpecdashError as error:
        if isinstance(error, UsageError):
            raise
        out.error(error, Snapshot(source=name).to_json())
        return error.exit_code
    return _report(taken, out)


def _check_usage(args: argparse.Namespace) -> None:
    if args.file is not None and args.host is not None:
        raise _usage("--from reads a file and takes no HOST.")
    if args.file is not None and args.watch:
        raise _usage("--watch needs a host; a file does not change.")
    if args.fields is not None and args.file is None:
        raise _usage("--fields goes with --from.")
    if args.count is not None and not args.watch:
        raise _usage("--count goes with --watch.")
    if args.watch and args.json and args.count is None:
        raise _usage("--watch has no end and --json is one document.", "Use --jsonl, or --count N.")


def _usage(message: str, remedy: str = "See `specdash gpus --help`.") -> UsageError:
    return UsageError(f"specdash gpus: {message}", remedy=remedy)


def _from_file(args: argparse.Namespace, out: Out) -> int:
    fields = None
    if args.fields is not None:
        fields = [field.strip() for field in args.fields.split(",") if field.strip()]
        if not fields:
            raise _usage("--fields names no column.")
    try:
        data = _read(args.file)
    except WorkFailedError as error:
        out.error(error, Snapshot(source=args.file).to_json())
        return error.exit_code
    return _report(parse(data, source=args.file, fields=fields), out)


def _read(name: str) -> bytes:
    try:
        if name == "-":
            return _limited(sys.stdin.buffer, name)
        with Path(name).open("rb") as file:
            return _limited(file, name)
    except OSError as error:
        raise WorkFailedError(
            f"{name}: cannot be read: {error.strerror or error}.",
            remedy="Give the path of a saved nvidia-smi output, or - for stdin.",
            code="unreadable",
        ) from error


def _limited(file: BinaryIO, name: str) -> bytes:
    data = file.read(_LARGEST_FILE + 1)
    if len(data) > _LARGEST_FILE:
        raise WorkFailedError(
            f"{name}: larger than {_LARGEST_FILE // 1024 // 1024} MiB.",
            remedy="Give the end of it: `tail -c 10M FILE`, with the header in front.",
            code="unreadable",
        )
    return data


def _report(taken: Snapshot, out: Out) -> int:
    out.event(GpusSampled(t=SystemClock().wall(), snapshot=taken))
    if _readable(taken):
        for problem in taken.problems:
            out.say(f"{problem.message} {problem.remedy}")
        out.document(taken.to_json())
        out.result(snapshot_text(taken))
        return EXIT_OK
    first = taken.problems[0]
    error = WorkFailedError(
        make_safe(f"{taken.source}: {first.message}"), remedy=first.remedy, code=first.code
    )
    out.error(error, taken.to_json())
    return EXIT_FAILED


def _readable(taken: Snapshot) -> bool:
    """Something was read, be it that there is nothing: no devices, no processes."""
    known = any(gpu.index is not None or gpu.uuid or gpu.name for gpu in taken.gpus)
    read = any(gpu.state == "ok" for gpu in taken.gpus)
    if read or taken.processes or not taken.problems:
        return True
    if not taken.gpus:
        return {problem.code for problem in taken.problems} == {"no-devices"}
    return known and not all(gpu.state == "lost" for gpu in taken.gpus)


@dataclass(frozen=True, slots=True)
class _Target:
    host: Host
    source: str
    simulated: bool = False


async def _watch(target: _Target, args: argparse.Namespace, out: Out) -> int:
    """Print every reading; ends after ``--count`` or with an interrupt."""
    clock = SystemClock()
    seen = 0
    taken = Snapshot(source=target.source)
    async with aclosing(watch(target.host, interval_ms=args.interval_ms, clock=clock)) as snapshots:
        async for reading in snapshots:
            taken = replace(reading, source=target.source)
            seen += 1
            if out.trouble is not None or seen == args.count:
                break
            out.event(GpusSampled(t=clock.wall(), snapshot=taken))
            out.result(snapshot_text(taken) + "\n")
            for problem in taken.problems:
                out.say(f"{problem.message} {problem.remedy}")
    return _report(taken, out)


@asynccontextmanager
async def _opened(
    word: str | None, ssh_config: Sequence[Path] | None, out: Out
) -> AsyncIterator[_Target]:
    """The host a word means. Verbs win over names; then rig, path, ssh alias, user@host."""
    if word == DEMO:
        async with (
            opened_rig(DEMO, ssh_config) as opened,
            _connected(_gpu_host(opened.rig), opened.rig.hosts, opened.ssh_config, out) as host,
        ):
            yield _Target(host, f"{DEMO} (SIMULATED)", simulated=True)
        return
    given = _ssh_config(ssh_config)
    if word is None:
        specs, name = {_LOCAL: HostSpec(_LOCAL, local=True)}, _LOCAL
    else:
        specs, name = _specs(word, given)
    async with _connected(name, specs, given, out) as host:
        yield _Target(host, word or _LOCAL)


def _ssh_config(files: Sequence[Path] | None) -> tuple[Path, ...] | None:
    for path in files or ():
        if not path.is_file():
            raise UsageError(f"{path}: no such ssh config file.", code="ssh-config")
    return tuple(files) if files else None


def _specs(word: str, ssh_config: tuple[Path, ...] | None) -> tuple[dict[str, HostSpec], str]:
    where = user_places()
    try:
        rig = rig_named(word, where)
    except UsageError as error:
        if error.code != "unknown-rig":
            raise
    else:
        return rig.hosts, _gpu_host(rig)
    if is_ssh_host(word, ssh_config):
        return {word: HostSpec(word, ssh=word)}, word
    known = [*(path.stem for path in rig_files(where.rigs)), *aliases(ssh_config), DEMO]
    near = difflib.get_close_matches(word, known, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    raise UsageError(
        f"No rig, rig file or ssh alias is called {word!r}.",
        remedy=f"{hint}A host without an alias is written user@host.",
        code="unknown-host",
    )


def _gpu_host(rig: Rig) -> str:
    return rig.gpus.host if rig.gpus is not None else rig.service.host


@asynccontextmanager
async def _connected(
    name: str, specs: dict[str, HostSpec], ssh_config: tuple[Path, ...] | None, out: Out
) -> AsyncIterator[Host]:
    # Connecting needs the ssh library, reading a file does not.
    from specdash.hosts.options import SshOptions
    from specdash.hosts.pool import HostPool

    pool = HostPool(specs, SshOptions(config_files=ssh_config, ask=secrets_at(out)))
    try:
        yield await pool.get(name)
    finally:
        await pool.close()
