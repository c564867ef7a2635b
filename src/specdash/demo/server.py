"""The box itself: one process that holds the machine, the SSH servers and the engine's supervisor.

Started by :mod:`specdash.demo.box` as ``python -m specdash.demo.server ROOT ...``; says one JSON line on
stdout when it is ready, ends when its stdin does, and takes everything it started with it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from specdash.demo import layout
from specdash.demo.control import serve_calls, serve_processes
from specdash.demo.engine.link import Worker
from specdash.demo.faults import Fault, FaultSwitch
from specdash.demo.journal import Journal
from specdash.demo.machine import Machine
from specdash.demo.mounts import ConfigMount
from specdash.demo.programs.call import CONTAINER_HOST, World
from specdash.demo.ssh import SshHost
from specdash.demo.supervisor import Supervisor

TICK_S = 0.05
FIRST_LOAD_S = 15.0
FOREIGN_TITLE = "python3 train.py --resume latest"
FOREIGN_USER, FOREIGN_UID = "alice", 1007
FOREIGN_GPU, FOREIGN_MIB = 1, 20_480


class BoxServer:
    """Everything of one box that lives in its process."""

    def __init__(
        self, root: Path, *, steps: int, speed: float, seed: int, own_mounts: bool
    ) -> None:
        self.root = root
        self._speed = speed
        self._port = layout.free_port()
        layout.build(root, port=self._port, steps=steps)
        self._faults = FaultSwitch(root)
        self._machine = Machine(self._faults, speed=speed, seed=seed)
        self._journal = Journal(CONTAINER_HOST)
        self._supervisor = Supervisor(
            layout.unit_path(root).parent,
            self._machine,
            self._journal,
            self._faults,
            env=layout.engine_env(root, speed),
            speed=speed,
        )
        self._world = World(
            self._machine,
            self._supervisor,
            self._journal,
            self._faults,
            root,
            speed,
            {host: layout.bin_path(root, host) for host in ("svc", "ct", "node")},
            _is_descendant,
        )
        self._mount = ConfigMount(layout.unit_path(root).parent, own_mounts=own_mounts)
        self._ssh: dict[str, SshHost] = {}
        self._foreign: Worker | None = None
        self._foreign_wanted = False

    async def start(self, *, start_service: bool) -> dict[str, object]:
        """Bring everything up; returns the ready line."""
        run = self.root / "run"
        self._servers = [
            await serve_calls(self._world, run, _report),
            await serve_processes(self._machine, run),
        ]
        client_key, host_keys = layout.write_keys(self.root)
        ports: dict[str, int] = {}
        for host in layout.HOSTS:
            self._ssh[host] = SshHost(
                host_key=host_keys[host],
                client_key=client_key,
                machine=self._machine,
                faults=self._faults,
                env=layout.shell_env(self.root, host),
                home=self.root / "home",
            )
            ports[host] = await self._ssh[host].listen()
        layout.write_ssh_config(self.root, ports, host_keys)
        layout.write_rig(self.root, port=self._port, speed=self._speed)
        if start_service:
            await self._deploy()
        return {"port": self._port, "ssh_ports": ports, "pid": os.getpid()}

    async def _deploy(self) -> None:
        """A rig is found serving: its first load costs no time, and is waited for.

        With faults set the load may never end, so nobody waits.
        """
        self._supervisor.start(layout.UNIT, env={"SPECDASH_BOX_LOAD_SPEED": "1000"})
        end = time.monotonic() + FIRST_LOAD_S
        while not self._faults.now() and time.monotonic() < end:
            if any(proc.ready for proc in self._machine.procs()):
                return
            await asyncio.sleep(0.01)

    async def tick(self) -> None:
        """What faults ask for, again and again."""
        while True:
            for host in self._ssh.values():
                host.enforce()
            faults = self._faults.now()
            self._foreign_holder(Fault.FOREIGN_HOLDER in faults)
            self._mount.set(
                "full"
                if Fault.CONFIG_DISK_FULL in faults
                else "read-only"
                if Fault.CONFIG_READ_ONLY in faults
                else ""
            )
            await asyncio.sleep(TICK_S)

    def _foreign_holder(self, wanted: bool) -> None:
        if self._foreign is not None and self._foreign.process.poll() is not None:
            self._foreign = None
        if wanted and not self._foreign_wanted:
            self._foreign = Worker(
                self.root, FOREIGN_TITLE, unit="", user=FOREIGN_USER, uid=FOREIGN_UID
            )
        elif not wanted and self._foreign is not None:
            self._foreign.end(signal.SIGKILL)
        if self._foreign is not None:
            # Once the box has heard of it; before that there is nobody to hold anything.
            self._machine.alloc(self._foreign.pid, FOREIGN_GPU, FOREIGN_MIB)
        self._foreign_wanted = wanted

    async def close(self) -> None:
        """End all of it."""
        for host in self._ssh.values():
            await host.close()
        await self._supervisor.close()
        for proc in self._machine.procs():
            with contextlib.suppress(OSError):
                os.kill(proc.pid, signal.SIGKILL)
        self._mount.set("")


def _report(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _is_descendant(pid: int) -> bool:
    """Whether a process was started, however far down, by this one."""
    own = os.getpid()
    for _ in range(64):
        if pid == own or pid <= 1:
            return False
        parent = _parent(pid)
        if parent == own:
            return True
        pid = parent
    return False


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[1])
    except OSError:
        found = subprocess.run(
            ["/bin/ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, check=False
        ).stdout.strip()
        return int(found) if found.isdigit() else 0


async def _stdin_ended() -> None:
    """Wait for the end of stdin: whoever started the box is gone or wants it to go."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def readable() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            ended.set()

    os.set_blocking(0, False)
    loop.add_reader(0, readable)
    await ended.wait()


async def _serve(options: argparse.Namespace) -> None:
    box = BoxServer(
        options.root,
        steps=options.steps,
        speed=options.speed,
        seed=options.seed,
        own_mounts=options.own_mounts,
    )
    try:
        ready = await box.start(start_service=not options.stopped)
        ticking = asyncio.create_task(box.tick())
        sys.stdout.write(json.dumps(ready) + "\n")
        sys.stdout.flush()
        ended = asyncio.create_task(_stdin_ended())
        done, _ = await asyncio.wait({ended, ticking}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await box.close()
    # Whoever started the box removes this too, unless it died.
    shutil.rmtree(options.root, ignore_errors=True)


def _as_init() -> None:
    """As the first process of a namespace: let a child be the box, and bury what is orphaned."""
    child = os.fork()
    if not child:
        return
    while True:
        pid, status = os.wait()
        if pid == child:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def main() -> None:
    """The command line of the box process."""
    parser = argparse.ArgumentParser(prog="specdash.demo.server")
    parser.add_argument("root", type=Path)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stopped", action="store_true")
    parser.add_argument("--own-mounts", action="store_true")
    options = parser.parse_args()
    if os.getpid() == 1:
        with contextlib.suppress(OSError):
            # Numbers as on a machine that has been up for a while.
            Path("/proc/sys/kernel/ns_last_pid").write_text("41207", encoding="ascii")
        _as_init()
    asyncio.run(_serve(options))


if __name__ == "__main__":
    main()
