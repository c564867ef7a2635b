"""The box's service manager: one directory of unit files, real processes, systemd's states.

What starts is the unit as it was *loaded*; an edit counts only after a daemon-reload, and until then
``NeedDaemonReload`` says yes. Times that a rig spends waiting for it are divided by the box's speed.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from specdash.demo.faults import Fault, FaultSwitch
from specdash.demo.journal import Journal
from specdash.demo.machine import Machine, Proc
from specdash.demo.service import (
    NoSuchUnitError,
    Service,
    StartRefusedError,
    existing,
    exit_name,
    fingerprint,
    send,
)
from specdash.demo.units import Unit, UnitError, command, environment, read_into

LINE_MAX = 48 * 1024
SHORTEST_STOP_S = 2.0
_SUCCESS_SIGNALS = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE}


class Supervisor:
    """All services of the box."""

    def __init__(
        self,
        directory: Path,
        machine: Machine,
        journal: Journal,
        faults: FaultSwitch,
        *,
        env: Mapping[str, str],
        speed: float,
    ) -> None:
        self.directory = directory
        self._machine = machine
        self._journal = journal
        self._faults = faults
        self._env = dict(env)
        self._speed = speed
        self._services: dict[str, Service] = {}
        self._gone = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        machine.on_gone(self._process_gone)

    # Files

    def names(self) -> list[str]:
        """Units that have a file."""
        return sorted(path.name for path in self.directory.glob("*.service"))

    def files(self, name: str) -> tuple[Path, list[Path]]:
        """The fragment and the drop-ins of a unit; NoSuchUnitError."""
        fragment = self.directory / name
        if "/" in name or not fragment.is_file():
            raise NoSuchUnitError(name)
        return fragment, sorted((self.directory / f"{name}.d").glob("*.conf"))

    def get(self, name: str) -> Service:
        """The service, loaded at its first use; NoSuchUnitError."""
        if name not in self._services:
            self._services[name] = self._load(name)
        return self._services[name]

    def _load(self, name: str) -> Service:
        fragment, dropins = self.files(name)
        return Service(name, self._read(fragment, dropins), fingerprint(fragment, dropins))

    def _read(self, fragment: Path, dropins: list[Path]) -> Unit:
        unit = Unit()
        for path in (fragment, *dropins):
            read_into(unit, path.read_bytes().decode("utf-8", "replace"), str(path))
        if not unit.all("Service", "ExecStart"):
            unit.complaints.append(
                f"{fragment.name}: Service has no ExecStart=, ExecStop=, or SuccessAction=. Refusing."
            )
            unit.bad = True
        if self._faults.on(Fault.UNIT_PARSE_ERROR):
            unit.complaints.append(f"{fragment}:1: Invalid section header '[Unit'")
            unit.bad = True
        return unit

    def reload(self) -> None:
        """Read all unit files again; running services keep running."""
        self._say("Reloading.")
        for name, service in list(self._services.items()):
            try:
                fragment, dropins = self.files(name)
            except NoSuchUnitError:
                if service.active in ("inactive", "failed"):
                    del self._services[name]
                continue
            service.unit = self._read(fragment, dropins)
            service.fingerprint = fingerprint(fragment, dropins)
            for complaint in service.unit.complaints:
                self._say(complaint)

    def needs_reload(self, service: Service) -> bool:
        try:
            return fingerprint(*self.files(service.name)) != service.fingerprint
        except NoSuchUnitError:
            return True

    # Verbs

    def start(self, name: str, *, env: Mapping[str, str] | None = None) -> Service:
        """Queue a start; StartRefusedError where systemd would refuse at once.

        ``env`` is for the first process of this start only.
        """
        service = self.get(name)
        if service.stop_asked.is_set() and service.active in ("active", "deactivating"):
            # As a job that waits for the stop before it.
            self._tasks.add(later := asyncio.create_task(self._start_later(service)))
            later.add_done_callback(self._tasks.discard)
            return service
        if service.active in ("active", "deactivating") or (
            service.active == "activating" and service.sub != "auto-restart"
        ):
            return service
        if service.unit.bad:
            raise StartRefusedError(
                f"Failed to start {name}: Unit {name} has a bad unit file setting.\n"
                f"See system logs and 'systemctl status {name}' for details."
            )
        self._check_rate(service)
        if service.runner is not None:
            service.runner.cancel()
        service.restarts = 0
        service.stop_asked = asyncio.Event()
        service.extra_env = dict(env or {})
        service.state("activating", "start")
        service.settled = asyncio.Event()
        service.runner = asyncio.create_task(self._run(service))
        return service

    async def _start_later(self, service: Service) -> None:
        await self.settle(service)
        with suppress(NoSuchUnitError, StartRefusedError):
            self.start(service.name)

    def _check_rate(self, service: Service) -> None:
        burst = int(service.unit.last("Unit", "StartLimitBurst", "5"))
        window = service.unit.seconds("StartLimitIntervalSec", 10.0, "Unit") / self._speed
        now = time.monotonic()
        while service.starts and service.starts[0] < now - window:
            service.starts.popleft()
        if burst and len(service.starts) >= burst:
            service.result = "start-limit-hit"
            service.state("failed", "failed")
            self._say_of(service, f"{service.name}: Start request repeated too quickly.")
            self._say_of(service, f"{service.name}: Failed with result 'start-limit-hit'.")
            raise StartRefusedError(
                f'Job for {service.name} failed.\nSee "systemctl status {service.name}" and '
                f'"journalctl -xeu {service.name}" for details.'
            )
        service.starts.append(now)

    def stop(self, name: str) -> Service:
        """Queue a stop."""
        service = self.get(name)
        if service.active in ("active", "activating", "deactivating"):
            service.stop_asked.set()
        return service

    async def settle(self, service: Service) -> None:
        """Wait until the last queued job of a service is done."""
        while service.active in ("deactivating", "activating") or (
            service.stop_asked.is_set() and service.active == "active"
        ):
            await service.settled.wait()
            await asyncio.sleep(0)

    def reset_failed(self, name: str) -> None:
        service = self.get(name)
        service.starts.clear()
        service.restarts = 0
        if service.active == "failed":
            service.result = "success"
            service.state("inactive", "dead")

    def kill(self, name: str, number: int, whom: str) -> None:
        """Send a signal to the processes of a unit."""
        service = self.get(name)
        for pid in self.members(service, "all" if whom == "all" else "main"):
            send(pid, number)

    async def close(self) -> None:
        """End everything at once."""
        for service in self._services.values():
            if service.runner is not None:
                service.runner.cancel()
            for pid in self.members(service, "all"):
                send(pid, signal.SIGKILL)

    # One run

    async def _run(self, service: Service) -> None:
        while True:
            await self._once(service)
            if not self._restarts(service):
                return
            service.state("activating", "auto-restart")
            delay = service.unit.seconds("RestartSec", 0.1) / self._speed
            with suppress(TimeoutError):
                await asyncio.wait_for(service.stop_asked.wait(), delay)
                service.state("inactive", "dead")
                service.settled.set()
                return
            service.restarts += 1
            self._say_of(
                service,
                f"{service.name}: Scheduled restart job, restart counter is at {service.restarts}.",
            )
            try:
                self._check_rate(service)
            except StartRefusedError:
                service.settled.set()
                return

    def _restarts(self, service: Service) -> bool:
        rule = service.unit.last("Service", "Restart", "no")
        if service.stop_asked.is_set() or service.result == "start-limit-hit":
            return False
        clean = service.result == "success"
        return (
            rule == "always"
            or (rule == "on-failure" and not clean)
            or (rule == "on-success" and clean)
            or (rule == "on-abnormal" and service.result in ("signal", "timeout", "watchdog"))
            or (rule == "on-abort" and service.result == "signal")
        )

    async def _once(self, service: Service) -> None:
        service.invocation = secrets.token_hex(16)
        service.result = "success"
        service.exec_code = service.exec_status = 0
        service.main_pid = 0
        spawned = await self._spawn(service)
        if spawned is None:
            service.result = "exit-code"
            service.exec_code, service.exec_status = 1, 203
            self._ended(service)
            return
        service.process = spawned
        service.main_pid = spawned.pid
        service.started_at = time.time()
        service.state("active", "running")
        service.settled.set()
        self._say_of(service, f"Started {self.title(service)}.")
        exit_wait = asyncio.create_task(spawned.wait())
        stop_wait = asyncio.create_task(service.stop_asked.wait())
        try:
            await asyncio.wait({exit_wait, stop_wait}, return_when=asyncio.FIRST_COMPLETED)
            if exit_wait.done():
                self._main_exited(service, exit_wait.result())
                await self._end_rest(service, exit_wait)
            else:
                await self._stop_all(service, exit_wait)
        finally:
            exit_wait.cancel()
            stop_wait.cancel()
        self._ended(service)

    async def _spawn(self, service: Service) -> asyncio.subprocess.Process | None:
        unit = service.unit
        try:
            files = self._environment_files(unit)
            env = {**self._env, **environment(unit, files)}
            env["INVOCATION_ID"] = service.invocation
            env.update(service.extra_env)
            service.extra_env = {}
            argv = command(
                unit.last("Service", "ExecStart"),
                env,
                {"n": service.name, "N": service.name.removesuffix(".service"), "h": "/root"},
            )
        except (UnitError, OSError) as error:
            self._say_of(service, f"{service.name}: Failed to load environment files: {error}")
            return None
        service.argv = argv
        cwd = unit.last("Service", "WorkingDirectory", "/").lstrip("-")
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                env=env,
                cwd=existing(cwd),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                limit=LINE_MAX,
            )
        except OSError as error:
            self._say_of(
                service,
                f"{service.name}: Failed at step EXEC spawning {argv[0]}: {error.strerror}",
            )
            return None
        self._machine.add(Proc(process.pid, " ".join(argv), session=process.pid, unit=service.name))
        self._read_output(service, process)
        return process

    def _environment_files(self, unit: Unit) -> dict[str, str]:
        texts: dict[str, str] = {}
        for name in unit.all("Service", "EnvironmentFile"):
            path = Path(name.removeprefix("-"))
            if path.is_file() or not name.startswith("-"):
                texts[str(path)] = path.read_text(encoding="utf-8")
        return texts

    def _read_output(self, service: Service, process: asyncio.subprocess.Process) -> None:
        stream = cast("asyncio.StreamReader", process.stdout)
        invocation, pid = service.invocation, process.pid
        identifier = Path(service.argv[0]).name
        name = service.name

        async def pump() -> None:
            while True:
                try:
                    line = await stream.readline()
                except ValueError:  # longer than LINE_MAX: journald cuts such lines too
                    continue
                if not line:
                    return
                self._journal.write(
                    line,
                    pid=pid,
                    identifier=identifier,
                    _SYSTEMD_UNIT=name,
                    _SYSTEMD_INVOCATION_ID=invocation,
                    _SYSTEMD_CGROUP=f"/system.slice/{name}",
                    _COMM=identifier[:15],
                )

        process_pump = asyncio.create_task(pump())
        self._tasks.add(process_pump)
        process_pump.add_done_callback(self._tasks.discard)

    def _main_exited(self, service: Service, code: int) -> None:
        self._machine.gone(service.main_pid)
        service.main_pid = 0
        asked = service.stop_asked.is_set()
        if code < 0:
            number = signal.Signals(-code)
            service.exec_code, service.exec_status = 2, -code
            clean = number in _SUCCESS_SIGNALS
            if not clean and service.result == "success":
                service.result = "signal"
            how = f"code=killed, status={-code}/{number.name.removeprefix('SIG')}"
        else:
            service.exec_code, service.exec_status = 1, code
            clean = code == 0
            if not clean and service.result == "success" and not asked:
                service.result = "exit-code"
            how = f"code=exited, status={code}/{'SUCCESS' if clean else exit_name(code)}"
        if not clean or not asked:
            self._say_of(service, f"{service.name}: Main process exited, {how}")

    async def _stop_all(self, service: Service, exit_wait: asyncio.Task[int]) -> None:
        service.state("deactivating", "stop-sigterm")
        service.settled = asyncio.Event()
        self._say_of(service, f"Stopping {self.title(service)}...")
        mode = service.unit.last("Service", "KillMode", "control-group")
        limit = self._stop_limit(service)
        whom = "all" if mode == "control-group" else "none" if mode == "none" else "main"
        for pid in self.members(service, whom):
            send(pid, signal.SIGTERM)
        if mode == "none":
            return
        try:
            code = await asyncio.wait_for(asyncio.shield(exit_wait), limit)
        except TimeoutError:
            self._say_of(service, f"{service.name}: State 'stop-sigterm' timed out. Killing.")
            service.result = "timeout"
            service.state("deactivating", "stop-sigkill")
            for pid in self.members(service, "main" if mode == "process" else "all"):
                self._say_of(
                    service,
                    f"{service.name}: Killing process {pid} "
                    f"({self._comm(pid)}) with signal SIGKILL.",
                )
                send(pid, signal.SIGKILL)
            code = await exit_wait
        self._main_exited(service, code)
        await self._end_rest(service, exit_wait)

    async def _end_rest(self, service: Service, exit_wait: asyncio.Task[int]) -> None:
        """What KillMode says about the processes that outlive the main one."""
        del exit_wait
        mode = service.unit.last("Service", "KillMode", "control-group")
        rest = self.members(service, "rest")
        if mode in ("process", "none"):
            for pid in rest:
                self._say_of(
                    service,
                    f"{service.name}: Unit process {pid} ({self._comm(pid)}) "
                    "remains running after unit stopped.",
                )
            return
        if rest and service.active != "deactivating":
            service.state("deactivating", "final-sigterm")
            service.settled = asyncio.Event()
        number = signal.SIGKILL if mode == "mixed" else signal.SIGTERM
        for pid in rest:
            send(pid, number)
        limit = self._stop_limit(service)
        if not await self._rest_gone(service, limit):
            for pid in self.members(service, "rest"):
                send(pid, signal.SIGKILL)
            await self._rest_gone(service, limit)

    async def _rest_gone(self, service: Service, limit: float) -> bool:
        end = time.monotonic() + limit
        while self.members(service, "rest"):
            left = end - time.monotonic()
            if left <= 0:
                return False
            with suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), left)
        return True

    def _ended(self, service: Service) -> None:
        service.main_pid = 0
        service.process = None
        if service.result == "success":
            service.state("inactive", "dead")
            self._say_of(service, f"{service.name}: Deactivated successfully.")
        else:
            service.state("failed", "failed")
            self._say_of(service, f"{service.name}: Failed with result '{service.result}'.")
        if service.stop_asked.is_set():
            self._say_of(service, f"Stopped {self.title(service)}.")
        service.settled.set()

    # Helpers

    def title(self, service: Service) -> str:
        """``unit - description``, as systemd's log names it."""
        description = service.unit.last("Unit", "Description")
        return f"{service.name} - {description}" if description else service.name

    def _stop_limit(self, service: Service) -> float:
        # Never so short that a process with nothing to wait for misses it on a busy machine.
        asked = service.unit.seconds("TimeoutStopSec", 90.0)
        return min(asked, max(asked / self._speed, SHORTEST_STOP_S))

    def control_group(self, service: Service) -> str:
        """The cgroup path; "" where nothing runs in it."""
        return f"/system.slice/{service.name}" if self.members(service, "all") else ""

    def members(self, service: Service, whom: str) -> list[int]:
        pids = [proc.pid for proc in self._machine.of_unit(service.name)]
        if whom == "none":
            return []
        if whom == "main":
            return [service.main_pid] if service.main_pid else []
        if whom == "rest":
            return [pid for pid in pids if pid != service.main_pid]
        return pids

    def _comm(self, pid: int) -> str:
        proc = self._machine.get(pid)
        return proc.comm if proc is not None else "n/a"

    def _process_gone(self, proc: Proc) -> None:
        del proc
        self._gone.set()
        self._gone = asyncio.Event()

    def _say(self, text: str) -> None:
        self._journal.write(text.encode(), pid=1, identifier="systemd")

    def _say_of(self, service: Service, text: str) -> None:
        self._journal.write(
            text.encode(),
            pid=1,
            identifier="systemd",
            UNIT=service.name,
            INVOCATION_ID=service.invocation,
        )
