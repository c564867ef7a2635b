from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specdash.hosts import files
from specdash.hosts.files import (
    FileChangedError,
    FileDeniedError,
    FileError,
    FileKindError,
    FileMissingError,
    commit_file,
    discard_file,
    read_file,
    stage_file,
)
from specdash.hosts.local import LocalHost
from specdash.hosts.protocol import Completed

ROOT = os.geteuid() == 0
BINARY = b"\0\xff\r\nExecStart=x \\\n" + bytes(range(256))


class Altered:
    """A host whose answers are changed on the way, or that acts before a command."""

    def __init__(self, host: LocalHost, before=None, answer=None) -> None:  # type: ignore[no-untyped-def]
        self._host = host
        self._before = before
        self._answer = answer
        self.name = host.name

    async def run(self, argv, *, timeout_s=30.0, stdin=None) -> Completed:  # type: ignore[no-untyped-def]
        if self._before is not None:
            self._before(argv)
        done = await self._host.run(argv, timeout_s=timeout_s, stdin=stdin)
        return done if self._answer is None else self._answer(done)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def content(path: str) -> bytes:
    return Path(path).read_bytes()


def shape(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid


async def test_read(local: LocalHost, tmp_path: Path) -> None:
    path = tmp_path / "unit with spaces 'and' $signs*.service"
    path.write_bytes(BINARY)
    path.chmod(0o640)
    image = await read_file(local, str(path))
    assert image.data == BINARY
    assert (image.path, image.real_path) == (str(path), str(path))
    assert (image.mode, image.uid, image.gid) == shape(path)


async def test_read_follows_links(local: LocalHost, tmp_path: Path) -> None:
    real = tmp_path / "dir" / "real.conf"
    real.parent.mkdir()
    real.write_bytes(b"")
    link = tmp_path / "link"
    link.symlink_to("dir/real.conf")
    image = await read_file(local, str(link))
    assert (image.path, image.real_path, image.data) == (str(link), str(real), b"")


@pytest.mark.parametrize("mode", [0o400, 0o644, 0o755, 0o4755, 0o2711, 0o1777, 0o6000, 0o7444])
def test_modes_are_read_as_ls_writes_them(mode: int) -> None:
    text = stat.filemode(stat.S_IFREG | mode)
    assert files._mode(text.encode()) == mode
    assert files._mode(f"{text}+".encode()) == mode


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda p: None, FileMissingError),
        (lambda p: p.symlink_to("/nonexistent/x"), FileMissingError),
        (lambda p: p.mkdir(), FileKindError),
        (lambda p: os.mkfifo(p), FileKindError),
        (lambda p: p.write_bytes(b"x" * 101), FileKindError),
    ],
)
async def test_what_cannot_be_read(local: LocalHost, tmp_path: Path, make, error) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "f"
    make(path)
    with pytest.raises(error) as caught:
        await read_file(local, str(path), limit=100)
    assert str(path) in caught.value.message
    assert caught.value.exit_code == 1


@pytest.mark.skipif(ROOT, reason="root may read everything")
async def test_not_permitted(local: LocalHost, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x")
    path.chmod(0)
    with pytest.raises(FileDeniedError, match="may not be read"):
        await read_file(local, str(path))


async def test_a_path_from_nowhere(local: LocalHost) -> None:
    with pytest.raises(FileError, match="absolute"):
        await read_file(local, "relative.conf")


async def test_a_torn_read_is_noticed(local: LocalHost, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")

    def cut(done: Completed) -> Completed:
        return Completed(done.host, done.argv, 0, done.stdout[:-3], b"", 0.0)

    with pytest.raises(FileChangedError, match="while it was read"):
        await read_file(Altered(local, answer=cut), str(path))  # type: ignore[arg-type]


async def test_a_process_file_has_no_size(local: LocalHost) -> None:
    assert b"Linux" in (await read_file(local, "/proc/version")).data


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o755, 0o444, 0o4755])
async def test_replace_keeps_mode_owner_and_link(
    local: LocalHost, tmp_path: Path, mode: int
) -> None:
    real = tmp_path / "real.service"
    real.write_bytes(b"old")
    if ROOT:
        os.chown(real, 12345, 54321)
    real.chmod(mode)
    before = shape(real)
    link = tmp_path / "link.service"
    link.symlink_to(real)

    image = await read_file(local, str(link))
    staged = await stage_file(local, image, BINARY)
    assert real.read_bytes() == b"old"
    assert shape(Path(staged.temporary)) == before
    assert Path(staged.temporary).suffix not in (".service", ".conf", ".timer")
    done = await commit_file(local, staged, image)

    assert link.is_symlink()
    assert real.read_bytes() == BINARY
    assert shape(real) == before
    assert content(done.backup) == b"old"
    assert shape(Path(done.backup)) == before
    assert names(tmp_path) == sorted(["real.service", "link.service", Path(done.backup).name])
    assert (await read_file(local, str(link))).data == BINARY


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.binary(max_size=2000), old=st.binary(max_size=200))
async def test_any_bytes_replace_any_bytes(tmp_path: Path, data: bytes, old: bytes) -> None:
    local = LocalHost("here")
    path = tmp_path / "f"
    path.write_bytes(old)
    image = await read_file(local, str(path))
    await commit_file(local, await stage_file(local, image, data), image)
    assert path.read_bytes() == data
    await local.close()


async def test_backup_in_a_directory_of_its_own(local: LocalHost, tmp_path: Path) -> None:
    path = tmp_path / "f.conf"
    path.write_bytes(b"old")
    image = await read_file(local, str(path))
    staged = await stage_file(local, image, b"new")
    kept = tmp_path / "state" / "backups"
    done = await commit_file(local, staged, image, backup_dir=str(kept), stamp="1")
    assert done.backup == str(kept / "f.conf.specdash-backup-1")
    assert content(done.backup) == b"old"


async def test_changed_between_read_and_commit(local: LocalHost, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    image = await read_file(local, str(path))
    staged = await stage_file(local, image, b"new")
    path.write_bytes(b"OLD")
    with pytest.raises(FileChangedError, match="changed since"):
        await commit_file(local, staged, image)
    assert path.read_bytes() == b"OLD"
    await discard_file(local, staged)
    assert names(tmp_path) == ["f"]


async def test_replaced_by_a_link_between_read_and_commit(local: LocalHost, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    image = await read_file(local, str(path))
    staged = await stage_file(local, image, b"new")
    path.rename(tmp_path / "other")
    path.symlink_to("other")
    with pytest.raises(FileChangedError):
        await commit_file(local, staged, image)
    assert (tmp_path / "other").read_bytes() == b"old"


async def test_a_taken_backup_name_is_not_overwritten(local: LocalHost, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    (tmp_path / "f.specdash-backup-1").write_bytes(b"precious")
    image = await read_file(local, str(path))
    staged = await stage_file(local, image, b"new")
    with pytest.raises(FileError, match="taken"):
        await commit_file(local, staged, image, stamp="1")
    assert path.read_bytes() == b"old"
    assert (tmp_path / "f.specdash-backup-1").read_bytes() == b"precious"


async def test_a_directory_that_cannot_be_written(local: LocalHost) -> None:
    image = await read_file(local, "/proc/version")
    with pytest.raises(FileError) as caught:
        await stage_file(local, image, b"new")
    assert "/proc/version" in caught.value.message
    assert caught.value.evidence
    assert "set -f" not in " ".join(caught.value.evidence)


async def test_a_full_disk(local: LocalHost, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    image = await read_file(local, str(path))

    class Limited(Altered):
        async def run(self, argv, *, timeout_s=30.0, stdin=None) -> Completed:  # type: ignore[no-untyped-def]
            limited = ("sh", "-c", 'ulimit -f 8; exec "$@"', "sh", *argv)
            return await super().run(limited, timeout_s=timeout_s, stdin=stdin)

    with pytest.raises(FileError):
        await stage_file(Limited(local), image, b"x" * 100_000)  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"


async def test_what_does_not_read_back_is_refused(local: LocalHost, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    image = await read_file(local, str(path))

    def flip(done: Completed) -> Completed:
        return Completed(done.host, done.argv, 0, done.stdout[:-1] + b"?", b"", 0.0)

    with pytest.raises(FileError, match="read back"):
        await stage_file(Altered(local, answer=flip), image, b"new")  # type: ignore[arg-type]
    assert names(tmp_path) == ["f"]


@pytest.mark.skipif(not ROOT, reason="only root may give a file away")
async def test_an_owner_that_cannot_be_kept_is_refused(local: LocalHost, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    image = await read_file(local, str(path))

    def give_away(argv: tuple[str, ...]) -> None:
        if "specdash-stage" in argv:
            os.chown(path, 0, 0)

    def other_owner(done: Completed) -> Completed:
        first, _, rest = done.stdout.partition(b"\n")
        return Completed(done.host, done.argv, 0, first[:-1] + b"7\n" + rest, b"", 0.0)

    with pytest.raises(FileError, match="owner"):
        await stage_file(
            Altered(local, before=give_away, answer=other_owner),  # type: ignore[arg-type]
            image,
            b"new",
        )


async def test_what_a_killed_stage_left_goes_with_the_next(
    local: LocalHost, tmp_path: Path
) -> None:
    path = tmp_path / "a-b.service"
    path.write_bytes(b"old")
    image = await read_file(local, str(path))
    left = Path(files.temporary_path(str(path)))
    left.write_bytes(b"half")  # noqa: ASYNC240
    others = [
        "a-b.service.specdash-backup-7",
        ".a-b.service.specdash-lock",
        ".a-b.service.specdash-0",
    ]
    for name in others:
        (tmp_path / name).write_bytes(b"")
    staged = await stage_file(local, image, b"new")
    there = {entry.name for entry in tmp_path.iterdir()}  # noqa: ASYNC240
    assert there == {*others, path.name, Path(staged.temporary).name}


def test_plans_can_show_what_will_run() -> None:
    image = files.FileImage("/etc/x.conf", "/etc/real.conf", b"", 0o640, 0, 0)
    staged = files.Staged("/etc/real.conf", files.temporary_path("/etc/real.conf"), b"")
    backup = files.backup_path("/etc/real.conf", "7")
    assert files.read_argv("/etc/x.conf")[3:] == ("specdash-read", "/etc/x.conf", str(8 << 20))
    assert files.stage_argv(image, staged.temporary)[-3:] == (
        "/etc/real.conf",
        staged.temporary,
        "0640",
    )
    assert files.commit_argv(staged, backup)[-1] == "/etc/real.conf.specdash-backup-7"
    assert files.discard_argv(staged)[0] == "rm"
