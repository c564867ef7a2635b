"""What a real test needs, and the one rule for where it is missing.

In CI (the variable CI is set) a component that cannot run is a failure: a green run must mean
that the real thing was driven. On a user's own machine the test is skipped, with the reason.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from typing import NoReturn

import pytest

SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where system programs lie that an ordinary user's PATH leaves out."""


def in_ci() -> bool:
    """Whether a missing component must fail the run."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def cannot_run(reason: str) -> NoReturn:
    """Fail in CI, skip elsewhere, with the reason."""
    if in_ci():
        pytest.fail(f"cannot run here: {reason}", pytrace=False)
    pytest.skip(reason)


def find_program(name: str) -> str | None:
    """The path of a program, system directories included."""
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(SBIN))


def require(program: str, *, package: str = "") -> str:
    """The path of a program this test needs; ``package``: the Debian package that has it."""
    path = find_program(program)
    if path is None:
        hint = f" (install the package {package})" if package else ""
        cannot_run(f"the program {program} is not installed{hint}")
    return path


def require_module(module: str, *, package: str = "") -> None:
    """A Python module this test needs."""
    if importlib.util.find_spec(module) is None:
        cannot_run(f"the Python package {package or module} is not installed")


def require_linux_root() -> None:
    """Namespaces and mounts need Linux and root."""
    if sys.platform != "linux":
        cannot_run("namespaces need Linux")
    if os.geteuid() != 0:
        cannot_run("namespaces and mounts need root")
