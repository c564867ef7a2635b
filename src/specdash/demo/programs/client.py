"""What each of the box's programs really is on disk: a thin client of the box.

Run as ``python -I -S -E client.py SOCKET HOST PROGRAM [ARG...]``; it imports next to nothing, because a
rig's programs start in a few milliseconds and are started often.
"""

import _socket
import os
import sys


def main() -> int:
    """Send the call, copy what comes back, leave with its status."""
    path, host, program = sys.argv[1:4]
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        link.connect(path)
    except OSError:
        os.write(2, b"the box is gone\n")
        return 1
    try:
        cwd = os.getcwd()  # noqa: PTH109 - pathlib takes longer to import than this runs
    except OSError:
        cwd = "/"
    words = [host, program, cwd, str(os.getpid()), *sys.argv[4:]]
    call = b"\0".join(os.fsencode(word) for word in words)
    _send(link, len(call).to_bytes(4, "big") + call)
    while True:
        head = _receive(link, 5)
        if len(head) < 5:
            return 1
        body = _receive(link, int.from_bytes(head[1:], "big"))
        kind = head[:1]
        if kind == b"x":
            return int(body)
        if kind == b"r":
            _replace(body)
        _write(1 if kind == b"o" else 2, body)


def _replace(body: bytes) -> None:
    """Become another program: ``pct exec`` runs the rest of its words without a shell."""
    path, cwd, *argv = (os.fsdecode(word) for word in body.split(b"\0"))
    os.environ["PATH"] = path
    os.chdir(cwd)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - an argv list, no shell
    except OSError as error:
        os.write(2, f'lxc-attach: Failed to exec "{argv[0]}": {error.strerror}\n'.encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _send(link: _socket.socket, data: bytes) -> None:
    while data:
        data = data[link.send(data) :]


def _receive(link: _socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            return data
        data += more
    return data


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BrokenPipeError, ConnectionError, KeyboardInterrupt):
        os._exit(141)
