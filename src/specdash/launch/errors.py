"""What can be wrong with a launch config, each named with the lines that were looked at."""

from __future__ import annotations

from collections.abc import Sequence

from specdash.core.errors import RefusedError, WorkFailedError


class LaunchConfigError(WorkFailedError):
    """Base of what this room raises for a file it will not read or edit (exit 1)."""

    default_code = "launch-config"


class UnreadableConfigError(LaunchConfigError):
    """Not UTF-8, binary, too large, or broken by its own form's rules."""

    default_code = "unreadable"


class UnsupportedFormError(LaunchConfigError):
    """A form of launch config that cannot be edited yet; the message names the form."""

    default_code = "unsupported-form"


class KnobNotFoundError(LaunchConfigError):
    """The speculation settings are not in this file; the evidence lists what was looked at."""

    default_code = "knob-not-found"


class KnobElsewhereError(KnobNotFoundError):
    """The value lives in another file. ``line`` is 0 where that file was not read."""

    default_code = "knob-elsewhere"

    def __init__(
        self,
        message: str,
        *,
        path: str,
        line: int = 0,
        remedy: str = "",
        evidence: Sequence[str] = (),
    ) -> None:
        super().__init__(message, remedy=remedy, evidence=evidence)
        self.path = path
        self.line = line


class AmbiguousKnobError(LaunchConfigError):
    """More than one place may hold the value, or changing it would change something else."""

    default_code = "knob-ambiguous"


class NothingToRestoreError(RefusedError):
    """Speculation is off in the file and what was removed is not known (exit 4)."""

    default_code = "nothing-to-restore"
