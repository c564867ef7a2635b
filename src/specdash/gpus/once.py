"""One reading of a host's GPUs: fields negotiated, holders with their users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from specdash.core.gpu import GpuProcess, Problem, Snapshot
from specdash.gpus import query
from specdash.gpus.cells import normal_bus, printed_bus
from specdash.gpus.parse import Parsed, decode, read_output, snapshot_of
from specdash.gpus.reading import Reading, merge, processes_of
from specdash.hosts.protocol import Completed, Host

_TRIES = 12
_NOT_FOUND = 127
Users = dict[tuple[int | None, str | None], str | None]
"""(pid, name) -> user, None where ps knows no such process."""
NO_ANSWER = Problem(
    "no-driver",
    "nvidia-smi gives no answer.",
    "The driver may hang: see `dmesg` for Xid errors; do not kill nvidia-smi with -9.",
)


@dataclass(frozen=True, slots=True)
class Ask:
    """How this host wants to be asked; learned by asking."""

    program: str = query.PROGRAMS[0]
    fields: tuple[str, ...] = query.FIELDS
    unbuffered: bool = False
    only: tuple[str, ...] = ()

    def argv(self, *, loop_ms: int | None = None) -> query.Argv:
        return query.gpus_argv(
            self.fields,
            program=self.program,
            loop_ms=loop_ms,
            only=self.only,
            unbuffered=self.unbuffered and loop_ms is not None,
        )


@dataclass(slots=True)
class Answer:
    """What was read, how to ask next time, and how long the last query took."""

    parsed: Parsed
    ask: Ask
    seconds: float = 0.0
    whole: list[Reading] = field(default_factory=list)

    def snapshot(self, source: str) -> Snapshot:
        return snapshot_of(self.parsed, source=source)


async def snapshot(host: Host, *, timeout_s: float = 20.0) -> Snapshot:
    """The GPUs of a host now, with the processes that hold memory.

    What nvidia-smi cannot tell is in ``problems``. Raises UnreachableError where the host cannot
    be reached.
    """
    answer = await read_gpus(host, timeout_s=timeout_s)
    taken = answer.snapshot(host.name)
    if not taken.gpus or any(problem.code == "no-command" for problem in taken.problems):
        return taken
    held, problems = await read_holders(
        host, answer.parsed.readings, program=answer.ask.program, timeout_s=timeout_s
    )
    return replace(taken, processes=held, problems=(*taken.problems, *problems))


async def read_gpus(
    host: Host,
    ask: Ask | None = None,
    *,
    timeout_s: float = 20.0,
    known_buses: Sequence[str] = (),
) -> Answer:
    """One query, with other fields and other places of nvidia-smi where the first is refused.

    A GPU that does not answer hides all others from nvidia-smi; those are then asked alone, by
    the PCI addresses that the kernel module lists, else by ``known_buses``.
    """
    ask = ask or Ask()
    answer = Answer(Parsed(), ask)
    for _ in range(_TRIES):
        done = await host.run(ask.argv(), timeout_s=timeout_s)
        parsed = _parsed(done)
        answer = Answer(parsed, ask, done.seconds)
        codes = {problem.code for problem in parsed.problems}
        if "no-command" in codes and not parsed.readings:
            place = query.PROGRAMS.index(ask.program) if ask.program in query.PROGRAMS else -1
            if not 0 <= place < len(query.PROGRAMS) - 1:
                break
            ask = replace(ask, program=query.PROGRAMS[place + 1])
        elif "field-refused" in codes and not _rows(parsed):
            fields = query.fewer_fields(ask.fields, parsed.refused)
            if fields is None:
                break
            ask = replace(ask, fields=fields)
        elif parsed.lost and not _rows(parsed) and not ask.only:
            return await _survivors(host, answer, known_buses, timeout_s=timeout_s)
        else:
            return answer
    if any(problem.code == "no-command" for problem in answer.parsed.problems):
        answer.ask = replace(answer.ask, program=query.PROGRAMS[0])
    return answer


async def read_holders(
    host: Host,
    readings: Sequence[Reading],
    *,
    program: str = query.PROGRAMS[0],
    timeout_s: float = 20.0,
    users: Users | None = None,
) -> tuple[tuple[GpuProcess, ...], tuple[Problem, ...]]:
    """The processes that hold GPU memory; users where ``ps`` knows the very same process.

    The readings of the same moment join them to GPUs. Driver failures are not repeated here.
    ``users`` remembers what ps said, so that only new processes are looked up.
    """
    done = await host.run(query.holders_argv(program=program), timeout_s=timeout_s)
    if done.timed_out:
        return (), (NO_ANSWER,)
    if not done.stdout.strip():
        return (), ()
    parsed = read_output(done.stdout + b"\n" + done.stderr, exit_status=done.exit_status)
    held = processes_of(parsed.holders, merge(readings))
    known: Users = {} if users is None else users
    new = sorted({p.pid for p in held if p.pid is not None and (p.pid, p.name) not in known})
    if new:
        found = _users(await host.run(query.users_argv(new), timeout_s=timeout_s))
        known.update({(p.pid, p.name): _user_of(p, found) for p in held if p.pid in new})
    problems = tuple(problem for problem in parsed.problems if problem.code == "garbled")
    return tuple(replace(p, user=known.get((p.pid, p.name))) for p in held), problems


def _parsed(done: Completed) -> Parsed:
    if done.timed_out:
        return Parsed(problems=[NO_ANSWER])
    data = done.stdout if done.stdout.endswith(b"\n") else done.stdout + b"\n"
    parsed = read_output(data + done.stderr + b"\n", exit_status=done.exit_status)
    if done.exit_status == _NOT_FOUND and not parsed.readings:
        blank = read_output(b"", exit_status=_NOT_FOUND)
        parsed.problems = blank.problems
    return parsed


def _rows(parsed: Parsed) -> bool:
    return any(reading.values for reading in parsed.readings)


async def _survivors(
    host: Host, answer: Answer, known_buses: Sequence[str], *, timeout_s: float
) -> Answer:
    """Ask the GPUs that are not lost."""
    listed = await host.run(query.DRIVER_DEVICES, timeout_s=timeout_s)
    found = [bus for bus in map(normal_bus, decode(listed.stdout).split()) if bus is not None]
    buses = found if listed.ok and found else known_buses
    others = tuple(bus for bus in buses if bus not in answer.parsed.lost)
    if not others:
        return answer
    ask = replace(answer.ask, only=tuple(map(printed_bus, others)))
    done = await host.run(ask.argv(), timeout_s=timeout_s)
    rest = _parsed(done)
    if not _rows(rest):
        return answer
    rest.readings = [*rest.readings, *answer.parsed.readings]
    rest.problems = list(dict.fromkeys([*answer.parsed.problems, *rest.problems]))
    rest.lost = list(answer.parsed.lost)
    return Answer(rest, ask, done.seconds)


def _users(done: Completed) -> dict[int, tuple[str, str]]:
    """pid -> user and command name."""
    users: dict[int, tuple[str, str]] = {}
    for line in decode(done.stdout).split("\n"):
        parts = line.split(None, 2)
        if len(parts) == 3 and parts[0].isascii() and parts[0].isdigit():
            users[int(parts[0])] = (parts[1], parts[2].strip())
    return users


def _user_of(process: GpuProcess, users: dict[int, tuple[str, str]]) -> str | None:
    """In a container a pid may be another process than on the host: the names must agree."""
    user, command = users.get(process.pid or 0, ("", ""))
    return user if user and _same_program(process.name, command) else None


def _same_program(name: str | None, command: str) -> bool:
    if name is None:
        return False
    base = name.split(" ")[0].rsplit("/", 1)[-1]
    seen = command.rsplit("/", 1)[-1]
    # Linux keeps 15 characters; torch renames the main thread of python.
    return base[:15] == seen[:15] or (base.startswith("python") and seen == "pt_main_thread")
