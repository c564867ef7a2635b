"""What is shipped: the wheel holds everything the product reads, and the lock names no place."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "specdash"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    sources = {
        f"specdash/{path.relative_to(SOURCE).as_posix()}"
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    themes = {f"specdash/themes/{path.name}" for path in (ROOT / "themes").glob("*.toml")}
    assert len(themes) >= 2
    assert names >= sources | themes
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any(name.startswith("tests") for name in names)


def test_the_wheel_needs_only_what_the_product_needs(wheel: zipfile.ZipFile) -> None:
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    lines = wheel.read(metadata).decode().splitlines()
    needed = {
        re.split(r"[<>=!~; \[]", line.removeprefix("Requires-Dist: "))[0]
        for line in lines
        if line.startswith("Requires-Dist: ")
    }
    assert needed == {"textual", "asyncssh", "aiohttp", "plotext", "tomli-w"}
    assert "Requires-Python: >=3.11" in lines


def test_the_lock_pins_everything_and_names_no_place() -> None:
    lines = [
        line
        for line in (ROOT / "requirements-dev.lock").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    pinned = re.compile(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+!-]+(?: ; [a-z_A-Z0-9=' ]+)?")
    assert [line for line in lines if not pinned.fullmatch(line)] == []
    names = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines}
    assert names >= {"textual", "asyncssh", "aiohttp", "plotext", "tomli-w", "pytest", "ruff"}
