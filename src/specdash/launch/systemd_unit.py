"""systemd units and drop-ins: lines, sections, ``Environment=`` and ``ExecStart=``.

Facts: systemd.syntax(7) and systemd.service(5). A trailing backslash joins lines and becomes a
blank; comment lines inside a continuation are dropped; an empty assignment resets the list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from specdash.launch.command import Command, Parsed
from specdash.launch.envfile import parse_env_file
from specdash.launch.errors import UnreadableConfigError
from specdash.launch.source import Source, decode
from specdash.launch.systemd_words import (
    WHITESPACE,
    UnbalancedQuotesError,
    UnknownEscapeError,
    expand,
    next_word,
    specifiers,
)
from specdash.launch.trace import Origin, Reference, Site, Traced, Variable, Word

_BREAK = re.compile(r"\r\n|\r|\n")
_FIRST_SECTION = re.compile(
    r"\ufeff?(?:[ \t]*(?:[#;][^\r\n]*)?[\r\n]+)*[ \t]*"
    r"\[(?:Unit|Service|Install|Socket|Timer|X-[^]]*)\][ \t]*(?:[\r\n]|\Z)"
)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LONGEST = 200_000
_COMMAND_KEYS = ("ExecStart",)


@dataclass(frozen=True, slots=True)
class Setting:
    """``key = value`` in a section; ``site`` covers all its lines without the last line end."""

    section: str
    key: str
    value: Traced
    site: Site


def is_unit(text: str) -> bool:
    """Whether this is a unit or a drop-in: the first thing it says is a section."""
    return _FIRST_SECTION.match(text) is not None


def settings_of(source: Source) -> Iterator[Setting]:
    """All settings in order, continuation lines joined as systemd joins them."""
    section = ""
    for joined in _logical_lines(source):
        text = joined.text
        start = len(text) - len(text.lstrip(WHITESPACE))
        line = joined[start : len(text.rstrip(WHITESPACE))]
        if line.text.startswith("["):
            section = line.text[1:-1] if line.text.endswith("]") else ""
            continue
        key, equals, _ = line.text.partition("=")
        site = line.extent(0, len(line))
        if not equals or site is None:
            continue
        value = line[len(key) + 1 :]
        lead = len(value) - len(value.text.lstrip(WHITESPACE))
        yield Setting(section, key.strip(WHITESPACE), value[lead:], site)


def _logical_lines(source: Source) -> Iterator[Traced]:
    file = Traced.of_file(source.path, source.text)
    pending: list[Traced] = []
    at = 1 if source.text.startswith("\ufeff") else 0
    while at < len(source.text):
        stop = _BREAK.search(source.text, at)
        end = len(source.text) if stop is None else stop.end()
        raw = source.text[at : len(source.text) if stop is None else stop.start()]
        body = file[at : at + len(raw)]
        # systemd looks for comments before it takes the byte order mark off the first line.
        marked = at == 1 and source.text.startswith("\ufeff")
        if not marked and raw.lstrip(WHITESPACE).startswith(("#", ";")):
            at = end
            continue
        content = "".join(part.text for part in pending) + body.text
        trailing = len(content) - len(content.rstrip("\\"))
        if trailing % 2:
            last = at + len(raw) - 1
            blank = Traced(" ", (Origin((Site(source.path, last, last + 1),)),))
            pending += (file[at:last], blank)
        else:
            yield Traced.join([*pending, body])
            pending = []
        at = end
    if pending:
        yield Traced.join(pending)


def parse_unit(source: Source, others: Mapping[str, bytes]) -> Parsed:
    """Commands, environment and environment files of a unit or drop-in.

    ``others`` are the files it refers to, as far as they were read.
    """
    parsed = Parsed("systemd", texts={source.path: source.text})
    inline: dict[str, Variable] = {}
    files: list[Reference] = []
    commands: list[Setting] = []
    kind = ""
    for setting in settings_of(source):
        if setting.section != "Service":
            continue
        if setting.key == "Environment":
            if not setting.value.text:
                inline.clear()
                parsed.variables.clear()
            for variable in _environment(source, setting, parsed):
                inline[variable.name] = variable
                parsed.variables.append(variable)
        elif setting.key == "EnvironmentFile":
            if not setting.value.text:
                files.clear()
            else:
                files.append(_env_file(setting))
        elif setting.key in _COMMAND_KEYS:
            if not setting.value.text:
                commands.clear()
            else:
                commands.append(setting)
        elif setting.key == "Type":
            kind = setting.value.text
    parsed.references += files
    environment = dict(inline)
    all_read = _read_env_files(parsed, environment, files, others)
    for setting in commands:
        parsed.commands += _commands(source, setting, environment, missing_is_empty=all_read)
    if len(commands) > 1 and kind != "oneshot":
        lines = ", ".join(str(source.line_of(item.site.start)) for item in commands)
        parsed.warnings.append(
            f"ExecStart is set on lines {lines} without a reset between; systemd accepts that"
            " only for Type=oneshot."
        )
    return parsed


def _read_env_files(
    parsed: Parsed,
    environment: dict[str, Variable],
    files: list[Reference],
    others: Mapping[str, bytes],
) -> bool:
    """Let the files override, as systemd does; False where one was not read."""
    complete = True
    for reference in files:
        data = others.get(reference.path)
        if data is None:
            complete = False
            continue
        text = decode(reference.path, data).text
        parsed.texts[reference.path] = text
        for variable in parse_env_file(reference.path, text):
            environment[variable.name] = variable
            parsed.variables.append(variable)
    return complete


def _environment(source: Source, setting: Setting, parsed: Parsed) -> Iterator[Variable]:
    """The assignments of one line; what follows a fault in it is ignored, as systemd does."""
    at = 0
    while True:
        try:
            word = next_word(setting.value, at, strict=True)
        except (UnbalancedQuotesError, UnknownEscapeError):
            line = source.line_of(setting.site.start)
            parsed.warnings.append(
                f"{source.path}:{line}: {setting.key} has an open quote or an unknown escape;"
                " systemd ignores the rest of the line."
            )
            return
        if word is None:
            return
        at = word.end
        text = specifiers(word.text)
        name, equals, _ = text.text.partition("=")
        if equals and _ENV_NAME.match(name):
            token = setting.value.extent(word.start, word.end)
            yield Variable(name, text[len(name) + 1 :], token)


def _env_file(setting: Setting) -> Reference:
    path = specifiers(setting.value).text
    optional = path.startswith("-")
    return Reference("env-file", path[1:] if optional else path, setting.site, optional)


def _unbalanced(source: Source, setting: Setting) -> UnreadableConfigError:
    line = source.line_of(setting.site.start)
    return UnreadableConfigError(
        f"{source.path}:{line}: {setting.key} has a quote that is not closed.",
        remedy="systemd ignores such a line; close the quote first.",
        evidence=(f"{line}: {source.line_text(line)}",),
    )


def _commands(
    source: Source,
    setting: Setting,
    environment: Mapping[str, Variable],
    *,
    missing_is_empty: bool,
) -> Iterator[Command]:
    """The commands of one ``ExecStart=``: a ``;`` of its own separates them."""
    value = setting.value
    at = 0
    first = True
    words: list[Word] = []
    expands = True
    length = 0
    while True:
        at = _skip_blank(value.text, at)
        if not first and _alone(value.text, at, ";"):
            yield Command(tuple(words), environment, setting.site)
            words, first, at = [], True, at + 1
            continue
        if not first and _alone(value.text, at, "\\;"):
            words.append(Word(value[at + 1 : at + 2], value.extent(at, at + 2)))
            at += 2
            continue
        try:
            raw = next_word(value, at)
        except UnbalancedQuotesError:
            raise _unbalanced(source, setting) from None
        if raw is None:
            break
        at = raw.end
        token = value.extent(raw.start, raw.end)
        if first:
            first = False
            text, separate_name, expands = _without_prefix(raw.text)
            words.append(Word(specifiers(text), token))
            if separate_name:
                # "@": the next word is only the name the program sees for itself.
                renamed = next_word(value, at)
                at = renamed.end if renamed is not None else at
            continue
        word = Word(specifiers(raw.text), token)
        if expands:
            more = expand(word, environment, missing_is_empty=missing_is_empty)
            words += more
            length += sum(len(each.text) + 1 for each in more)
            if length > _LONGEST:
                raise UnreadableConfigError(
                    f"{source.path}: a command is longer than {_LONGEST} characters.",
                    remedy="Name the file that holds the engine's flags.",
                )
        else:
            words.append(word)
    if words:
        yield Command(tuple(words), environment, setting.site)


def _skip_blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in WHITESPACE:
        at += 1
    return at


def _alone(text: str, at: int, token: str) -> bool:
    after = at + len(token)
    return text.startswith(token, at) and (after == len(text) or text[after] in WHITESPACE)


def _without_prefix(word: Traced) -> tuple[Traced, bool, bool]:
    """The program, whether its name is given apart (``@``), and whether variables expand."""
    at = 0
    while at < len(word) and word.text[at] in "@-:+!":
        at += 1
    prefix = word.text[:at]
    return word[at:], "@" in prefix, ":" not in prefix
