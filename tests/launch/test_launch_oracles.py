"""The readers against the real thing: systemd's own parser, bash and dash."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from launch_forms import EXAMPLES, NUMBERS, PATHS, Layout, layouts, render

from specdash.engines.knobs import SGLANG
from specdash.launch.command import Parsed
from specdash.launch.editing import edit_config
from specdash.launch.envfile import parse_env_file
from specdash.launch.errors import LaunchConfigError
from specdash.launch.reading import read_config
from specdash.launch.shell_eval import evaluate_script
from specdash.launch.source import decode
from specdash.launch.systemd_unit import parse_unit
from specdash.launch.trace import Traced

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
few = settings(
    max_examples=max(15, EXAMPLES // 6),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# -- systemd ---------------------------------------------------------------------------------


def systemd_dump(folder: Path, unit: bytes, key: str) -> list[str]:
    """The lines ``key: ...`` that systemd's own parser makes of a unit."""
    path = folder / "specdash-oracle.service"
    path.write_bytes(unit)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)],
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "debug", "SYSTEMD_LOG_TARGET": "console"},
        capture_output=True,
        check=False,
    )
    pattern = re.compile(rb"^\t+" + key.encode() + rb": (.*)$", re.MULTILINE)
    return [m.group(1).decode("utf-8", "surrogateescape") for m in pattern.finditer(done.stdout)]


def unquoted(line: str) -> list[str]:
    """Undo the quoting of systemd's dump: double quotes with C escapes."""
    words: list[str] = []
    for match in re.finditer(r'"((?:[^"\\]|\\.)*)"|(\S+)', line):
        if match.group(2) is not None:
            words.append(match.group(2))
        else:
            words.append(re.sub(r"\\(x[0-9a-f]{2}|[0-7]{3}|.)", _unescape, match.group(1)))
    return words


def _unescape(match: re.Match[str]) -> str:
    code = match.group(1)
    if code.startswith("x") and len(code) == 3:
        return chr(int(code[1:], 16))
    if len(code) == 3:
        return chr(int(code, 8))
    return {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}.get(
        code, code
    )


exec_text = st.lists(
    st.sampled_from(
        [
            "a",
            "b=c",
            " ",
            "  ",
            "\t",
            '"',
            "'",
            "\\",
            "\\n",
            "\\x41",
            "\\101",
            "\\u00e9",
            "\\q",
            "\\s",
            ";",
            " ; ",
            "\\;",
            " \\; ",
            "#",
            "%%",
            "$$X",
            "$X",
            "${X}",
            "é",
            "\\\n",
            " \\\n  ",
            "\\\n# c\n",
            "\\\n;c\n",
            "--k 3",
            "\\\\",
            "\\\r\n",
        ]
    ),
    max_size=14,
).map("".join)


# With an environment file that is not read, unknown variables stay as they are written.
_HEAD = "[Service]\nType=oneshot\nEnvironmentFile=/nowhere\n"


@needs_systemd
@few
@given(st.lists(exec_text, min_size=8, max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_exec_start_is_split_as_systemd_splits_it(
    tmp_path: Path, texts: Sequence[str], eol: str
) -> None:
    expected: list[list[str]] = []
    unit = _HEAD
    for number, text in enumerate(texts):
        setting = f"ExecStart=/bin/m{number} {text}\n\n"
        try:
            parsed = parse_unit(decode("x.service", (_HEAD + setting).encode()), {})
        except LaunchConfigError:
            continue  # an open quote: systemd refuses the whole unit
        if any(not command.argv[0].startswith("/") for command in parsed.commands):
            continue  # a program after ";" that systemd would look for on this machine
        expected += [list(command.argv) for command in parsed.commands]
        unit += setting
    data = unit.replace("\r\n", "\n").replace("\n", eol).encode()
    theirs = [unquoted(line) for line in systemd_dump(tmp_path, data, "Command Line")]
    # systemd's dump is made before variables are put in.
    assert [[w for w in argv if "$" not in w] for argv in expected] == [
        [w for w in argv if "$" not in w] for argv in theirs
    ]


environment_text = st.lists(
    st.sampled_from(
        ["A=1", "B_2=", " ", " ", '"', "'", "\\", "x y", "\\x41", "%%", "=", "é", "C=d", "\\\n "]
    ),
    max_size=10,
).map("".join)


@needs_systemd
@few
@given(st.lists(environment_text, min_size=1, max_size=5))
def test_environment_is_read_as_systemd_reads_it(tmp_path: Path, texts: Sequence[str]) -> None:
    unit = "[Service]\nExecStart=/bin/true\n" + "".join(f"Environment={t}\n\n" for t in texts)
    theirs = dict(
        line.split("=", 1) for line in systemd_dump(tmp_path, unit.encode(), "Environment")
    )
    try:
        parsed = parse_unit(decode("x.service", unit.encode()), {})
    except LaunchConfigError:
        return
    ours = {variable.name: variable.value.text for variable in parsed.variables}
    assert ours == theirs


@needs_systemd
@few
@given(layouts(forms=("unit",)), st.integers(1, 500))
def test_systemd_reads_an_edited_unit_as_promised(
    tmp_path: Path, layout: Layout, steps: int
) -> None:
    layout = replace(layout, variable="")
    reading = read_config("x.service", render(layout), SGLANG)
    edit = edit_config(reading, replace(reading.settings, num_steps=steps))
    theirs = [unquoted(line) for line in systemd_dump(tmp_path, edit.data, "Command Line")]
    assert [word.replace("$$", "$") for word in theirs[-1]] == list(edit.argv)
    assert str(steps) in "".join(theirs[-1])


# -- shells ----------------------------------------------------------------------------------

_STUB = '#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done\n'


def shell_runs(folder: Path, script: bytes, shell: str, name: str = "python3") -> list[str] | None:
    """The arguments a script really gives the engine's program; None where the shell fails."""
    stub = folder / name
    if not stub.exists():
        stub.write_text(_STUB)
        stub.chmod(0o755)
    path = folder / "script.sh"
    path.write_bytes(script)
    done = subprocess.run(
        [shell, str(path)],
        env={"PATH": f"{folder}:/usr/bin:/bin", "HOME": "/nowhere"},
        capture_output=True,
        check=False,
        timeout=20,
    )
    if done.returncode != 0:
        return None
    return done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]


@few
@given(
    layouts(forms=("shell", "array")),
    st.fixed_dictionaries({n: st.integers(1, 99) for n in NUMBERS}),
)
def test_a_shell_runs_an_edited_script_as_promised(
    tmp_path: Path, layout: Layout, values: dict[str, int]
) -> None:
    reading = read_config(PATHS[layout.form], render(layout), SGLANG)
    edit = edit_config(reading, replace(reading.settings, **values))
    for shell in ("bash", "dash") if edit.data.startswith(b"#!/bin/sh") else ("bash",):
        if shutil.which(shell):
            assert shell_runs(tmp_path, edit.data, shell) == list(edit.argv[1:])


shell_text = st.lists(
    st.sampled_from(
        [
            "a",
            "b=c",
            " ",
            "  ",
            '"',
            "'",
            "\\",
            "\\ ",
            "$A",
            "${A}",
            '"$A"',
            "${B:-d e}",
            '"${B:-d e}"',
            "${A:+y}",
            "$((N + 1))",
            "$((N*2))",
            "#",
            " # ",
            "\\\n",
            " \\\n  ",
            "é",
            "$L",
            '"$L"',
            "${L}x",
            "$E",
            '"$E"',
            "''",
            "-",
            '"${ARR[@]}"',
            "${ARR[@]}",
            '"${ARR[*]}"',
            "${ARR[1]}",
            "$'\\t\\x41'",
            "${N}",
            "--k=3",
            '${ARR[@]+"${ARR[@]}"}',
            '"${ARR[@]:-x}"',
            '${U:-"a b" c}',
            "${E:+y}",
            "${E+y}z",
            "${A:-$L}",
        ]
    ),
    max_size=12,
).map("".join)
_PRELUDE = "A=one\nL='two  three'\nE=\nN=4\nARR=(p 'q r' \"$A\")\n"


@few
@given(shell_text)
def test_words_are_expanded_as_bash_expands_them(tmp_path: Path, text: str) -> None:
    script = f"{_PRELUDE}python3 {text}\n"
    theirs = shell_runs(tmp_path, script.encode(), "bash")
    if theirs is None:
        return
    parsed = Parsed("shell", texts={"x.sh": script})
    evaluate_script("x.sh", Traced.of_file("x.sh", script), parsed, {})
    ours = [c for c in parsed.commands if c.argv[0] == "python3"]
    if any(word.text.unknown for word in ours[-1].words):
        return  # a variable from outside: here it is empty, on the rig it may not be
    assert list(ours[-1].argv[1:]) == theirs


simple_env = st.lists(
    st.tuples(
        st.sampled_from(["A", "B", "LONG_NAME"]),
        st.sampled_from(["", "1", "a b", "it's", 'say "x"', "tail ", "é", "a\\b", "#x"]),
        st.sampled_from(["single", "double"]),
    ),
    max_size=4,
)


@few
@given(simple_env, st.sampled_from(["\n", "\n\n# c\n", "\n; c\n"]))
def test_environment_files_mean_what_a_shell_means_by_them(
    rows: list[tuple[str, str, str]], gap: str
) -> None:
    """Where both forms agree (every value quoted) the reader gives the value that was quoted."""
    lines = []
    expected: dict[str, str] = {}
    for name, value, quote in rows:
        if quote == "single" and "'" not in value:
            lines.append(f"{name}='{value}'")
        else:
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'{name}="{escaped}"')
        expected[name] = value
    variables = parse_env_file("x.env", gap.join(lines) + "\n")
    assert {v.name: v.value.text for v in variables} == expected
