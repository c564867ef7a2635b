r"""Where an argument list becomes shell text, and what then watches over the command.

One constant POSIX script receives the argument list as ``printf %b`` text: a form that sh, bash,
dash, zsh, fish and tcsh all pass through single quotes unchanged, because neither the script nor
the text contains a single quote, an exclamation mark before anything but a space or =, a newline, or
two backslashes in a row. The script

- says on stdout and stderr that it has begun (what a login shell printed before is noise),
- takes the command's stdin, encoded, from the first line of its own stdin,
- runs the command in a session of its own and passes its exit status on,
- ends the whole session (SIGTERM, a short grace, SIGKILL) when its stdin closes or the deadline
  passes. Closing the channel is therefore enough to end a command: an SSH server does that itself
  when the connection dies.

It needs a shell, ``sleep`` and, to reach grandchildren, ``setsid``; without ``setsid`` it ends its
own process group where it leads one. The command runs with SIGINT and SIGQUIT ignored under dash,
as POSIX has it for a background command.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from specdash.core.errors import UsageError, WorkFailedError

GRACE_S = 2.0
"""Between SIGTERM and SIGKILL once a command is to end."""

MAX_WORD = 120_000
"""Linux refuses a single argument of 128 KiB; a login shell gets the whole line as one."""

_POLL_S = 0.05

# Parameters: mark, deadline (s, 0: none), grace (polls), merge stderr (0/1), stdin (0/1), argv.
#
# - The watcher is ended with SIGKILL and the timer with SIGALRM: a signal the main shell traps
#   would be lost in a child that was forked but has not reset its traps yet.
# - SIGTERM is sent again until the session exists: the child may not have reached setsid().
# - Every "$!" is followed by a space, else csh takes it for a history reference.
_SOURCE = r"""
exec 3<&0 </dev/null;
printf "\002%s\n" "$1";
if [ "$4" = 1 ]; then exec 2>&1; else printf "\002%s\n" "$1" >&2; fi;
sd_t= sd_r= sd_d=$2 sd_g=$3 sd_i=$5;
if [ "$sd_i" = 1 ]; then IFS= read -r sd_i <&3 || exit 125; fi;
eval "set -- $(printf %b "$6")";
if command -v setsid >/dev/null 2>&1; then
  sd_s="setsid --";
  command -v "$1" >/dev/null 2>&1 || { printf "%s: not found\n" "$1" >&2; exit 127; };
else sd_s=; fi;
sd_end() {
  trap "" HUP INT TERM USR1 USR2; sd_r=1; sd_n=0;
  until kill -s TERM -- $sd_q || [ $sd_n = 9 ]; do sleep 0.05 || sleep 1; sd_n=$((sd_n+1)); done;
  sd_n=0;
  while [ $sd_n -lt $sd_g ] && kill -s 0 -- $sd_c; do
    sleep 0.05 || { sleep 1; sd_n=$((sd_n+19)); };
    sd_n=$((sd_n+1));
  done;
  kill -s KILL -- $sd_q $sd_p;
};
trap sd_end HUP INT TERM USR1 USR2;
if [ "$sd_i" = 0 ]; then ( exec $sd_s "$@" ) 3<&- &
else printf %b "$sd_i" | ( exec $sd_s "$@" ) 3<&- & fi;
sd_p=$! ;
exec >/dev/null 2>&1;
sd_q=-$sd_p sd_c=-$sd_p;
if [ -z "$sd_s" ]; then
  sd_c=$sd_p; if kill -s 0 -- -$$; then sd_q=-$$; else sd_q=$sd_p; fi;
fi;
( while read -r sd_x; do :; done; kill -s USR1 $$ ) <&3 &
sd_w=$! ;
exec 3<&-;
if [ "$sd_d" != 0 ]; then
  ( sd_z= sd_k=; trap "sd_z=1; kill \$sd_k" ALRM;
    sleep $sd_d & sd_k=$! ;
    [ -z "$sd_z" ] || kill $sd_k;
    wait $sd_k;
    if [ -n "$sd_z" ]; then wait $sd_k; else kill -s USR2 $$; fi ) &
  sd_t=$! ;
fi;
wait $sd_p; sd_x=$?;
trap "" HUP INT TERM USR1 USR2;
kill -s KILL $sd_w; [ -z "$sd_t" ] || kill -s ALRM $sd_t; wait $sd_w $sd_t;
[ -z "$sd_r" ] || sd_x=143;
exit $sd_x
"""

SCRIPT = re.sub(r"\s+", " ", _SOURCE).strip()
"""The script on one line."""

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=@,+- ")
_CODE = tuple(chr(byte) if byte in _PLAIN else f"\\0{byte:03o}" for byte in range(256))
_WORD = re.compile(r"[^'\n]*")
_CSH_HISTORY = re.compile(r"!(?![ =])")


def encode(data: bytes) -> str:
    """``data`` as text for ``printf %b``: letters, digits and a few signs stand for themselves."""
    return "".join(_CODE[byte] for byte in data)


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A command under the script: ``words`` to execute, and what to send first on its stdin."""

    words: tuple[str, ...]
    mark: bytes
    stdin: bytes = field(default=b"", repr=False)


def wrap(
    argv: Sequence[str],
    *,
    mark: str,
    deadline_s: float | None = None,
    merge_stderr: bool = False,
    stdin: bytes | None = None,
) -> Wrapped:
    """The argument list that runs ``argv`` under the script.

    ``mark`` is a fresh token of letters and digits. The deadline is rounded up to whole seconds.
    Raises UsageError for a list that no process can be given.
    """
    if not argv or not argv[0]:
        raise UsageError("an empty command cannot be run", code="bad-command")
    if any("\0" in item for item in argv):
        raise UsageError("a command with a NUL byte cannot be run", code="bad-command")
    quoted = b" ".join(b"'" + os.fsencode(item).replace(b"'", rb"'\''") + b"'" for item in argv)
    payload = encode(quoted)
    if len(payload) > MAX_WORD:
        raise WorkFailedError(
            f"the command {argv[0]} is too long to send ({len(quoted)} bytes)",
            remedy="Pass large input on stdin.",
            code="command-too-long",
        )
    words = (
        "/bin/sh",
        "-c",
        SCRIPT,
        "specdash",
        mark,
        str(0 if deadline_s is None else max(1, math.ceil(deadline_s))),
        str(round(GRACE_S / _POLL_S)),
        "1" if merge_stderr else "0",
        "1" if stdin else "0",
        payload,
    )
    head = encode(stdin).encode("ascii") + b"\n" if stdin else b""
    return Wrapped(words, b"\x02" + mark.encode("ascii") + b"\n", head)


def login_line(words: Sequence[str]) -> str:
    """The line for a login shell that executes ``words``, whatever shell it is.

    Only for words made by :func:`wrap` and by the fixed prefixes of this room; raises ValueError
    for a word that some login shell would change.
    """
    for word in words:
        if (
            not _WORD.fullmatch(word)
            or "\\\\" in word
            or word.endswith("\\")
            or _CSH_HISTORY.search(word)
        ):
            raise ValueError(f"not every login shell passes this word on: {word[:40]!r}")
    line = "exec " + " ".join(f"'{word}'" for word in words)
    if len(line) > MAX_WORD + len(SCRIPT) + 1000:
        raise WorkFailedError("the command line is too long to send", code="command-too-long")
    return line


class Unframer:
    """Separates a command's output from what was printed before it began."""

    _KEEP = 8192

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._before = b""
        self.begun = False

    def feed(self, data: bytes) -> bytes:
        """The part of ``data`` that the command itself wrote."""
        if self.begun:
            return data
        joined = self._before + data
        at = joined.find(self._mark)
        if at >= 0:
            self.begun = True
            self._before = joined[max(0, at - self._KEEP) : at]
            return joined[at + len(self._mark) :]
        self._before = joined[-self._KEEP :]
        return b""

    @property
    def noise(self) -> bytes:
        """The end of what came before the command (or instead of it)."""
        return self._before
