"""Which programs there are, and on which host's PATH."""

from __future__ import annotations

from specdash.demo.programs.analyze import systemd_analyze
from specdash.demo.programs.call import Program
from specdash.demo.programs.journalctl import journalctl
from specdash.demo.programs.nvidia_smi import nvidia_smi
from specdash.demo.programs.pct import pct
from specdash.demo.programs.ps import pgrep, ps
from specdash.demo.programs.signals import fuser, kill, pkill
from specdash.demo.programs.systemctl import systemctl

PROGRAMS: dict[str, Program] = {
    "systemctl": systemctl,
    "journalctl": journalctl,
    "systemd-analyze": systemd_analyze,
    "nvidia-smi": nvidia_smi,
    "pct": pct,
    "fuser": fuser,
    "ps": ps,
    "pgrep": pgrep,
    "kill": kill,
    "pkill": pkill,
}

EVERYWHERE = ("ps", "pgrep", "pkill", "kill", "fuser", "nvidia-smi")
ON_HOST: dict[str, tuple[str, ...]] = {
    "svc": (*EVERYWHERE, "systemctl", "journalctl", "systemd-analyze"),
    "ct": (*EVERYWHERE, "systemctl", "journalctl", "systemd-analyze"),
    "node": (*EVERYWHERE, "pct"),
}

_TOOLS: str = (
    "sh env cat mv stat chmod chown chgrp mktemp sync head tail od dd cmp readlink realpath id "
    "sleep rm cp ln printf echo uname test true false tr cut sort uniq wc tee touch mkdir rmdir "
    "ls df du basename dirname date hostname expr sed grep awk find xargs sha256sum cksum base64 "
    "diff install mkfifo timeout nproc whoami pwd seq tty nohup getent setsid bash"
)
TOOLS = tuple(_TOOLS.split())
"""Ordinary tools found on the box's PATH, as links to this machine's own."""
