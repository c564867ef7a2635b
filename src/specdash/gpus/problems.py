"""What nvidia-smi says when it fails, as data: text -> code, sentence, remedy.

The texts appear on stdout or stderr, with the NVML code as exit status (nvidia-smi(1), "RETURN
VALUE"; the sentences as users quote them).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from specdash.core.gpu import Problem, ProblemCode
from specdash.core.text import make_safe

_BUS = r"(?:gpu)?\s*(?P<bus>(?:[0-9a-f]{1,8}:)?[0-9a-f]{1,2}:[0-9a-f]{1,2}\.[0-7])"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A failure text. ``message`` may use the groups of the pattern."""

    pattern: re.Pattern[str]
    code: ProblemCode
    message: str
    remedy: str


def _sentence(pattern: str, code: ProblemCode, message: str, remedy: str) -> Sentence:
    return Sentence(re.compile(pattern, re.IGNORECASE), code, message, remedy)


_LOAD_DRIVER = (
    "Load the driver (`modprobe nvidia`) or reinstall it for the running kernel; see `dmesg`."
)
_RESET = "Reset the GPU (`nvidia-smi --gpu-reset`) or reboot the host; `dmesg` shows the Xid."

SENTENCES: tuple[Sentence, ...] = (
    _sentence(
        r"driver/library version mismatch",
        "driver-mismatch",
        "The NVIDIA kernel module and its library have different versions.",
        "Reboot the host, or unload and reload the nvidia modules when no process uses them.",
    ),
    _sentence(
        r"couldn'?t communicate with the nvidia driver",
        "no-driver",
        "nvidia-smi cannot talk to the NVIDIA driver: it is not loaded.",
        _LOAD_DRIVER,
    ),
    _sentence(
        r"failed to initialize nvml: unknown error",
        "no-driver",
        "NVML does not start (unknown error): a container that lost its GPU devices says this.",
        "Restart the container; on the host, `nvidia-smi` tells whether the driver itself works.",
    ),
    _sentence(
        r"failed to initialize nvml: (?P<why>[^\r\n]{1,120})",
        "no-driver",
        "NVML does not start: {why}.",
        _LOAD_DRIVER,
    ),
    _sentence(
        r"couldn'?t find (?:the )?(?P<what>libnvidia-ml\.so|nvml\.dll)",
        "no-driver",
        "nvidia-smi finds no {what}: the driver's library is missing.",
        "Install the driver's utilities, or pass the driver into the container.",
    ),
    _sentence(
        r"gpu access blocked by the operating system",
        "no-driver",
        "The operating system blocks access to the GPU.",
        "In WSL, update the Windows driver; in a container, pass the GPU devices in.",
    ),
    _sentence(
        r"no devices (?:were )?found",
        "no-devices",
        "The driver sees no GPU.",
        "`lspci` shows whether the card is on the bus; a container needs its devices passed in.",
    ),
    _sentence(
        rf"(?:{_BUS}\s*:?[^:\r\n]*:?\s*)?gpu is lost",
        "gpu-lost",
        "GPU {bus} is lost: it fell off the bus.",
        "Reboot the host to recover this GPU.",
    ),
    _sentence(
        rf"unable to determine the device handle for\s*{_BUS}\s*:?\s*(?P<why>[^\r\n]{{0,80}})",
        "gpu-lost",
        "GPU {bus} does not answer: {why}.",
        _RESET,
    ),
    _sentence(
        r"unable to determine the device handle for (?P<bus>[^\r\n:]{1,40})",
        "gpu-lost",
        "{bus} does not answer.",
        _RESET,
    ),
    _sentence(
        r"gpu has fallen off the bus",
        "gpu-lost",
        "A GPU has fallen off the bus.",
        "Reboot the host to recover this GPU.",
    ),
    _sentence(
        r"field \"(?P<field>[^\"\r\n]{1,80})\" is not a valid field to query",
        "field-refused",
        "This driver does not know the field {field}.",
        "Leave the field out, or use a newer driver.",
    ),
    _sentence(
        r"invalid combination of input arguments|option \S+ (?:is )?not recognized|unrecognized option",
        "field-refused",
        "This nvidia-smi does not take these options.",
        "Use a newer driver; specdash asks again with fewer options.",
    ),
    _sentence(
        r"nvidia-smi[^\r\n]{0,40}(?:command not found|not found|no such file or directory"
        r"|not recognized as|permission denied|executable file not found)"
        r"|(?:command not found|no such file or directory|executable file not found)[^\r\n]{0,40}nvidia-smi"
        r"|failed to run command .nvidia-smi",
        "no-command",
        "nvidia-smi is not there.",
        "Install the NVIDIA driver's utilities, or name the host that has the GPUs.",
    ),
)

_VERSION = re.compile(r"NVML library version: ?(?P<version>[0-9.]{1,20})", re.IGNORECASE)
_LONGEST = 1000
_NOISE = re.compile(
    r"infoROM is corrupted|You should always run with libnvidia-ml\.so|Failed to properly shut"
    r"|^\s*$",
    re.IGNORECASE,
)

_BY_STATUS: dict[int, tuple[ProblemCode, str, str]] = {
    6: ("no-devices", "The driver sees no GPU (exit 6).", "`lspci` shows whether the card is on the bus."),
    9: ("no-driver", "The NVIDIA driver is not loaded (exit 9).", _LOAD_DRIVER),
    10: ("no-driver", "The driver did not answer in time (exit 10).", "See `dmesg` for Xid errors."),
    12: ("no-driver", "The NVML library is missing (exit 12).", "Install the driver's utilities."),
    15: ("gpu-lost", "A GPU is lost (exit 15).", "Reboot the host to recover it."),
    16: ("gpu-lost", "A GPU requires a reset (exit 16).", _RESET),
    17: ("no-driver", "The operating system blocks access to the GPU (exit 17).", "Pass the GPU devices into the container or cgroup."),
    18: ("driver-mismatch", "The kernel module and the library have different versions (exit 18).", "Reboot the host."),
    126: ("no-command", "nvidia-smi may not be run (exit 126).", "Check the rights on it."),
    127: ("no-command", "nvidia-smi is not there (exit 127).", "Install the NVIDIA driver's utilities, or name the host that has the GPUs."),
    255: ("no-driver", "nvidia-smi failed (exit 255).", "Run it by hand on that host; see `dmesg`."),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Said:
    """A failure found in a line. ``bus`` is the PCI address it names, as printed."""

    problem: Problem
    bus: str | None = None
    field: str | None = None


def find_failure(line: str) -> Said | None:
    """The failure this line tells of, if any."""
    for sentence in SENTENCES:
        found = sentence.pattern.search(line[:_LONGEST])
        if found is None:
            continue
        groups = {k: (v or "").strip().rstrip(".:").strip() for k, v in found.groupdict().items()}
        bus = groups.get("bus") or None
        values = {**groups, "bus": bus or "(unnamed)"}
        text = sentence.message.format(**values).replace(": .", ".")
        return Said(
            Problem(sentence.code, str(make_safe(text, limit=300)), sentence.remedy),
            bus=bus,
            field=groups.get("field") or None,
        )
    return None


def library_version(line: str) -> str | None:
    """The version in the line that follows a mismatch."""
    found = _VERSION.search(line)
    return found["version"] if found else None


def is_noise(line: str) -> bool:
    """Warnings that come with valid output."""
    return _NOISE.search(line) is not None


def failure_of_status(status: int | None) -> Problem | None:
    """What an exit status alone tells (it is the NVML code, or the shell's)."""
    known = _BY_STATUS.get(status) if status is not None else None
    return Problem(*known) if known else None


def garbled(message: str) -> Problem:
    """Part of the output could not be read."""
    return Problem(
        "garbled",
        message,
        "What could be read is shown; take the output again, with its header, in one piece.",
    )
