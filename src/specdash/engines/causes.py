"""From the last log lines of a failed load to its cause, by tables of patterns. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from specdash.engines.logscan import readable
from specdash.engines.protocol import Cause, CauseCode

_EVIDENCE_LINES = 6


@dataclass(frozen=True, slots=True)
class Symptom:
    """A pattern that proves a cause. ``message`` and ``remedy`` are format strings over its
    named groups."""

    pattern: re.Pattern[str]
    code: CauseCode
    message: str
    remedy: str


def symptom(pattern: str, code: CauseCode, message: str, remedy: str) -> Symptom:
    """A table row."""
    return Symptom(re.compile(pattern), code, message, remedy)


def first_cause(lines: Sequence[str], table: Sequence[Symptom]) -> Cause | None:
    """The cause of the first row (rows stand from root causes to aftermath) that any line
    shows. Its first line counts, since what follows is mostly its consequence; the evidence
    is that line and the others of the row.
    """
    texts = [readable(line) for line in lines]
    for row in table:
        hits = [(text, found) for text in texts if (found := row.pattern.search(text))]
        if hits:
            groups = hits[0][1].groupdict(default="")
            return Cause(
                row.code,
                row.message.format(**groups).rstrip(),
                row.remedy.format(**groups),
                _distinct([text for text, _ in hits]),
            )
    return None


def _distinct(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))[:_EVIDENCE_LINES]


GPU_OUT_OF_MEMORY = (
    r"OutOfMemoryError|CUDA out of memory|CUDA error: out of memory"
    r"|cudaMalloc failed: out of memory|CUDA_ERROR_OUT_OF_MEMORY|ErrorOutOfDeviceMemory"
)

HOST = (
    symptom(
        r"Driver/library version mismatch",
        "driver",
        "The NVIDIA driver and its library are of different versions.",
        "Reboot the GPU host, or unload and load the driver's modules.",
    ),
    symptom(
        r"CUDA driver version is insufficient|NVIDIA driver on your system is too old",
        "driver",
        "The NVIDIA driver is too old for this build of the engine.",
        "Update the driver, or take a build for an older CUDA.",
    ),
    symptom(
        r"Failed to initialize NVML",
        "driver",
        "The engine cannot reach the GPUs: NVML does not start.",
        "Run nvidia-smi in the same place; a container that lost its GPUs has to be restarted.",
    ),
    symptom(
        r"Found no NVIDIA driver|no CUDA-capable device|No CUDA GPUs are available"
        r"|couldn't communicate with the NVIDIA driver|CUDA unknown error"
        r"|system not yet initialized|cudaErrorNoDevice|ggml_cuda_init: failed",
        "driver",
        "The engine finds no usable GPU.",
        "Run nvidia-smi on the host, and in the container if the engine runs in one.",
    ),
    symptom(
        r"fallen off the bus|GPU is lost|uncorrectable ECC|GPU requires reset",
        "driver",
        "A GPU failed.",
        "Look at the kernel log for Xid lines; the GPU has to be reset or the host rebooted.",
    ),
    symptom(
        r"killed by the OOM killer|Failed with result 'oom-kill'|Out of memory: Killed process",
        "out-of-memory",
        "The kernel ended a process because the host's memory (not the GPUs') ran out.",
        "Free host memory, raise the unit's memory limit, or load with fewer workers.",
    ),
)

PORT = (
    symptom(
        r"(?:[Aa]ddress already in use|EADDRINUSE|\[Errno 98\])",
        "port-in-use",
        "The port is already taken: most often the old process still runs.",
        "Find who holds the port and end it, then start again.",
    ),
)

AFTERMATH = (
    symptom(
        r"^(?:.*\b)?(?P<error>[A-Z]\w*(?:Error|Exception)): (?P<text>.{1,300})",
        "crash",
        "The engine died: {error}: {text}",
        "Read the lines above it in the log.",
    ),
    symptom(
        r"Segmentation fault|code=dumped|status=11/SEGV|status=6/ABRT",
        "crash",
        "The engine crashed in native code.",
        "Look for a core dump and the last log lines; a kernel or a driver may be at fault.",
    ),
    symptom(
        r"code=killed, status=9/KILL|Failed with result 'signal'",
        "crash",
        "A process of the service was killed from outside (SIGKILL). By itself that is no "
        "proof of missing memory.",
        "Look for an OOM line in the kernel log, a stop timeout, or somebody's kill.",
    ),
    symptom(
        r"Start request repeated too quickly|start-limit-hit",
        "restart-loop",
        "The service failed again and again, and systemd gave up starting it.",
        "Read the log of its first failure; the unit's failed state has to be reset.",
    ),
    symptom(
        r"restart counter is at (?P<count>\d+)",
        "restart-loop",
        "The service keeps failing and is restarted (restart {count}).",
        "Read the log of its first failure.",
    ),
    symptom(
        r"Main process exited, code=exited, status=(?P<status>\d+)",
        "crash",
        "The engine's process ended with exit status {status} without saying why.",
        "Raise the engine's log level and read its log.",
    ),
)
