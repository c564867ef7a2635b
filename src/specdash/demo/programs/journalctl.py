"""``journalctl`` of the box."""

from __future__ import annotations

from specdash.demo.journal import Entry, Match, render
from specdash.demo.programs.call import Call
from specdash.demo.programs.words import UnknownOptionError, Words, split

_OPTIONS = {
    "-u": ("unit", True),
    "--unit": ("unit", True),
    "-f": ("follow", False),
    "--follow": ("follow", False),
    "-n": ("lines", True),
    "--lines": ("lines", True),
    "-o": ("output", True),
    "--output": ("output", True),
    "--output-fields": ("fields", True),
    "--no-pager": ("no-pager", False),
    "--all": ("all", False),
    "-a": ("all", False),
    "--no-hostname": ("no-hostname", False),
    "--no-tail": ("no-tail", False),
    "-q": ("quiet", False),
    "--quiet": ("quiet", False),
    "-b": ("boot", False),
    "--boot": ("boot", False),
    "--after-cursor": ("after-cursor", True),
    "-c": ("cursor", True),
    "--cursor": ("cursor", True),
    "--show-cursor": ("show-cursor", False),
    "-r": ("reverse", False),
    "--reverse": ("reverse", False),
    "-S": ("since", True),
    "--since": ("since", True),
    "-e": ("pager-end", False),
    "-x": ("catalog", False),
    "-t": ("identifier", True),
    "--identifier": ("identifier", True),
    "-p": ("priority", True),
    "--priority": ("priority", True),
    "-k": ("dmesg", False),
    "--utc": ("utc", False),
    "--system": ("system", False),
}
_FORMS = {
    "cat",
    "json",
    "short",
    "short-iso",
    "short-iso-precise",
    "short-unix",
    "short-precise",
    "short-full",
    "json-seq",
}


async def journalctl(call: Call) -> int:
    """Show or follow entries."""
    try:
        words = split(_optional_counts(call.argv), _OPTIONS)
    except UnknownOptionError as error:
        return await call.fail(1, f"journalctl: {error}")
    form = words.last("output", "short")
    if form not in _FORMS:
        return await call.fail(1, f"Unknown output format '{form}'.")
    try:
        match = _match(words)
        first = _after(words)
    except ValueError as error:
        return await call.fail(1, str(error))
    only = words.listed("fields")
    journal = call.world.journal
    follow = words.has("follow")
    found = [] if words.has("dmesg") else [e for e in journal.after(first) if match(e)]
    seen = journal.last
    limit = words.last("lines", "10" if follow and not words.has("no-tail") else "all")
    if limit != "all":
        found = found[-int(limit) :] if int(limit) else []
    if words.has("reverse"):
        found.reverse()
    await _print(call, found, form, only)
    if not found and not follow and not words.has("quiet") and not form.startswith("json"):
        await call.out("-- No entries --\n")
    if words.has("show-cursor") and found:
        await call.out(f"-- cursor: {found[-1].cursor}\n")
    while follow:
        await journal.wait_beyond(seen)
        fresh = journal.after(seen)
        seen = journal.last
        await _print(call, [entry for entry in fresh if match(entry)], form, only)
    return 0


async def _print(call: Call, entries: list[Entry], form: str, only: list[str]) -> None:
    if entries:
        await call.out(b"".join(render(entry, form, only) for entry in entries))


def _optional_counts(argv: list[str]) -> list[str]:
    """``-n`` may stand without a number: then it is 10."""
    out: list[str] = []
    for position, word in enumerate(argv):
        following = argv[position + 1] if position + 1 < len(argv) else ""
        if word in ("-n", "--lines") and not (following.isdigit() or following == "all"):
            out.append("-n10")
        elif word in ("-b", "--boot") or not word.startswith("-b"):
            out.append(word)
        else:
            out.append("-b")
    return out


def _match(words: Words) -> Match:
    terms: list[tuple[tuple[str, str], ...]] = []
    fields: list[tuple[str, str]] = [("SYSLOG_IDENTIFIER", i) for i in words.all("identifier")]
    groups: list[list[tuple[str, str]]] = [[]]
    for operand in words.operands:
        if operand == "+":
            groups.append([])
            continue
        name, equals, value = operand.partition("=")
        if not equals:
            raise ValueError(f"Failed to add match '{operand}': Invalid argument")
        groups[-1].append((name, value))
    units = [u if "." in u else f"{u}.service" for u in words.all("unit")]
    if not units and not fields and groups == [[]]:
        return Match()
    for group in groups:
        base = (*fields, *group)
        if units:
            terms.extend((*base, ("_SYSTEMD_UNIT", unit)) for unit in units)
            terms.extend((*base, ("UNIT", unit), ("_PID", "1")) for unit in units)
        else:
            terms.append(base)
    return Match(tuple(terms))


def _after(words: Words) -> int:
    cursor = words.last("after-cursor") or words.last("cursor")
    if not cursor:
        return 0
    parts = dict(part.partition("=")[::2] for part in cursor.split(";"))
    try:
        number = int(parts["i"], 16)
    except (KeyError, ValueError):
        raise ValueError("Failed to seek to cursor: Invalid argument") from None
    return number if words.has("after-cursor") else number - 1
