from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdash.core.errors import UsageError, WorkFailedError
from specdash.hosts.shell import SCRIPT, Unframer, encode, login_line, wrap

HOSTILE = [
    "plain",
    "two words",
    "",
    " ",
    "'",
    '"',
    "'\"'",
    "$HOME",
    "${HOME}",
    "`id`",
    "$(id)",
    "\\",
    "\\\\",
    "\\n",
    "a\\",
    "line\nbreak\n",
    "\n",
    "\t",
    "\r",
    "!",
    "!!",
    "!x",
    "^a^b",
    "~",
    "~root",
    "*",
    "?",
    "[a]",
    "{a,b}",
    "=ls",
    "%1",
    "%b",
    "%s%s",
    "\\0101",
    "#",
    ";",
    "&",
    "|",
    "<(x)",
    ">x",
    "-n",
    "--",
    "é漢字🙂",
    "\udcff\udc80\udcfe",
    "\x01\x02\x1b\x7f",
    "".join(os.fsdecode(bytes([byte])) for byte in range(1, 256)),
    "x" * 6000,
    '{"method":"eagle3","num_speculative_tokens":3}',
]
ECHO = "import os,sys;sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode,sys.argv[1:])))"
LOGIN_SHELLS = ("sh", "dash", "bash", "zsh", "fish", "tcsh")
INNER = ("/bin/sh", "/bin/dash", "/bin/bash")


def unescape(text: str) -> bytes:
    """What ``printf %b`` makes of the encoding."""
    return re.sub(rb"\\0([0-7]{3})", lambda m: bytes([int(m[1], 8)]), text.encode("ascii"))


@given(st.binary(max_size=300))
def test_encoding_is_plain_text_that_printf_turns_back(data: bytes) -> None:
    text = encode(data)
    assert unescape(text) == data
    assert not set(text) & set("'\"!\n\r$`")
    assert "\\\\" not in text


def test_script_passes_every_login_shell() -> None:
    assert "'" not in SCRIPT
    assert "\n" not in SCRIPT
    assert "\\\\" not in SCRIPT
    assert not re.search(r"!(?![ =])", SCRIPT)


@given(st.lists(st.text(st.characters(exclude_characters="\0")), min_size=1, max_size=6))
def test_every_command_makes_a_line_or_is_refused(argv: list[str]) -> None:
    if not argv[0]:
        with pytest.raises(UsageError):
            wrap(argv, mark="m")
        return
    try:
        wrapped = wrap(argv, mark="m")
    except UnicodeEncodeError:
        return  # a lone surrogate that no file system gives
    line = login_line(wrapped.words)
    assert line.startswith("exec '/bin/sh' '-c' '")
    assert "\n" not in line


@pytest.mark.parametrize("word", ["it's", "a\nb", "x\\\\y", "end\\", "!bang"])
def test_words_that_some_shell_would_change_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match="login shell"):
        login_line(["/bin/sh", word])


@pytest.mark.parametrize("argv", [[], [""], ["a\0b"], ["a", "b\0"]])
def test_impossible_commands(argv: list[str]) -> None:
    with pytest.raises(UsageError):
        wrap(argv, mark="m")


def test_too_long_a_command_names_itself() -> None:
    with pytest.raises(WorkFailedError, match="tee"):
        wrap(["tee", "x" * 200_000], mark="m")


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("shell", LOGIN_SHELLS)
def test_argv_is_exact_through_login_shells(shell: str, inner: str) -> None:
    for program in (shell, inner):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    wrapped = wrap([sys.executable, "-c", ECHO, *HOSTILE], mark="mark")
    line = login_line((inner, *wrapped.words[1:]))
    # stdin stays open until the command has ended, as on an SSH channel.
    with subprocess.Popen(
        [shell, "-c", line], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = process.stdout.read(), process.stderr.read()
        assert process.wait() == 0
    frame = Unframer(wrapped.mark)
    assert frame.feed(out).split(b"\0") == [os.fsencode(item) for item in HOSTILE]
    assert err == wrapped.mark


@given(noise=st.binary(max_size=40), body=st.binary(max_size=40), cuts=st.lists(st.integers(1, 7)))
def test_unframer_drops_what_came_before(noise: bytes, body: bytes, cuts: list[int]) -> None:
    mark = b"\x02a1b2\n"
    if mark in noise:
        return
    data = noise + mark + body
    frame = Unframer(mark)
    got = b""
    for cut in cuts:
        got += frame.feed(data[:cut])
        data = data[cut:]
    got += frame.feed(data)
    assert frame.begun
    # A noise that ends like the beginning of the mark still leaves the body whole.
    assert got == body
    assert frame.noise == noise


def test_unframer_without_a_mark_keeps_the_end_of_the_noise() -> None:
    frame = Unframer(b"\x02m\n")
    assert frame.feed(b"x" * 20_000 + b"This account is not available.\n") == b""
    assert not frame.begun
    assert frame.noise.endswith(b"not available.\n")
    assert len(frame.noise) <= 8192
