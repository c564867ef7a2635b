"""One local file: read with care, replaced in one step, its old bytes kept.

Symlinks are followed and stay; mode, owner and extended attributes are kept.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from specdash.core.errors import WorkFailedError
from specdash.launch.source import MAX_BYTES

_NO_ATTRIBUTES = (errno.ENOTSUP, errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENODATA)


class FileFailedError(WorkFailedError):
    """A file cannot be read or written as asked; it is as it was."""

    default_code = "file"


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A regular file as it was read. ``real`` is where symlinks lead."""

    given: str
    real: Path
    data: bytes
    status: os.stat_result


def read_file(given: str) -> LocalFile:
    """Raises FileFailedError for what is absent, unreadable, too large or no regular file."""
    if not given:
        raise FileFailedError(
            "No file is named.", remedy="Name the launch config.", code="unreadable"
        )
    real = Path(os.path.realpath(given))
    try:
        # Without O_NONBLOCK opening a FIFO would wait for a writer.
        handle = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise FileFailedError(
            f"{given} cannot be read: {_reason(error)}.",
            remedy="Check the path and your rights.",
            code="unreadable",
        ) from None
    status = os.fstat(handle)
    if stat.S_ISDIR(status.st_mode):
        os.close(handle)
        raise FileFailedError(
            f"{given} is a directory, not a file.",
            remedy="Name the launch config itself.",
            code="unreadable",
        )
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(status.st_mode):
            raise FileFailedError(
                f"{given} is {_kind(status.st_mode)}, not a file.",
                remedy="Name the launch config itself.",
                code="unreadable",
            )
        if status.st_size > MAX_BYTES:
            raise FileFailedError(
                f"{given} is {status.st_size} bytes; a launch config of more than {MAX_BYTES} is"
                " not read.",
                remedy="Name the file that holds the engine's flags.",
                code="unreadable",
            )
        try:
            return LocalFile(given, real, file.read(), status)
        except OSError as error:
            raise FileFailedError(
                f"{given} cannot be read: {_reason(error)}.",
                remedy="Check the disk it is on.",
                code="unreadable",
            ) from None


def _kind(mode: int) -> str:
    return "a FIFO" if stat.S_ISFIFO(mode) else "a device or socket"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def backup_folder(root: Path, real: Path) -> Path:
    """Where the backups of one file are kept."""
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    return root / digest


def backups_of(root: Path, real: Path) -> list[Path]:
    """The backups of one file, newest first."""
    with suppress(OSError):
        return sorted(backup_folder(root, real).iterdir(), reverse=True)
    return []


def check_writable(file: LocalFile) -> None:
    """Raises FileFailedError where the file must not or cannot be replaced."""
    folder = file.real.parent
    if not file.status.st_mode & 0o222 or not os.access(file.real, os.W_OK):
        raise FileFailedError(
            f"{file.given} is read-only.",
            remedy=f"Give yourself the right to write {file.real}, or run as its owner.",
            code="read-only",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileFailedError(
            f"{folder} is read-only, so {file.real.name} cannot be replaced in it.",
            remedy="Run with the right to write there.",
            code="read-only",
        )


def replace_file(file: LocalFile, data: bytes, backups: Path) -> Path:
    """Back up, write beside, rename, read back and compare; returns the backup's path.

    Raises FileFailedError where the file changed since it was read, or where any step fails.
    """
    check_writable(file)
    step = "back it up"
    temporary: Path | None = None
    try:
        backup = _back_up(file, backups)
        step = "write beside it"
        temporary = _write_beside(file, data)
        _check_unchanged(file)
        step = "replace it"
        temporary.replace(file.real)
        temporary = None
        _sync_folder(file.real.parent)
        step = "read back"
        now = file.real.read_bytes()
    except OSError as error:
        raise FileFailedError(
            f"{file.given} was not changed: could not {step}: {_reason(error)}."
            if step != "read back"
            else f"{file.given} was replaced but cannot be read back: {_reason(error)}.",
            remedy="Free space or fix the rights, then try again.",
        ) from None
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()
    if now != data:
        raise FileFailedError(
            f"{file.given} does not hold what was written: something else changed it.",
            remedy=f"Compare it with the backup {backup}.",
        )
    return backup


def write_private(path: Path, data: bytes) -> None:
    """Write a file of our own, readable by its owner alone, in one step."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _back_up(file: LocalFile, root: Path) -> Path:
    folder = backup_folder(root, file.real)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    backup = folder / f"{stamp}-{file.real.name[-180:]}"
    write_private(backup, file.data)
    return backup


def _write_beside(file: LocalFile, data: bytes) -> Path:
    handle, name = tempfile.mkstemp(
        prefix=f".{file.real.name[:100]}.", suffix=".specdash", dir=file.real.parent
    )
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as new:
            new.write(data)
            new.flush()
            own = os.fstat(new.fileno())
            if (own.st_uid, own.st_gid) != (file.status.st_uid, file.status.st_gid):
                os.fchown(new.fileno(), file.status.st_uid, file.status.st_gid)
            os.fchmod(new.fileno(), stat.S_IMODE(file.status.st_mode))
            _copy_attributes(file.real, new.fileno())
            os.fsync(new.fileno())
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    return temporary


def _copy_attributes(source: Path, target: int) -> None:
    """Extended attributes (SELinux labels among them), where the file system has them."""
    listxattr = getattr(os, "listxattr", None)
    if listxattr is None:
        return
    try:
        for name in listxattr(source):
            os.setxattr(target, name, os.getxattr(source, name))
    except OSError as error:
        if error.errno not in _NO_ATTRIBUTES:
            raise


def _check_unchanged(file: LocalFile) -> None:
    if file.real.read_bytes() != file.data:
        raise FileFailedError(
            f"{file.given} changed since it was read; it was left alone.",
            remedy="Look at it and run the command again.",
            code="changed-underfoot",
        )


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
