"""Reading and replacing a file on any host, with nothing but commands.

Replacing is two steps, so that all that can fail does so before the old file is touched:
:func:`stage_file` writes a temporary file beside the target (same mode and owner, flushed, read
back and compared), :func:`commit_file` makes sure that the target still has the bytes that were
read, keeps a copy of them, renames and reads back. The argument lists are constant scripts with
arguments; ``*_argv`` give them for a plan to show.
"""

from __future__ import annotations

import posixpath
import secrets
import time
from dataclasses import dataclass, field
from typing import NoReturn

from specdash.core.errors import WorkFailedError
from specdash.hosts.protocol import Completed, Host, evidence_of

MAX_FILE = 8 << 20
"""Bytes; a launch config is some kilobytes."""

_TIMEOUT_S = 60.0

# Exit statuses of the scripts, outside what the tools themselves use.
_MISSING, _DENIED, _DIRECTORY, _TOO_LARGE, _SPECIAL, _CHANGED, _EXISTS, _KEPT = range(80, 88)

# "MODE UID GID SIZE\n" PATH "\0" BYTES. ls -n is POSIX; stat is not.
_READ = r"""
LC_ALL=C; export LC_ALL; set -f
path=$(readlink -fn -- "$1" && echo x) && path=${path%x} || path=$1
[ ! -d "$path" ] || exit 82
[ -e "$path" ] || { ls -ld -- "$path" >/dev/null; exit 80; }
[ -f "$path" ] || exit 84
[ -r "$path" ] || exit 81
set -- "$2" $(ls -ldn -- "$path")
[ "$6" -le "$1" ] || { echo "$6" >&2; exit 83; }
printf '%s %s %s %s\n%s\000' "$2" "$4" "$5" "$6" "$path"
exec cat -- "$path"
"""

# stdin: the new bytes. stdout: "MODE UID GID" of the target, the same of the temporary file, and
# the bytes read back. cp -p gives the temporary file mode, owner and ACL of the target; the mode
# is set again because writing may be forbidden by it, and clears set-id bits. What an earlier
# stage left that was killed goes first: one stage of a file at a time is its callers' rule.
_STAGE = r"""
LC_ALL=C; export LC_ALL; set -f
target=$1 temporary=$2 mode=$3
[ ! -e "$temporary" ] && [ ! -L "$temporary" ] || exit 86
h='[0-9a-f][0-9a-f][0-9a-f][0-9a-f]'
set +f
for old in "${temporary%-*}"-$h$h$h; do
  [ ! -f "$old" ] || rm -f -- "$old"
done
set -f
trap 'rm -f -- "$temporary"' EXIT
cp -p -- "$target" "$temporary" || exit 1
chmod u+w -- "$temporary" && cat >"$temporary" && chmod "$mode" -- "$temporary" || exit 1
sync -- "$temporary" 2>/dev/null || sync
for file in "$target" "$temporary"; do
  set -- $(ls -ldn -- "$file") || exit 1
  printf '%s %s %s\n' "$1" "$3" "$4"
done
cat -- "$temporary" || exit 1
trap - EXIT
"""

# stdin: the bytes the target is expected to hold. stdout: the bytes it holds at the end.
_COMMIT = r"""
LC_ALL=C; export LC_ALL
target=$1 temporary=$2 backup=$3
same() {
  if command -v cmp >/dev/null 2>&1; then cmp -s -- "$1" "$2"
  else [ "$(cksum <"$1")" = "$(cksum <"$2")" ]; fi
}
[ -f "$target" ] && [ ! -L "$target" ] || exit 85
[ ! -e "$backup" ] && [ ! -L "$backup" ] || exit 86
mkdir -p -- "${backup%/*}/" && cp -p -- "$target" "$backup" || exit 87
if command -v cmp >/dev/null 2>&1; then cmp -s - "$backup"
else [ "$(cksum)" = "$(cksum <"$backup")" ]; fi || { rm -f -- "$backup"; exit 85; }
sync -- "$backup" 2>/dev/null || sync
same "$target" "$backup" || { rm -f -- "$backup"; exit 85; }
mv -f -- "$temporary" "$target" || { rm -f -- "$backup"; exit 1; }
sync -- "${target%/*}/" 2>/dev/null || sync
exec cat -- "$target"
"""


class FileError(WorkFailedError):
    """A file could not be read or replaced. Nothing was changed unless the message says so."""

    default_code = "file"


class FileMissingError(FileError):
    default_code = "file-missing"


class FileDeniedError(FileError):
    default_code = "file-denied"


class FileKindError(FileError):
    """A directory, a device, or larger than a config can be."""

    default_code = "file-kind"


class FileChangedError(FileError):
    """Somebody else wrote to it since it was read."""

    default_code = "file-changed"


@dataclass(frozen=True, slots=True)
class FileImage:
    """A file as it was read. ``path`` as asked for, ``real_path`` with symlinks resolved.

    ``mode``: permission bits, set-id and sticky bits included.
    """

    path: str
    real_path: str
    data: bytes = field(repr=False)
    mode: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Staged:
    """New bytes that lie beside their target, not in effect yet."""

    real_path: str
    temporary: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Committed:
    """The target holds the new bytes; ``backup`` is the copy of the old ones on that host."""

    real_path: str
    backup: str


def read_argv(path: str, limit: int = MAX_FILE) -> tuple[str, ...]:
    return ("/bin/sh", "-c", _READ, "specdash-read", path, str(limit))


def stage_argv(image: FileImage, temporary: str) -> tuple[str, ...]:
    return (
        "/bin/sh",
        "-c",
        _STAGE,
        "specdash-stage",
        image.real_path,
        temporary,
        f"{image.mode:04o}",
    )


def commit_argv(staged: Staged, backup: str) -> tuple[str, ...]:
    words = ("specdash-commit", staged.real_path, staged.temporary, backup)
    return ("/bin/sh", "-c", _COMMIT, *words)


def discard_argv(staged: Staged) -> tuple[str, ...]:
    return ("rm", "-f", "--", staged.temporary)


def temporary_path(real_path: str) -> str:
    """A fresh name in the same directory that no service manager takes for a config of its own."""
    directory, name = posixpath.split(real_path)
    return posixpath.join(directory, f".{name}.specdash-{secrets.token_hex(6)}")


def backup_path(real_path: str, stamp: str, directory: str | None = None) -> str:
    """Where :func:`commit_file` keeps the old bytes: beside the file, or in ``directory``."""
    own, name = posixpath.split(real_path)
    return posixpath.join(directory or own, f"{name}.specdash-backup-{stamp}")


async def read_file(host: Host, path: str, *, limit: int = MAX_FILE) -> FileImage:
    """Read a regular file. Raises FileError subclasses, and UnreachableError as ``run`` does."""
    if not path.startswith("/"):
        raise FileError(f"{path!r} is not an absolute path", remedy="Write it from / on.")
    done = await host.run(read_argv(path, limit), timeout_s=_TIMEOUT_S)
    if not done.ok:
        _raise_read(done, path, limit)
    head, _, rest = done.stdout.partition(b"\n")
    real, _, data = rest.partition(b"\0")
    try:
        mode, uid, gid, size = head.split()
        image = FileImage(
            path, real.decode("utf-8", "surrogateescape"), data, _mode(mode), int(uid), int(gid)
        )
        expected = int(size)
    except ValueError:
        raise FileError(
            f"{path} on {host.name} could not be read: its listing is not understood",
            evidence=evidence_of(done),
        ) from None
    if len(data) != expected and not image.real_path.startswith(("/proc/", "/sys/")):
        raise FileChangedError(
            f"{path} on {host.name} changed while it was read",
            remedy="Try again.",
            evidence=(f"{expected} bytes announced, {len(data)} read",),
        )
    return image


async def stage_file(host: Host, image: FileImage, data: bytes) -> Staged:
    """Write ``data`` beside the file that ``image`` was read from.

    Raises FileError; the temporary file is gone then.
    """
    staged = Staged(image.real_path, temporary_path(image.real_path), data)
    done = await host.run(
        stage_argv(image, staged.temporary), timeout_s=_TIMEOUT_S, stdin=data or None
    )
    if not done.ok:
        _raise_write(done, image.real_path, "a new version of it cannot be written beside it")
    target, _, rest = done.stdout.partition(b"\n")
    copy, _, read_back = rest.partition(b"\n")
    problem = ""
    if _plain(target) != _plain(copy):
        problem = (
            f"a replaced {image.real_path} would change its mode or owner "
            f"({_plain(target)} to {_plain(copy)})"
        )
    elif read_back != data:
        problem = f"what was written beside {image.real_path} does not read back the same"
    if problem:
        await discard_file(host, staged)
        raise FileError(
            f"{host.name}: {problem}",
            remedy="Use a login that owns the file, or `sudo = true` for this host.",
        )
    return staged


async def commit_file(
    host: Host,
    staged: Staged,
    expect: FileImage,
    *,
    backup_dir: str | None = None,
    stamp: str | None = None,
) -> Committed:
    """Put staged bytes in place of what ``expect`` says the file holds.

    ``stamp`` names the backup (UTC time by default). Raises FileChangedError where the file has
    other bytes by now: nothing is changed then. A failure after the rename says so.
    """
    stamp = stamp or f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}"
    backup = backup_path(staged.real_path, stamp, backup_dir)
    done = await host.run(
        commit_argv(staged, backup), timeout_s=_TIMEOUT_S, stdin=expect.data or None
    )
    if not done.ok:
        _raise_write(done, staged.real_path, "it was not replaced")
    if done.stdout != staged.data:
        raise FileChangedError(
            f"{staged.real_path} on {host.name} was replaced, but holds other bytes than were "
            "written",
            remedy=f"Somebody else writes to it. The old version is {backup}.",
        )
    return Committed(staged.real_path, backup)


async def discard_file(host: Host, staged: Staged) -> None:
    """Remove a staged file that is not wanted after all."""
    done = await host.run(discard_argv(staged), timeout_s=_TIMEOUT_S)
    if not done.ok:
        raise FileError(
            f"{staged.temporary} on {host.name} could not be removed", evidence=evidence_of(done)
        )


def _mode(text: bytes) -> int:
    """Permission bits of ``-rwxr-x---`` (what follows, an ACL or SELinux mark, is not a bit)."""
    bits = text.decode("ascii", "replace")[1:10]
    if len(bits) != 9:
        raise ValueError(text)
    mode = 0
    for index, char in enumerate(bits):
        if char in "rwxst":
            mode |= 0o400 >> index
        if char in "sStT":
            mode |= (0o4000, 0o2000, 0o1000)[index // 3]
    return mode


def _plain(line: bytes) -> str:
    """Mode, owner and group without the mark for an ACL, which cp may or may not show."""
    words = line.decode("ascii", "replace").split()
    return " ".join((words[0][:10], *words[1:])) if words else ""


def _raise_read(done: Completed, path: str, limit: int) -> NoReturn:
    place = f"{path} on {done.host}"
    denied = b"ermission denied" in done.stderr
    if done.exit_status == _DENIED or denied:
        raise FileDeniedError(
            f"{place} may not be read by this login",
            remedy="Use a login that may, or `sudo = true` for this host.",
        )
    if done.exit_status == _MISSING:
        raise FileMissingError(f"{place} does not exist", remedy="Check the path in the rig file.")
    if done.exit_status == _DIRECTORY:
        raise FileKindError(f"{place} is a directory", remedy="Name the file in it.")
    if done.exit_status == _SPECIAL:
        raise FileKindError(f"{place} is not a regular file")
    if done.exit_status == _TOO_LARGE:
        raise FileKindError(f"{place} is larger than {limit} bytes: no launch config")
    _raise_other(done, f"{place} could not be read")


def _raise_write(done: Completed, path: str, what: str) -> NoReturn:
    place = f"{path} on {done.host}"
    if done.exit_status == _CHANGED:
        raise FileChangedError(
            f"{place} changed since it was read; it was left as it is",
            remedy="Look at what changed, then try again.",
        )
    if done.exit_status == _EXISTS:
        raise FileError(f"{place}: the name for a copy of it is taken already")
    if done.exit_status == _KEPT:
        _raise_other(done, f"{place}: no backup can be made, {what}")
    for text, reason in (
        (b"Permission denied", "this login may not write there"),
        (b"Operation not permitted", "this login may not write there"),
        (b"Read-only file system", "the file system is read-only"),
        (b"No space left", "the disk is full"),
        (b"quota", "the disk quota is used up"),
        (b"Device or resource busy", "it is a mount point of its own and cannot be renamed over"),
    ):
        if text in done.stderr:
            kind = FileDeniedError if "login" in reason else FileError
            raise kind(f"{place}: {what}: {reason}", evidence=evidence_of(_brief(done)))
    _raise_other(done, f"{place}: {what}")


def _raise_other(done: Completed, message: str) -> NoReturn:
    if done.timed_out:
        message += " in time"
    raise FileError(message, evidence=evidence_of(_brief(done)))


def _brief(done: Completed) -> Completed:
    """The same without the script's text and the file's bytes."""
    return Completed(
        done.host,
        done.argv[3:] if done.argv[:2] == ("/bin/sh", "-c") else done.argv,
        done.exit_status,
        b"",
        done.stderr,
        done.seconds,
        done.timed_out,
    )
