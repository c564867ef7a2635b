"""The engine's line to the box: its processes, the GPU memory they hold, how busy they are."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from pathlib import Path


class OutOfMemoryError(Exception):
    """A GPU has no room. ``free_mib`` is what is left on it."""

    def __init__(self, gpu: int, wanted_mib: int, free_mib: int) -> None:
        super().__init__(gpu)
        self.gpu, self.wanted_mib, self.free_mib = gpu, wanted_mib, free_mib


class Link:
    """A connection that lasts as long as the process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._socket = _connect(root)
        self._file = self._socket.makefile("rwb")

    def fileno(self) -> int:
        """Readable at the box's end: nothing else is sent without being asked."""
        return self._socket.fileno()

    def tell(self, **message: object) -> None:
        """Send one report."""
        self._file.write(json.dumps(message).encode() + b"\n")
        self._file.flush()

    def ask(self, **message: object) -> dict[str, object]:
        """Send one report and read its answer."""
        self.tell(**message)
        line = self._file.readline()
        if not line:
            raise SystemExit(1)  # the box is gone
        answer: dict[str, object] = json.loads(line)
        return answer

    def add(
        self, pid: int, title: str, *, ppid: int, session: int, unit: str | None = None
    ) -> None:
        """Report a process."""
        self.ask(op="add", pid=pid, title=title, ppid=ppid, session=session, unit=unit)

    def alloc(self, held: list[tuple[int, int, int]]) -> None:
        """Set what processes hold, (pid, GPU, MiB) each; OutOfMemoryError where it does not fit."""
        answer = self.ask(op="alloc", held=held)
        if not answer["ok"]:
            raise OutOfMemoryError(
                _int(answer, "gpu"), _int(answer, "mib"), _int(answer, "free_mib")
            )

    def known(self, pids: list[int]) -> bool:
        """Whether the box has heard of all these processes."""
        return self.ask(op="known", pids=pids)["ok"] is True

    def free_mib(self, gpu: int) -> int:
        """What is free on a GPU now."""
        return _int(self.ask(op="free", gpu=gpu), "free_mib")

    def peek(self) -> bool:
        """False at the box's end. Call it only when the line is readable."""
        return bool(self._socket.recv(1, socket.MSG_PEEK))


def _int(answer: dict[str, object], name: str) -> int:
    return int(str(answer[name]))


def _connect(root: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.connect(str(root / "run/p"))
    return made


class Worker:
    """A light real process under a worker's name; it lives until it is signalled or the box ends.

    ``unit`` None makes it the child's own affair (no control group); ``stubborn`` ignores SIGTERM.
    """

    def __init__(
        self,
        root: Path,
        title: str,
        *,
        unit: str | None = None,
        stubborn: bool = False,
        user: str = "root",
        uid: int = 0,
    ) -> None:
        self.title = title
        # Its own connection is its stdin and stdout: the box sees it die whoever its parent is,
        # and it reads end of file when the box ends.
        with _connect(root) as own:
            self.process = _spawn(root, title.split(" ")[0], own, stubborn)
            line = {
                "op": "worker",
                "pid": self.process.pid,
                "title": title,
                "ppid": os.getpid(),
                "session": os.getsid(0),
                "unit": unit,
                "user": user,
                "uid": uid,
            }
            own.sendall(json.dumps(line).encode() + b"\n")

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self, number: int = signal.SIGTERM) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)


def _spawn(root: Path, name: str, own: socket.socket, stubborn: bool) -> subprocess.Popen[bytes]:
    """Run a program that reads stdin to its end, under another name (argv[0] and comm)."""
    path = root / "run" / name.replace("/", "_")
    if not path.exists():
        path.symlink_to((root / "run/worker").readlink())

    def ignore_term() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    return subprocess.Popen(
        [name],
        executable=str(path),
        stdin=own.fileno(),
        stdout=own.fileno(),
        stderr=subprocess.DEVNULL,
        preexec_fn=ignore_term if stubborn else None,
    )
