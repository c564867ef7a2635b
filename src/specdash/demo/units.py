"""systemd unit files as the box reads them: lines, words, expansion. Pure.

Written from systemd.syntax(7) and systemd.service(5), apart from the product's own reader.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


KNOWN: dict[str, frozenset[str]] = {
    "Unit": _names(
        "Description Documentation After Before Wants Requires BindsTo PartOf Conflicts "
        "OnFailure StartLimitIntervalSec StartLimitBurst ConditionPathExists AssertPathExists "
        "DefaultDependencies RequiresMountsFor StartLimitInterval"
    ),
    "Service": _names(
        "Type ExecStart ExecStartPre ExecStartPost ExecStop ExecStopPost ExecReload Restart "
        "RestartSec TimeoutStartSec TimeoutStopSec TimeoutSec KillMode KillSignal SendSIGKILL "
        "Environment EnvironmentFile PassEnvironment UnsetEnvironment User Group "
        "WorkingDirectory StandardOutput StandardError StandardInput SyslogIdentifier "
        "LimitNOFILE LimitMEMLOCK LimitCORE LimitSTACK MemoryMax TasksMax CPUQuota CPUAffinity "
        "Nice OOMScoreAdjust PIDFile RemainAfterExit SuccessExitStatus RestartPreventExitStatus "
        "NotifyAccess WatchdogSec PrivateTmp ProtectSystem ProtectHome NoNewPrivileges "
        "SupplementaryGroups UMask StateDirectory RuntimeDirectory LogsDirectory Slice Delegate "
        "IOSchedulingClass CPUSchedulingPolicy DeviceAllow StartLimitInterval StartLimitBurst"
    ),
    "Install": _names("WantedBy RequiredBy Alias Also DefaultInstance"),
}

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "s": " ", "\\": "\\", '"': '"', "'": "'", "$": "$"}
_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_WHOLE_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_SPAN = re.compile(r"([0-9.]+)\s*(us|ms|s|sec|second|seconds|m|min|h|d)?")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class UnitError(ValueError):
    """A unit that systemd would not load or start; the text is what it says."""


@dataclass(slots=True)
class Unit:
    """The settings of a unit after its file and drop-ins. ``complaints`` are log lines."""

    values: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    bad: bool = False

    def last(self, section: str, key: str, default: str = "") -> str:
        return (self.values.get((section, key)) or [default])[-1]

    def all(self, section: str, key: str) -> list[str]:
        return self.values.get((section, key), [])

    def seconds(self, key: str, default: float, section: str = "Service") -> float:
        return span_seconds(self.last(section, key), default)


def span_seconds(text: str, default: float) -> float:
    """``1min 30s`` in seconds; inf for ``infinity``."""
    if text == "infinity":
        return float("inf")
    parts = _SPAN.findall(text)
    if not parts:
        return default
    return sum(float(number) * _SECONDS.get(unit, 1.0) for number, unit in parts)


def logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines after joining continuations, with the number of the first; comments are gone."""
    out: list[tuple[int, str]] = []
    held: list[str] = []
    first = 0
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.removesuffix("\r")
        if line.lstrip()[:1] in ("#", ";"):
            continue
        if not held:
            first = number
        if line.endswith("\\"):
            held.append(line[:-1])
            continue
        out.append((first, " ".join([*held, line]).strip()))
        held = []
    if held:
        out.append((first, " ".join(held).strip()))
    return [(number, line) for number, line in out if line]


def read_into(unit: Unit, text: str, path: str) -> None:
    """Apply one file on top of what is there: an empty value clears, lists grow."""
    section = ""
    for number, line in logical_lines(text):
        where = f"{path}:{number}:"
        if line.startswith("["):
            if not line.endswith("]"):
                unit.complaints.append(f"{where} Invalid section header '{line}'")
                unit.bad = True
                return
            section = line[1:-1]
            if section not in KNOWN and not section.startswith("X-"):
                unit.complaints.append(f"{where} Unknown section '{section}'. Ignoring.")
            continue
        key, equals, value = line.partition("=")
        key, value = key.strip(), value.strip()
        if not equals:
            unit.complaints.append(f"{where} Missing '=', ignoring line.")
            continue
        if not section:
            unit.complaints.append(f"{where} Assignment outside of section. Ignoring.")
            continue
        if section in KNOWN and key not in KNOWN[section] and not key.startswith("X-"):
            unit.complaints.append(
                f"{where} Unknown key name '{key}' in section '{section}', ignoring."
            )
            continue
        if section == "Service" and key.startswith("Exec") and value:
            try:
                words = split_words(value)
            except UnitError as error:
                unit.complaints.append(f"{where} {error}, ignoring: {value}")
                continue
            if not words or not words[0].lstrip("@-:+!").startswith("/"):
                program = words[0] if words else ""
                if "/" in program:
                    unit.complaints.append(
                        f"{where} Neither a valid executable name nor an absolute path: {program}"
                    )
                    continue
        values = unit.values.setdefault((section, key), [])
        if value:
            values.append(value)
        else:
            values.clear()


def split_words(text: str) -> list[str]:
    """Words of a command line or an ``Environment=``: quotes group, C escapes are undone."""
    words: list[str] = []
    word: list[str] = []
    quote = ""
    started = False
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\" and at + 1 < len(text):
            at, taken = _escape(text, at)
            word.append(taken)
            started = True
            continue
        if quote:
            if char == quote:
                quote = ""
            else:
                word.append(char)
        elif char in "\"'":
            quote = char
            started = True
        elif char.isspace():
            if started:
                words.append("".join(word))
            word, started = [], False
        else:
            word.append(char)
            started = True
        at += 1
    if quote:
        raise UnitError("Unbalanced quoting")
    if started:
        words.append("".join(word))
    return words


def _escape(text: str, at: int) -> tuple[int, str]:
    code = text[at + 1]
    if code == "x" and re.fullmatch(r"[0-9a-fA-F]{2}", text[at + 2 : at + 4]):
        return at + 4, chr(int(text[at + 2 : at + 4], 16))
    if code in _ESCAPES:
        return at + 2, _ESCAPES[code]
    return at + 2, "\\" + code


def command(text: str, env: Mapping[str, str], specifiers: Mapping[str, str]) -> list[str]:
    """The argv that would be executed: prefixes off, specifiers and variables expanded."""
    words = split_words(text)
    if not words:
        raise UnitError("Empty command line")
    words[0] = words[0].lstrip("@-:+!")
    out: list[str] = []
    for position, raw in enumerate(words):
        word = _specifiers(raw, specifiers)
        whole = _WHOLE_VARIABLE.fullmatch(word)
        if whole and position:
            out.extend(env.get(whole[1], "").split())
            continue
        out.append(_VARIABLE.sub(lambda m: env.get(m[1], "") if m[1] else "$", word))
    return out


def _specifiers(word: str, table: Mapping[str, str]) -> str:
    return re.sub(r"%(.)", lambda m: "%" if m[1] == "%" else table.get(m[1], m[0]), word)


def environment(unit: Unit, files: Mapping[str, str]) -> dict[str, str]:
    """``Environment=`` and the given texts of the ``EnvironmentFile=``s, in systemd's order."""
    env: dict[str, str] = {}
    for line in unit.all("Service", "Environment"):
        for word in split_words(line):
            name, equals, value = word.partition("=")
            if equals:
                env[name] = value
    for text in files.values():
        env.update(environment_file(text))
    return env


def environment_file(text: str) -> dict[str, str]:
    """KEY=VALUE lines; comments, quotes at the ends, ``\\`` continues."""
    env: dict[str, str] = {}
    for line in text.replace("\\\n", "").splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        name, equals, value = stripped.partition("=")
        if not equals:
            continue
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        env[name.strip()] = value
    return env
