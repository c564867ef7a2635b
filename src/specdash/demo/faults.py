"""What can be made to go wrong in the box, by name.

The names are the words of the file ``faults`` in the box's root, one or more a line; it is read
again whenever it matters, so that a test can switch faults while the box runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

FAULTS_FILE = "faults"


class Fault(StrEnum):
    """A named fault."""

    # The load.
    OOM_ON_LOAD = "oom-on-load"  # CUDA out of memory at graph capture
    NOT_ENOUGH_MEMORY = "not-enough-memory"  # SGLang's own refusal at the KV pool
    CRASH_ON_LOAD = "crash-on-load"  # a scheduler raises while weights load
    LOAD_STALLS = "load-stalls"  # weights stop coming, nothing exits
    NEVER_READY = "never-ready"  # /health stays 503
    IGNORES_DEPTH = "ignores-depth"  # the engine runs 3 steps whatever the flags say
    # The stop.
    ORPHAN_SCHEDULER = "orphan-scheduler"  # one scheduler outlives the stop, with its memory
    STUBBORN_ORPHAN = "stubborn-orphan"  # the same, and it ignores SIGTERM
    STOP_HANGS = "stop-hangs"  # the engine ignores SIGTERM
    # The GPUs.
    FOREIGN_HOLDER = "foreign-holder"  # somebody else's training job holds 20 GiB of GPU 1
    MEMORY_STUCK = "memory-stuck"  # memory of ended processes is not given back
    DRIVER_MISMATCH = "driver-mismatch"  # nvidia-smi: driver/library version mismatch
    GPU_LOST = "gpu-lost"  # nvidia-smi cannot get a handle of one GPU
    NO_LOOP = "no-loop"  # nvidia-smi refuses -l and -lms
    SMI_HANGS = "smi-hangs"  # nvidia-smi answers nothing
    # The endpoint.
    GENERATE_500 = "generate-500"
    GENERATE_HANGS = "generate-hangs"  # the request is taken, no byte comes
    STREAM_STALLS = "stream-stalls"  # stops after the first chunks, stays open
    STREAM_CUT = "stream-cut"  # the connection drops in the middle
    BROKEN_SSE = "broken-sse"  # events that are no JSON
    NO_USAGE = "no-usage"  # streams without any token count
    # The files and the link.
    CONFIG_READ_ONLY = "config-read-only"
    CONFIG_DISK_FULL = "config-disk-full"  # only where the box has its own mounts
    UNIT_PARSE_ERROR = "unit-parse-error"  # the supervisor refuses the unit at its next reload
    LINK_DROPS = "link-drops"  # every SSH connection is cut, new ones too, while set


def parse_faults(words: Iterable[str]) -> frozenset[Fault]:
    """Faults by name; raises ValueError naming an unknown one and what there is."""
    found: set[Fault] = set()
    for word in words:
        try:
            found.add(Fault(word))
        except ValueError:
            known = ", ".join(fault.value for fault in Fault)
            raise ValueError(f"no fault is called {word!r}; there are: {known}") from None
    return frozenset(found)


class FaultSwitch:
    """The faults set now, read from the box's root."""

    def __init__(self, root: Path) -> None:
        self._path = root / FAULTS_FILE

    def now(self) -> frozenset[Fault]:
        """What is set; names nobody knows are passed over (the writer checks them)."""
        try:
            words = self._path.read_text(encoding="utf-8").split()
        except FileNotFoundError:
            return frozenset()
        known = {fault.value for fault in Fault}
        return frozenset(Fault(word) for word in words if word in known)

    def on(self, *faults: Fault) -> bool:
        """Whether any of these is set."""
        return not self.now().isdisjoint(faults)

    def write(self, faults: Iterable[Fault]) -> None:
        """Replace the set."""
        text = "".join(f"{fault.value}\n" for fault in sorted(set(faults)))
        partial = self._path.with_name(FAULTS_FILE + ".new")
        partial.write_text(text, encoding="utf-8")
        partial.replace(self._path)
