"""A rig file either is a rig or is refused with file, line, key and what is allowed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.core.errors import SpecdashError
from specdash.rig.load import RigFileError, load_rig, parse_rig
from specdash.rig.store import dump_rig, find_rig, places, rig_files

GOOD = """\
[hosts.svc]
ssh = "root@gpu-service.lan"

[hosts.node]
ssh = "root@pve-node.lan"

[hosts.ct]
via = "node"
enter = "pct:129"

[service]
host = "svc"
kind = "systemd"
unit = "sglang-qwen.service"

[config]
host = "svc"
path = "/etc/systemd/system/sglang-qwen.service"

[engine]
kind = "sglang"
url = "http://gpu-service.lan:30000"
tunnel = "svc"

[gpus]
host = "node"
indices = [0, 1, 2, 3]

[clean]
hosts = ["ct"]

[bench]
concurrency = [1, 4, 16]
budget_s = 20
"""


def test_a_good_file_is_a_rig_and_survives_a_round_trip(tmp_path: Path) -> None:
    rig = parse_rig(GOOD.encode(), tmp_path / "qwen.toml")
    assert rig.name == "qwen"
    assert rig.hosts["ct"].enter == "pct:129"
    assert rig.gpus is not None
    assert rig.gpus.indices == (0, 1, 2, 3)
    assert rig.bench.budget_s == 20
    assert rig.limits.grace_s == 30
    assert parse_rig(dump_rig(rig).encode(), tmp_path / "qwen.toml") == rig


@pytest.mark.parametrize(
    ("old", "new", "line", "says", "allowed"),
    [
        ('unit = "s', 'unti = "s', 14, "unknown key 'unti'", "host, kind, unit"),
        ('kind = "systemd"', 'kind = "sysv"', 13, "'sysv'", "systemd, docker, compose, process"),
        ('kind = "sglang"', "kind = 3", 21, "must be text", "sglang, vllm, llama.cpp"),
        ("indices = [0, 1, 2, 3]", 'indices = "all"', 27, "must be a list", "0 or more"),
        ("indices = [0, 1, 2, 3]", "indices = [0, -1]", 27, "0 or more", "0 or more"),
        ('via = "node"', 'via = "nood"', 8, "names no host: 'nood'", "svc, node, ct"),
        ('via = "node"', 'via = "ct"', 8, "circle", "circle"),
        ('enter = "pct:129"', 'enter = "pct:x"', 9, "not understood", "pct:ID"),
        ('path = "/etc', 'path = "etc', 18, "not absolute", "whole path"),
        (
            "http://gpu-service.lan:30000",
            "gpu-service.lan:30000",
            22,
            "http://",
            "http://HOST:PORT",
        ),
        ("http://gpu-service.lan:30000", "http://x..y", 22, "no possible host", "HOST:PORT"),
        ("http://gpu-service.lan:30000", "http://a:b@h:1", 22, "password", "HOST:PORT"),
        ('tunnel = "svc"', 'tunnel = "x"', 23, "names no host", "svc"),
        ('hosts = ["ct"]', 'hosts = ["no"]', 30, "names no host", "svc"),
        ("budget_s = 20", "budget_s = 0", 34, "more than 0", "seconds"),
        ("budget_s = 20", "budget_s = true", 34, "number of seconds", "seconds"),
        ("[1, 4, 16]", "[1, 1]", 33, "twice", "none twice"),
        ("[1, 4, 16]", "[]", 33, "at least 1", "1 or more"),
        ('ssh = "root@pve-node.lan"', "local = false", 4, "exactly one of", "local = true"),
        ("budget_s = 20", "budget_s = 1e300", 34, "or less", "seconds"),
        ("budget_s = 20", 'prompts = "./none.txt"', 34, "no file here", "built-in kind"),
        ("[1, 4, 16]", "[1, 1000000]", 33, "100000 or less", "1 or more"),
        ("[bench]", "[bnech]", 32, "unknown table", "bench"),
    ],
)
def test_a_fault_names_line_key_and_what_is_allowed(
    tmp_path: Path, old: str, new: str, line: int, says: str, allowed: str
) -> None:
    assert old in GOOD
    path = tmp_path / "rig.toml"
    with pytest.raises(RigFileError) as caught:
        parse_rig(GOOD.replace(old, new, 1).encode(), path)
    assert f"rig.toml:{line}:" in caught.value.message
    assert says in caught.value.message
    assert allowed in caught.value.remedy
    assert caught.value.exit_code == 2


def test_every_problem_is_listed(tmp_path: Path) -> None:
    bad = GOOD.replace('unit = "s', 'unti = "s').replace("budget_s = 20", 'budget_s = "x"')
    with pytest.raises(RigFileError) as caught:
        parse_rig(bad.encode(), tmp_path / "rig.toml")
    assert len(caught.value.evidence) == 2


def test_not_toml_names_the_line(tmp_path: Path) -> None:
    for data in (b"[hosts.a]\nssh = \n", b"[hosts.a]\nssh = '\xff'\n"):
        with pytest.raises(RigFileError, match=r"rig\.toml:2: not"):
            parse_rig(data, tmp_path / "rig.toml")


@pytest.mark.parametrize("data", ["a = " + "[" * 5000, "a = " + "{a=" * 5000])
def test_deep_nesting_is_a_usage_error(tmp_path: Path, data: str) -> None:
    with pytest.raises(RigFileError, match="too deep"):
        parse_rig(data.encode(), tmp_path / "rig.toml")


def test_what_is_no_file_is_neither_waited_for_nor_swallowed(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.toml"
    os.mkfifo(fifo)
    for path in (fifo, Path("/dev/zero")):
        with pytest.raises(RigFileError, match="not a file"):
            load_rig(path)
    huge = tmp_path / "huge.toml"
    huge.write_bytes(b"#" * 10_000_000)
    with pytest.raises(RigFileError, match="larger than"):
        load_rig(huge)
    with pytest.raises(RigFileError, match="cannot be read"):
        load_rig(tmp_path)


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(RigFileError, match="cannot be read"):
        load_rig(tmp_path / "none.toml")


def test_an_api_key_in_the_place_of_its_variable_is_not_repeated(tmp_path: Path) -> None:
    bad = GOOD.replace('tunnel = "svc"', 'api_key_env = "sk-very-secret"')
    with pytest.raises(RigFileError) as caught:
        parse_rig(bad.encode(), tmp_path / "rig.toml")
    assert "sk-very-secret" not in caught.value.message + caught.value.remedy


@given(st.binary(max_size=400))
def test_any_bytes_give_a_rig_or_a_typed_error(data: bytes) -> None:
    try:
        parse_rig(data, Path("rig.toml"))
    except SpecdashError as error:
        assert error.exit_code == 2


_values = st.recursive(
    st.one_of(st.text(max_size=8), st.integers(), st.booleans(), st.floats(allow_nan=False)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.sampled_from(["hosts", "service", "config", "engine", "gpus", "clean", "bench"]), _values)
def test_any_value_in_place_of_a_table_gives_a_rig_or_a_typed_error(
    table: str, value: object
) -> None:
    import tomllib

    import tomli_w

    document = tomllib.loads(GOOD)
    document[table] = value
    try:
        data = tomli_w.dumps(document).encode()
    except (UnicodeEncodeError, TypeError):
        return
    try:
        parse_rig(data, Path("rig.toml"))
    except SpecdashError as error:
        assert error.exit_code == 2


def test_places_follow_xdg_and_ignore_relative_paths() -> None:
    found = places({"HOME": "/h", "XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "relative"})
    assert found.rigs == Path("/c/specdash/rigs")
    assert found.history == Path("/h/.local/share/specdash/history.sqlite3")
    assert found.journals == Path("/h/.local/state/specdash/journals")


def test_rigs_are_found_by_name(tmp_path: Path) -> None:
    assert rig_files(tmp_path / "none") == []
    (tmp_path / "b.toml").write_text(GOOD)
    (tmp_path / "a.toml").write_text(GOOD)
    assert [path.stem for path in rig_files(tmp_path)] == ["a", "b"]
    assert find_rig("a", tmp_path) == tmp_path / "a.toml"
    assert find_rig("c", tmp_path) is None
    assert find_rig("../a", tmp_path) is None


@pytest.mark.parametrize("table", ["gpus", "clean", "bench"])
def test_a_table_that_has_defaults_may_be_left_out(tmp_path: Path, table: str) -> None:
    head, _, rest = GOOD.partition(f"[{table}]\n")
    _, _, tail = rest.partition("\n[")
    parse_rig((head + ("[" + tail if tail else "")).encode(), tmp_path / "rig.toml")


@pytest.mark.parametrize("table", ["service", "config", "engine"])
def test_a_table_that_is_needed_is_missed(tmp_path: Path, table: str) -> None:
    head, _, rest = GOOD.partition(f"[{table}]\n")
    _, _, tail = rest.partition("\n[")
    with pytest.raises(RigFileError, match=rf"\[{table}\] is missing"):
        parse_rig((head + "[" + tail).encode(), tmp_path / "rig.toml")
