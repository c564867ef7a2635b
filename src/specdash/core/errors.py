"""Typed errors. Each names the thing and the remedy; the exit code is part of the contract."""

from __future__ import annotations

from collections.abc import Sequence

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_REFUSED = 4
EXIT_INTERRUPTED = 130


def as_sentence(text: str) -> str:
    """``text`` with a full stop, where it has no end of its own."""
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


class SpecdashError(Exception):
    """Base of every error shown to an operator.

    ``message`` is one plain sentence, ``remedy`` what to do about it, ``evidence`` the
    lines that prove it (command, exit status, last output), ``code`` a stable slug.
    """

    exit_code = EXIT_FAILED
    default_code = "failed"

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        code: str | None = None,
        evidence: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.code = code or self.default_code
        self.evidence = tuple(evidence)

    @property
    def sentences(self) -> str:
        """Message and remedy as sentences, one after the other."""
        return " ".join(as_sentence(part) for part in (self.message, self.remedy) if part)

    def to_json(self) -> dict[str, object]:
        """The ``error`` object of the headless verbs."""
        return {"code": self.code, "message": self.message, "remedy": self.remedy}


class WorkFailedError(SpecdashError):
    """The work itself failed: a stage, a file, a cell (exit 1)."""


class UsageError(SpecdashError):
    """The command line, the rig file or a value outside its domain (exit 2)."""

    exit_code = EXIT_USAGE
    default_code = "usage"


class UnreachableError(SpecdashError):
    """A host or endpoint cannot be reached or does not let us in (exit 3)."""

    exit_code = EXIT_UNREACHABLE
    default_code = "unreachable"


class RefusedError(SpecdashError):
    """specdash will not do it: an illegal candidate, a lock, a missing yes (exit 4)."""

    exit_code = EXIT_REFUSED
    default_code = "refused"


class InterruptedRunError(SpecdashError):
    """The operator cancelled (exit 130)."""

    exit_code = EXIT_INTERRUPTED
    default_code = "interrupted"


class InternalError(WorkFailedError):
    """A fault of specdash itself. Its traceback belongs into the journal, never on the screen."""

    default_code = "internal"

    @classmethod
    def of(cls, bug: BaseException) -> InternalError:
        """The error to show for an exception nobody expected."""
        return cls(
            "specdash itself made a mistake.",
            remedy="Please report it; the journal of this session holds the details.",
            evidence=[f"{type(bug).__name__}: {bug}"],
        )
