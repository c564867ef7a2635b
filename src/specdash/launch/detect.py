"""Which engine a launch config is for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from specdash.launch.choose import engine_at, variable_words
from specdash.launch.errors import LaunchConfigError
from specdash.launch.flags import Spellings, environment_uses, find_uses
from specdash.launch.follow import parse_all
from specdash.launch.knobs import KnobTable
from specdash.launch.source import decode


def detect_engine(
    data: bytes,
    tables: Iterable[KnobTable],
    *,
    path: str = "launch.config",
    others: Mapping[str, bytes] | None = None,
) -> KnobTable | None:
    """The engine that the file starts; where it starts none, the one whose flags it holds.

    None where no engine or more than one fits. ``path`` helps to tell the form;
    ``others`` are files it leads to.
    """
    tables = tuple(tables)
    try:
        anchors = [anchor for table in tables for anchor in table.anchors]
        parsed = parse_all(decode(path, data), anchors, others or {})
    except LaunchConfigError:
        return None
    started = [
        table
        for table in tables
        if any(engine_at(c, table.anchors) is not None for c in parsed.commands)
    ]
    if len(started) == 1:
        return started[0]
    flagged: list[KnobTable] = []
    last = {variable.name: variable for variable in parsed.variables}
    for table in started or tables:
        spellings = Spellings(table)
        words = [command.words for command in parsed.commands]
        words += [variable_words(variable, spellings) for variable in last.values()]
        try:
            found = environment_uses(last, spellings) or any(
                find_uses(each, spellings, {}) for each in words
            )
        except LaunchConfigError:
            found = True
        if found:
            flagged.append(table)
    return flagged[0] if len(flagged) == 1 else None
