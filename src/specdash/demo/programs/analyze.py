"""``systemd-analyze`` of the box: ``verify`` and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from specdash.demo.programs.call import Call
from specdash.demo.units import Unit, UnitError, read_into, split_words


async def systemd_analyze(call: Call) -> int:
    """Complain about a unit file as systemd would; exit 1 where it would not load."""
    words = [word for word in call.argv if not word.startswith("--")]
    if words[:1] != ["verify"] or len(words) < 2:
        return await call.fail(1, f"Unknown command verb {words[0] if words else ''}.")
    bad = False
    for name in words[1:]:
        path = Path(call.cwd, name)
        if path.suffix != ".service":
            await call.err(f"Failed to prepare filename {name}: Invalid argument\n")
            bad = True
            continue
        try:
            text = _text(path)
        except OSError as error:
            await call.err(f"Failed to open {name}: {error.strerror}\n")
            bad = True
            continue
        complaints, wrong = verify(text, str(path))
        bad = bad or wrong
        for line in complaints:
            await call.err(line + "\n")
    return 1 if bad else 0


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def verify(text: str, path: str) -> tuple[list[str], bool]:
    """The complaints about one unit file, and whether it would not load or start."""
    unit = Unit()
    read_into(unit, text, path)
    name = path.rsplit("/", 1)[-1]
    complaints = list(unit.complaints)
    commands = unit.all("Service", "ExecStart")
    if not commands:
        complaints.append(
            f"{name}: Service has no ExecStart=, ExecStop=, or SuccessAction=. Refusing."
        )
        return complaints, True
    bad = unit.bad
    if len(commands) > 1 and unit.last("Service", "Type", "simple") != "oneshot":
        complaints.append(
            f"{name}: Service has more than one ExecStart= setting, which is only allowed for "
            "Type=oneshot services. Refusing."
        )
        bad = True
    for command in commands:
        try:
            program = split_words(command)[0].lstrip("@-:+!")
        except (UnitError, IndexError):
            bad = True
            continue
        if not os.access(program, os.X_OK):
            complaints.append(
                f"{name}: Command {program} is not executable: No such file or directory"
            )
            bad = True
    return complaints, bad
