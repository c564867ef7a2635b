"""``specdash edit``: find or change the speculation settings of one local launch config."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from specdash.cli.configfiles import (
    ConfigFiles,
    read_settings,
    read_with_linked,
    recorded_engine,
    removed_from,
    removed_path,
)
from specdash.cli.localfile import FileFailedError, replace_file, write_private
from specdash.cli.output import Out
from specdash.cli.values import candidate_arguments
from specdash.core.errors import EXIT_OK, SpecdashError, UsageError
from specdash.core.redact import Redactor
from specdash.core.settings import Candidate, Settings
from specdash.engines.knobs import TABLES
from specdash.engines.registry import engine_for
from specdash.engines.sglang_rules import BLOCK_ALGORITHMS
from specdash.launch.detect import detect_engine
from specdash.launch.editing import Edit, check_here, edit_config
from specdash.launch.errors import AmbiguousKnobError
from specdash.launch.reading import Reading
from specdash.launch.removal import Removed
from specdash.rig.schema import EngineKind
from specdash.rig.store import Places, places

HELP = (
    "Show or change the speculation settings in a launch config: a systemd unit or drop-in, an "
    "environment file or a shell script. Nothing is written without --write."
)
USES_SSH = False

_REDACT = Redactor()


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the launch config")
    candidate_arguments(parser, required=False)
    parser.add_argument(
        "--engine", choices=sorted(TABLES), help="needed where the file does not tell the engine"
    )
    parser.add_argument(
        "--service",
        metavar="S",
        help="which of several services in the file: a function, a served model name, a port",
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="edit the file that holds the value, where FILE only names it",
    )
    parser.add_argument("--write", action="store_true", help="back up the file and write it")


async def run(args: argparse.Namespace, out: Out) -> int:
    body: dict[str, object] = {
        "path": _clean(args.file),
        "engine": args.engine,
        "changed": False,
        "written": False,
        "backup": None,
        "before": None,
        "after": None,
        "diff": "",
        "argv": None,
        "warnings": [],
    }
    try:
        _Editor(args, body).run()
    except SpecdashError as error:
        error.message = _clean(_REDACT.text(error.message))
        error.evidence = tuple(_clean(_REDACT.text(line)) for line in error.evidence)
        out.error(error, body)
        return error.exit_code
    out.document(body)
    out.line({"event": "edit", **body})
    out.result(_text(body))
    for warning in _strings(body["warnings"]):
        out.say(f"! {warning}")
    return EXIT_OK


class _Editor:
    """One run: fills in ``body`` as far as it gets."""

    def __init__(self, args: argparse.Namespace, body: dict[str, object]) -> None:
        self._args = args
        self._body = body
        self._places: Places = places(os.environ)

    def run(self) -> None:
        args = self._args
        anchors = [anchor for table in TABLES.values() for anchor in table.anchors]
        files = read_with_linked(args.file, anchors)
        kind = self._engine_kind(files)
        self._body["engine"] = kind
        removed = removed_from(self._places, files, TABLES[kind], args.service)
        reading = read_settings(files, TABLES[kind], args.service, known_off=removed is not None)
        self._say(reading.settings, reading, files, ())
        if not args.follow:
            check_here(reading)
        elif (place := reading.places.get("num_steps")) is not None:
            self._body["path"] = _clean(self._shown(files, place.path))
        candidate = self._candidate(reading, removed)
        if candidate is not None:
            self._change(kind, files, reading, removed, candidate)

    def _engine_kind(self, files: ConfigFiles) -> EngineKind:
        args = self._args
        if args.engine is not None:
            kind: EngineKind = args.engine
            return kind
        found = detect_engine(files.main.data, TABLES.values(), path=args.file, others=files.others)
        # A file that lost its only flags tells nothing; the record of them does.
        name = found.engine if found is not None else recorded_engine(self._places, files)
        for known in TABLES:
            if known == name:
                return known
        raise AmbiguousKnobError(
            f"{args.file} does not tell which engine it is for.",
            remedy=f"Name it: --engine {', '.join(sorted(TABLES))}.",
            code="engine-unknown",
            evidence=[f"it leads to {path}, which was not read" for path in files.unread],
        )

    def _candidate(self, reading: Reading, removed: Removed | None) -> Candidate | None:
        args = self._args
        if args.steps is None and args.topk is None and args.draft_tokens is None:
            return None
        steps = args.steps
        if steps is None:
            if reading.off:
                raise UsageError(
                    "Speculation is off in the file; topk and draft tokens alone do not turn it on.",
                    remedy="Give --steps as well.",
                )
            current = reading.settings
            block = (current.algorithm or "").upper() in BLOCK_ALGORITHMS
            steps = 1 if block else current.num_steps
        if steps is None:
            raise UsageError(
                "The file does not say the steps, and the engine wants steps, topk and draft"
                " tokens together.",
                remedy="Give --steps as well.",
            )
        return Candidate(steps, args.topk, args.draft_tokens)

    def _change(
        self,
        kind: EngineKind,
        files: ConfigFiles,
        reading: Reading,
        removed: Removed | None,
        candidate: Candidate,
    ) -> None:
        current = reading.settings
        if reading.off and candidate.num_steps and removed is not None:
            current = removed.settings
        self._body["after"] = None
        resolution = engine_for(kind).resolve(current, candidate)
        edit = edit_config(reading, resolution.settings, removed=removed, follow=self._args.follow)
        self._say(edit.after, reading, files, (*resolution.notes, *edit.warnings))
        self._body["path"] = _clean(self._shown(files, edit.path))
        self._body["changed"] = edit.changed
        self._body["diff"] = _clean(_REDACT.text(edit.diff))
        self._body["argv"] = [_clean(word) for word in _REDACT.argv(edit.argv)]
        if self._args.write and edit.changed:
            self._write(files, edit)

    def _write(self, files: ConfigFiles, edit: Edit) -> None:
        file = files.file(edit.path)
        if file.data != edit.original:
            raise FileFailedError(
                f"{file.given} is not the file that was edited; it was left alone.",
                remedy="This is a fault of specdash; edit the file by hand.",
            )
        kept = removed_path(self._places, files.main.real)
        if edit.removed is not None:
            record = {"engine": self._body["engine"], **edit.removed.to_json()}
            _keep(kept, json.dumps(record).encode("utf-8"), file.given)
        backup = replace_file(file, edit.data, self._places.backups)
        if file.status.st_nlink > 1:
            _strings(self._body["warnings"]).append(
                f"{file.given} had {file.status.st_nlink} names (hard links); the others still lead"
                " to the old bytes."
            )
        if edit.before.enabled is False and edit.after.enabled:
            kept.unlink(missing_ok=True)
        self._body["written"] = True
        self._body["backup"] = _clean(str(backup))

    def _say(
        self, after: Settings, reading: Reading, files: ConfigFiles, more: tuple[str, ...]
    ) -> None:
        said = (*files.warnings, *reading.warnings, *more)
        self._body["before"] = reading.settings.to_json()
        self._body["after"] = after.to_json()
        self._body["argv"] = [_clean(word) for word in _REDACT.argv(reading.argv)]
        self._body["warnings"] = [_clean(_REDACT.text(line)) for line in dict.fromkeys(said)]

    def _shown(self, files: ConfigFiles, path: str) -> str:
        file = files.linked.get(path)
        return self._args.file if file is None else file.given


def _keep(path: Path, data: bytes, given: str) -> None:
    """Without what is taken out, the next edit could not put it back."""
    try:
        write_private(path, data)
    except OSError as error:
        raise FileFailedError(
            f"{given} was not changed: what is taken out of it cannot be kept in {path}:"
            f" {error.strerror or error}.",
            remedy="Free space or fix the rights there (XDG_STATE_HOME), then try again.",
        ) from None


def _strings(value: object) -> list[str]:
    return value if isinstance(value, list) else []


def _clean(text: str) -> str:
    """Text that UTF-8 can carry: bytes of a file name that are none become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _text(body: dict[str, object]) -> str:
    """The result for people."""
    before, after = (_short(body[key]) for key in ("before", "after"))
    head = f"{body['path']} ({body['engine']}): {before}"
    if not body["changed"]:
        return f"{head}\n{' '.join(_strings(body['argv']))}"
    tail = (
        f"Written. The old file is in {body['backup']}."
        if body["written"]
        else "Nothing was written; --write does it."
    )
    return f"{head} -> {after}\n{body['diff']}\n{tail}"


def _short(settings: object) -> str:
    return Settings(**settings).short() if isinstance(settings, dict) else "?"
