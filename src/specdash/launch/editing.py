"""Change the speculation settings of a launch config and nothing else.

Every edit is a splice of the characters that hold a value, and is proved before it is returned:
the new bytes are read again, must say what was asked, and must give the engine the same arguments
as before outside the speculation flags.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from specdash.core.diff import unified
from specdash.core.settings import Settings
from specdash.launch.errors import (
    AmbiguousKnobError,
    KnobElsewhereError,
    KnobNotFoundError,
    LaunchConfigError,
    NothingToRestoreError,
)
from specdash.launch.flags import Spellings, Use, last_uses
from specdash.launch.insertion import insertions
from specdash.launch.jsontext import members
from specdash.launch.knobs import Field
from specdash.launch.reading import Reading
from specdash.launch.removal import Removed, remove
from specdash.launch.source import Splice, apply_splices
from specdash.launch.trace import Site

FIELDS: tuple[Field, ...] = (
    "algorithm",
    "draft_model",
    "num_steps",
    "eagle_topk",
    "num_draft_tokens",
)
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]*\Z")
"""A value that means itself under every form's quoting."""


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit as a value; nothing is written.

    ``path`` is the file that changes, ``original`` and ``data`` its bytes before and after.
    ``argv`` is what the launcher will see after it. ``removed`` is set where speculation was
    turned off: keep it, it is needed to turn it on again.
    """

    path: str
    original: bytes
    data: bytes
    before: Settings
    after: Settings
    argv: tuple[str, ...]
    diff: str
    warnings: tuple[str, ...] = ()
    removed: Removed | None = None

    @property
    def changed(self) -> bool:
        return self.data != self.original


def edit_config(
    reading: Reading, target: Settings, *, removed: Removed | None = None, follow: bool = False
) -> Edit:
    """The edit that makes the file say ``target``; a field that is None stays as it is.

    ``target`` off (enabled False or 0 steps) removes every speculation flag. On again restores
    ``removed`` and raises NothingToRestoreError without it. ``follow``: the edit may be in a file
    that this one leads to. Raises KnobElsewhereError, KnobNotFoundError and AmbiguousKnobError.
    """
    if target.enabled is False or target.num_steps == 0:
        return _turn_off(reading, follow)
    if reading.off and not _can_be_changed(reading, target):
        return _turn_on(reading, target, removed, follow)
    return _change(reading, target, follow)


def check_here(reading: Reading) -> None:
    """Raise KnobElsewhereError where the depth is not written in the file itself."""
    use = last_uses(reading.uses).get("num_steps")
    if use is None:
        sites = [site for site in (_site_of(reading, use) for use in reading.uses) if site]
        if sites and all(site.path != reading.path for site in sites):
            raise _elsewhere(reading, sites[0])
        return
    if use.value is not None and use.value.unknown:
        raise _unknown_value(reading, use)
    site = _site_of(reading, use)
    if site is not None and site.path != reading.path:
        raise _elsewhere(reading, site)


def _site_of(reading: Reading, use: Use) -> Site | None:
    if use.value is not None and len(use.value):
        return use.value.written() or use.value.outer_extent()
    return reading.words[use.words[0]].token if use.words else None


# -- changing values -------------------------------------------------------------------------


def _change(reading: Reading, target: Settings, follow: bool) -> Edit:
    _check_json(reading)
    uses = last_uses(reading.uses)
    splices: dict[str, list[Splice]] = {}
    missing: list[tuple[Field, str]] = []
    computed: list[Use] = []
    for knob in FIELDS:
        wanted = getattr(target, knob)
        if wanted is None:
            continue
        text = str(wanted)
        use = uses.get(knob)
        if use is None:
            missing.append((knob, text))
        elif use.value is None or use.value.text != text:
            if use.value is not None and use.value.computed and not use.value.unknown:
                computed.append(use)
                continue
            site = _writable(reading, use, text)
            splices.setdefault(site.path, []).append(Splice(site.start, site.end, text))
    if not missing:
        path = _one_path(reading, splices, follow)
        return _finished(reading, path, splices.get(path, []), target, computed, ())
    return _with_insertions(reading, splices, missing, target, computed, follow)


def _check_json(reading: Reading) -> None:
    """Raise where a flag that takes JSON has a value that is none."""
    for use in reading.uses:
        if use.field is not None or use.name not in Spellings(reading.knobs).json_flags:
            continue
        if use.value is not None and members(use.value) is None:
            if use.value.unknown:
                raise _unknown_value(reading, use)
            raise AmbiguousKnobError(
                f"{reading.where(_site_of(reading, use))}: the value of {use.spelling} is not a"
                " JSON object as the launcher will see it.",
                remedy="Check the quotes around it.",
                evidence=(use.value.text[:200],),
            )


def _with_insertions(
    reading: Reading,
    splices: dict[str, list[Splice]],
    missing: Sequence[tuple[Field, str]],
    target: Settings,
    computed: Sequence[Use],
    follow: bool,
) -> Edit:
    names = " and ".join(_flag_name(reading, knob) for knob, _ in missing)
    failure: LaunchConfigError | None = None
    for inserted in insertions(reading, missing):
        together = {path: list(found) for path, found in splices.items()}
        together.setdefault(inserted.path, []).append(inserted.splice)
        path = _one_path(reading, together, follow)
        where = reading.source(path).line_of(inserted.splice.start)
        warning = (
            f"{names} {'was' if len(missing) == 1 else 'were'} not in the file and"
            f" {'is' if len(missing) == 1 else 'are'} inserted after {inserted.after} (line {where})."
        )
        try:
            return _finished(reading, path, together[path], target, computed, (warning,))
        except AmbiguousKnobError as error:
            failure = error
    if failure is not None:
        raise failure
    raise KnobNotFoundError(
        f"{reading.path} does not give {names}, and there is no flag to put "
        f"{'it' if len(missing) == 1 else 'them'} after.",
        remedy="Write the flag beside the others once; its value can be edited from then on.",
    )


def _flag_name(reading: Reading, knob: Field) -> str:
    flag = reading.knobs.flag(knob)
    return knob if flag is None else flag.name


def _writable(reading: Reading, use: Use, text: str) -> Site:
    """The characters that hold the value. Raises where they cannot be replaced as they stand."""
    value = use.value
    if value is not None and value.unknown:
        raise _unknown_value(reading, use)
    if _SAFE.match(text) is None:
        raise AmbiguousKnobError(
            f"{text!r} needs quoting, which depends on where it stands.",
            remedy="Write this value by hand.",
        )
    site = None if value is None else value.written()
    if value is None or site is None:
        raise AmbiguousKnobError(
            f"{reading.where(_site_of(reading, use))}: the value of {use.spelling} is put together"
            " from several places.",
            remedy="Write it as one word.",
        )
    if value.rivals:
        raise AmbiguousKnobError(
            f"{use.spelling} gets its value in more than one place, as a branch decides.",
            remedy="Set the value in one place.",
            evidence=[reading.where(s) for s in (*value.rivals, site)],
        )
    return site


def _unknown_value(reading: Reading, use: Use) -> KnobNotFoundError:
    name = "" if use.value is None else use.value.unknown
    unread = [r for r in reading.references if r.path not in reading.texts]
    said = f"{reading.path} takes {use.spelling} from {name}"
    if unread:
        return KnobElsewhereError(
            f"{said}, which is set in {' or '.join(r.path for r in unread)}.",
            path=unread[0].path,
            remedy=f"Edit {unread[0].path}, or use --follow.",
            evidence=[reading.where(r.site) for r in unread],
        )
    return KnobNotFoundError(
        f"{said}, which is set outside it.",
        remedy="Name the file that sets it, or write the number into this one.",
        evidence=[reading.where(_site_of(reading, use))],
    )


def _elsewhere(reading: Reading, site: Site) -> KnobElsewhereError:
    source = reading.source(site.path)
    line = source.line_of(site.start)
    return KnobElsewhereError(
        f"The value is not in {reading.path} but in {site.path}, line {line}.",
        path=site.path,
        line=line,
        remedy=f"Edit {site.path}, or use --follow.",
        evidence=(f"{site.path}:{line}: {source.line_text(line).strip()}",),
    )


def _one_path(reading: Reading, splices: dict[str, list[Splice]], follow: bool) -> str:
    """The one file that changes. Raises where it is another, or where it is more than one."""
    paths = sorted(splices)
    if len(paths) > 1:
        raise AmbiguousKnobError(
            f"The settings that belong together are in {' and '.join(paths)}; one edit changes"
            " one file.",
            remedy="Write them in one file.",
            evidence=[
                f"{path}:{reading.source(path).line_of(splice.start)}"
                for path in paths
                for splice in splices[path]
            ],
        )
    if not paths:
        return reading.path
    if paths[0] != reading.path and not follow:
        first = splices[paths[0]][0]
        raise _elsewhere(reading, Site(paths[0], first.start, first.end))
    return paths[0]


def _finished(
    reading: Reading,
    path: str,
    splices: Iterable[Splice],
    target: Settings,
    computed: Sequence[Use],
    warnings: tuple[str, ...],
) -> Edit:
    text = apply_splices(reading.texts[path], splices)
    new = reading.again({path: text.encode("utf-8")})
    for knob in FIELDS:
        wanted = getattr(target, knob)
        if wanted is not None and getattr(new.settings, knob) != wanted:
            for use in computed:
                if use.field == knob:
                    raise AmbiguousKnobError(
                        f"{reading.where(_site_of(reading, use))}: {use.spelling} is the result of"
                        f" a formula and comes out as {getattr(new.settings, knob)},"
                        f" not {wanted}.",
                        remedy="Write it as a number.",
                    )
            raise AmbiguousKnobError(
                f"{path} would not say {knob} {wanted} after the edit.",
                remedy="Edit it by hand; nothing was changed.",
            )
    _check_rest(reading, new)
    return _edit(reading, new, path, text, warnings)


def _check_rest(old: Reading, new: Reading) -> None:
    """Raise where anything but speculation would change."""
    before, after = _without_speculation(old), _without_speculation(new)
    if before == after and old.rest == new.rest:
        return
    changed = [
        f"{one} would become {other}"
        for one, other in zip(before, after, strict=False)
        if one != other
    ]
    raise AmbiguousKnobError(
        f"The value in {old.path} is used for more than speculation.",
        remedy="Give the speculation flags values of their own.",
        evidence=changed[:6] or [f"{len(before)} other arguments would become {len(after)}"],
    )


def _without_speculation(reading: Reading) -> list[str]:
    gone = {index for use in reading.uses for index in use.words}
    names = tuple(f"{name}=" for flag in reading.knobs.flags for name in flag.env)
    return [
        word
        for index, word in enumerate(reading.argv)
        if index not in gone and not (names and word.startswith(names))
    ]


def _edit(reading: Reading, new: Reading, path: str, text: str, warnings: tuple[str, ...]) -> Edit:
    original = reading.texts[path].encode("utf-8")
    data = text.encode("utf-8")
    return Edit(
        path=path,
        original=original,
        data=data,
        before=reading.settings,
        after=new.settings,
        argv=new.argv,
        diff=unified(original, data, path),
        warnings=tuple(dict.fromkeys((*warnings, *new.warnings))),
    )


# -- off and on ------------------------------------------------------------------------------


def _turn_off(reading: Reading, follow: bool) -> Edit:
    if reading.off:
        return _edit(reading, reading, reading.path, reading.texts[reading.path], ())
    words: dict[str, list[tuple[int, int]]] = {}
    variables: dict[str, list[tuple[int, int]]] = {}
    for use in reading.uses:
        if use.variable is not None:
            tokens, into = [use.variable.token], variables
        else:
            tokens, into = [reading.words[index].token for index in use.words], words
        for token in tokens:
            if token is None:
                raise AmbiguousKnobError(
                    f"{use.spelling} is not written as words of its own, so it cannot be removed.",
                    remedy="Write the speculation flags as words of their own.",
                    evidence=[reading.where(_site_of(reading, use))],
                )
            into.setdefault(token.path, []).append((token.start, token.end))
    spans = {p: [Splice(s, e, "") for s, e in found] for p, found in (words | variables).items()}
    path = _one_path(reading, spans, follow)
    text, removed = remove(
        path,
        reading.texts[path],
        words.get(path, []),
        variables.get(path, []),
        reading.settings,
    )
    new = reading.again({path: text.encode("utf-8")})
    if not new.off:
        raise AmbiguousKnobError(
            f"{path} would still start the engine with speculation.",
            remedy="Remove the flags by hand; nothing was changed.",
        )
    _check_rest(reading, new)
    return replace(_edit(reading, new, path, text, ()), removed=removed)


def _can_be_changed(reading: Reading, target: Settings) -> bool:
    """Whether the flags are there and only say "off", so that changing them turns it on."""
    uses = last_uses(reading.uses)
    if not uses:
        return False
    for knob, off in reading.knobs.off_values:
        use = uses.get(knob)
        if use is not None and use.value is not None and use.value.text.lower() == off:
            return getattr(target, knob) is not None
    return True


def _turn_on(reading: Reading, target: Settings, removed: Removed | None, follow: bool) -> Edit:
    if removed is None:
        wanted = [f.name for f in reading.knobs.flags if f.field in ("algorithm", "draft_model")]
        names = " and ".join([*wanted, _flag_name(reading, "num_steps")])
        raise NothingToRestoreError(
            f"Speculation is off in {reading.path}, and what it was on with is not known:"
            f" {names} are missing.",
            remedy="Restore a backup, or write the flags into the file once.",
        )
    path = removed.path if removed.path in reading.texts else reading.path
    if path != reading.path and not follow:
        raise KnobElsewhereError(
            f"The speculation flags of {reading.path} belong into {path}.",
            path=path,
            remedy=f"Edit {path}, or use --follow.",
        )
    text = removed.restore(reading.texts[path])
    restored = reading.again({path: text.encode("utf-8")})
    edit = _change(restored, target, follow)
    if edit.changed and edit.path != path:
        raise AmbiguousKnobError(
            f"The flags belong into {path}, but their values are in {edit.path}; one edit changes"
            " one file.",
            remedy="Turn speculation on with the settings it had, then change them.",
        )
    original = reading.texts[path].encode("utf-8")
    data = edit.data if edit.changed else text.encode("utf-8")
    return replace(
        edit,
        path=path,
        original=original,
        data=data,
        before=reading.settings,
        diff=unified(original, data, path),
    )
