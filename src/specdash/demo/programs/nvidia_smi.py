"""``nvidia-smi`` of the box: queries in CSV, loops, compute processes, the table, ``-L`` and ``-q``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime

from specdash.demo.faults import Fault
from specdash.demo.machine import GPU_NAME, POWER_LIMIT_W, RESERVED_MIB, TOTAL_MIB, Gpu, Machine
from specdash.demo.programs.call import Call

DRIVER = "595.58.03"
CUDA = "13.2"
_TABLE = 89


def _now() -> str:
    return datetime.now().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]


_Field = tuple[str, Callable[[Machine, Gpu], str]]


def _busy(machine: Machine, gpu: Gpu) -> bool:
    return machine.load(gpu) > 0.01


FIELDS: dict[str, _Field] = {
    "timestamp": ("", lambda m, g: _now()),
    "driver_version": ("", lambda m, g: DRIVER),
    "count": ("", lambda m, g: str(len(m.gpus))),
    "name": ("", lambda m, g: GPU_NAME),
    "serial": ("", lambda m, g: f"17930250{g.index:04}"),
    "uuid": ("", lambda m, g: g.uuid),
    "pci.bus_id": ("", lambda m, g: g.bus_id),
    "index": ("", lambda m, g: str(g.index)),
    "persistence_mode": ("", lambda m, g: "Enabled"),
    "compute_mode": ("", lambda m, g: "Default"),
    "driver_model.current": ("", lambda m, g: "[N/A]"),
    "addressing_mode": ("", lambda m, g: "HMM"),
    "gpu_recovery_action": ("", lambda m, g: "None"),
    "display_active": ("", lambda m, g: "Disabled"),
    "display_mode": ("", lambda m, g: "[Requested functionality has been deprecated]"),
    "memory.total": ("MiB", lambda m, g: str(TOTAL_MIB)),
    "memory.reserved": ("MiB", lambda m, g: str(RESERVED_MIB)),
    "memory.used": ("MiB", lambda m, g: str(m.used_mib(g.index))),
    "memory.free": ("MiB", lambda m, g: str(m.free_mib(g.index))),
    "utilization.gpu": ("%", lambda m, g: str(round(100 * m.load(g)))),
    "utilization.memory": ("%", lambda m, g: str(round(71 * m.load(g)))),
    "temperature.gpu": ("", lambda m, g: str(round(m.temperature(g)))),
    "temperature.memory": ("", lambda m, g: "N/A"),
    "fan.speed": ("%", lambda m, g: "[N/A]"),
    "power.draw": ("W", lambda m, g: f"{m.power_w(g):.2f}"),
    "power.draw.instant": ("W", lambda m, g: f"{m.power_w(g):.2f}"),
    "power.draw.average": ("W", lambda m, g: f"{m.power_w(g):.2f}"),
    "power.limit": ("W", lambda m, g: f"{POWER_LIMIT_W:.2f}"),
    "enforced.power.limit": ("W", lambda m, g: f"{POWER_LIMIT_W:.2f}"),
    "power.default_limit": ("W", lambda m, g: f"{POWER_LIMIT_W:.2f}"),
    "power.max_limit": ("W", lambda m, g: f"{POWER_LIMIT_W:.2f}"),
    "clocks.current.sm": ("MHz", lambda m, g: "2430" if _busy(m, g) else "180"),
    "clocks.current.graphics": ("MHz", lambda m, g: "2430" if _busy(m, g) else "180"),
    "clocks.current.memory": ("MHz", lambda m, g: "13365" if _busy(m, g) else "405"),
    "clocks.max.sm": ("MHz", lambda m, g: "3090"),
    "pstate": ("", lambda m, g: "P1" if _busy(m, g) else "P8"),
    "clocks_event_reasons.active": (
        "",
        lambda m, g: "0x0000000000000000" if _busy(m, g) else "0x0000000000000001",
    ),
    "mig.mode.current": ("", lambda m, g: "Disabled"),
    "mig.mode.pending": ("", lambda m, g: "Disabled"),
    "ecc.mode.current": ("", lambda m, g: "Enabled"),
    "pcie.link.gen.current": ("", lambda m, g: "5" if _busy(m, g) else "1"),
    "pcie.link.width.current": ("", lambda m, g: "16"),
}
ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_serial": "serial",
    "gpu_bus_id": "pci.bus_id",
    "clocks.sm": "clocks.current.sm",
    "clocks.gr": "clocks.current.graphics",
    "clocks.mem": "clocks.current.memory",
    "clocks_throttle_reasons.active": "clocks_event_reasons.active",
}
APP_FIELDS = ("timestamp", "gpu_name", "gpu_bus_id", "gpu_serial", "gpu_uuid", "pid")
APP_ALIASES = {"name": "process_name", "used_memory": "used_gpu_memory"}

_TAKES_VALUE = {
    "--query-gpu": "query",
    "--query-compute-apps": "apps",
    "--format": "format",
    "-f": "file",
    "--filename": "file",
    "-i": "id",
    "--id": "id",
    "-l": "loop",
    "--loop": "loop",
    "-lms": "loop-ms",
    "--loop-ms": "loop-ms",
    "-d": "display",
    "--display": "display",
}
_PLAIN = {
    "-L": "list",
    "--list-gpus": "list",
    "-q": "detail",
    "--query": "detail",
    "-h": "help",
    "--help": "help",
    "--version": "version",
    "--help-query-gpu": "help-query",
    "--help-query-compute-apps": "help-apps",
}


async def nvidia_smi(call: Call) -> int:
    """One call, or a loop until the reader goes away."""
    faults = call.world.faults.now()
    if Fault.SMI_HANGS in faults:
        await asyncio.Event().wait()
    if Fault.DRIVER_MISMATCH in faults:
        await call.out(
            "Failed to initialize NVML: Driver/library version mismatch\n"
            "NVML library version: 595.71\n"
        )
        return 18
    options: dict[str, str] = {}
    rest = list(call.argv)
    while rest:
        word = rest.pop(0)
        spelling, equals, value = word.partition("=")
        if spelling in _TAKES_VALUE:
            name = _TAKES_VALUE[spelling]
            if not equals:
                # The period of a loop may be left out.
                optional = name.startswith("loop")
                if rest and (not optional or rest[0].isdigit()):
                    value = rest.pop(0)
                elif not optional:
                    return await _usage(call, f"ERROR: Option {word} is missing its value.")
            options[name] = value
        elif word in _PLAIN:
            options[_PLAIN[word]] = ""
        else:
            return await _usage(
                call, f"Invalid combination of input arguments. Please run 'nvidia-smi -h'. {word}"
            )
    return await _serve(call, options)


async def _usage(call: Call, text: str) -> int:
    await call.out(text + "\n")
    return 1


async def _serve(call: Call, options: dict[str, str]) -> int:
    machine = call.world.machine
    if "help-query" in options or "help-apps" in options:
        names = FIELDS if "help-query" in options else (*APP_FIELDS, "process_name")
        await call.out("List of valid properties to query for the switch:\n\n")
        for name in names:
            await call.out(f'"{name}"\n')
        return 0
    if "help" in options or "version" in options:
        await call.out(f"NVIDIA-SMI version  : {DRIVER}\nNVML version        : {DRIVER[:6]}\n")
        return 0
    if Fault.GPU_LOST in call.world.faults.now() and "id" not in options:
        await call.out(
            f"Unable to determine the device handle for GPU{machine.gpus[2].bus_id[4:]}: "
            "Unknown Error\n"
        )
        return 255
    gpus = _chosen(machine, options.get("id", ""))
    if not gpus:
        await call.out("No devices were found\n")
        return 6
    render = _renderer(call, options, gpus)
    if isinstance(render, str):
        await call.out(render)
        return 2
    period = _period(options)
    if period is None:
        await call.out(render(True))
        return 0
    if Fault.NO_LOOP in call.world.faults.now():
        await call.out("Invalid combination of input arguments. Please run 'nvidia-smi -h'.\n")
        return 1
    first = True
    due = time.monotonic()
    while True:
        await call.out(render(first))
        if Fault.GPU_LOST in call.world.faults.now():
            await call.out(f"GPU {machine.gpus[2].bus_id}: GPU is lost.  Reboot the system.\n")
            return 15
        first = False
        due = max(due + period, time.monotonic())
        await asyncio.sleep(due - time.monotonic())


def _period(options: dict[str, str]) -> float | None:
    if "loop-ms" in options:
        return max(0.02, int(options["loop-ms"] or 1000) / 1000)
    if "loop" in options:
        return float(max(1, int(options["loop"] or 5)))
    return None


def _chosen(machine: Machine, wanted: str) -> list[Gpu]:
    if not wanted:
        return list(machine.gpus)
    names = [part.strip() for part in wanted.split(",")]
    return [
        gpu
        for gpu in machine.gpus
        if any(name in (str(gpu.index), gpu.uuid, gpu.bus_id, gpu.bus_id[4:]) for name in names)
    ]


_Render = Callable[[bool], str]


def _renderer(call: Call, options: dict[str, str], gpus: list[Gpu]) -> _Render | str:
    """What one round prints, or the complaint about the words."""
    machine = call.world.machine
    if "query" in options or "apps" in options:
        form = [part.strip() for part in options.get("format", "").split(",")]
        if "csv" not in form:
            return "Invalid combination of input arguments. Please run 'nvidia-smi -h'.\n"
        header, units = "noheader" not in form, "nounits" not in form
        if "query" in options:
            return _query(machine, options["query"], gpus, header, units)
        return _apps(call, options["apps"], gpus, header, units)
    if "list" in options:
        return lambda first: "".join(
            f"GPU {gpu.index}: {GPU_NAME} (UUID: {gpu.uuid})\n" for gpu in gpus
        )
    if "detail" in options:
        return lambda first: _detail(call, gpus)
    return lambda first: _table(call, gpus)


def _query(
    machine: Machine, text: str, gpus: list[Gpu], header: bool, units: bool
) -> _Render | str:
    names = [part.strip() for part in text.split(",") if part.strip()]
    names = [ALIASES.get(name, name) for name in names]
    for name in names:
        if name not in FIELDS:
            return f'Field "{name}" is not a valid field to query.\n\n'

    def cell(name: str, gpu: Gpu) -> str:
        unit, read = FIELDS[name]
        value = read(machine, gpu)
        return f"{value} {unit}" if unit and units and not value.startswith("[") else value

    def render(first: bool) -> str:
        lines = []
        if header and first:
            lines.append(", ".join(f"{n} [{FIELDS[n][0]}]" if FIELDS[n][0] else n for n in names))
        lines.extend(", ".join(cell(name, gpu) for name in names) for gpu in gpus)
        return "\n".join(lines) + "\n"

    return render


def _apps(call: Call, text: str, gpus: list[Gpu], header: bool, units: bool) -> _Render | str:
    names = [APP_ALIASES.get(part.strip(), part.strip()) for part in text.split(",")]
    for name in names:
        if name not in (*APP_FIELDS, "process_name", "used_gpu_memory"):
            return f'Field "{name}" is not a valid field to query.\n\n'
    machine = call.world.machine

    def render(first: bool) -> str:
        lines = []
        if header and first:
            lines.append(
                ", ".join("used_gpu_memory [MiB]" if n == "used_gpu_memory" else n for n in names)
            )
        for gpu in gpus:
            # The container's own PID namespace hides the processes from its nvidia-smi.
            for proc, mib in machine.holders(gpu.index) if call.host == "node" else []:
                values = {
                    "timestamp": _now(),
                    "gpu_name": GPU_NAME,
                    "gpu_bus_id": gpu.bus_id,
                    "gpu_serial": FIELDS["serial"][1](machine, gpu),
                    "gpu_uuid": gpu.uuid,
                    "pid": str(proc.pid),
                    "process_name": proc.title.split(" ", 1)[0],
                    "used_gpu_memory": f"{mib} MiB" if units else str(mib),
                }
                lines.append(", ".join(values[name] for name in names))
        return "".join(line + "\n" for line in lines)

    return render


def _table(call: Call, gpus: list[Gpu]) -> str:
    machine = call.world.machine

    def boxed(text: str) -> str:
        return f"| {text:<{_TABLE - 2}} |"

    rule = "+" + "-" * _TABLE + "+"
    lines = [
        time.strftime("%a %b %d %H:%M:%S %Y"),
        rule,
        boxed(f"NVIDIA-SMI {DRIVER}    Driver Version: {DRIVER}    CUDA Version: {CUDA}"),
        rule,
    ]
    for gpu in gpus:
        lines.append(boxed(f"{gpu.index:>3}  {GPU_NAME:<42} On  | {gpu.bus_id} Off"))
        lines.append(
            boxed(
                f"N/A  {round(machine.temperature(gpu)):>3}C  {FIELDS['pstate'][1](machine, gpu)} "
                f"{machine.power_w(gpu):>6.0f}W / {POWER_LIMIT_W:.0f}W | "
                f"{machine.used_mib(gpu.index):>6}MiB / {TOTAL_MIB}MiB | "
                f"{round(100 * machine.load(gpu)):>4}%      Default"
            )
        )
    lines += [rule, boxed("Processes:"), boxed(" GPU   GI   CI         PID   Type   Process name")]
    for gpu in gpus:
        lines.extend(
            boxed(
                f"{gpu.index:>4}  N/A  N/A  {proc.pid:>10}      C   "
                f"{proc.title.split(' ')[0]:<36} {mib:>8}MiB"
            )
            for proc, mib in (machine.holders(gpu.index) if call.host == "node" else [])
        )
    lines.append(rule)
    return "\n".join(lines) + "\n"


def _detail(call: Call, gpus: list[Gpu]) -> str:
    machine = call.world.machine
    lines = [
        "",
        "==============NVSMI LOG==============",
        "",
        f"Timestamp                                 : {time.strftime('%a %b %d %H:%M:%S %Y')}",
        f"Driver Version                            : {DRIVER}",
        f"CUDA Version                              : {CUDA}",
        "",
        f"Attached GPUs                             : {len(machine.gpus)}",
    ]

    def line(depth: int, key: str, value: str) -> str:
        return f"{' ' * (4 * depth) + key:<42}: {value}"

    for gpu in gpus:
        lines += [
            f"GPU {gpu.bus_id}",
            line(1, "Product Name", GPU_NAME),
            line(1, "GPU UUID", gpu.uuid),
            line(1, "Minor Number", str(gpu.index)),
            line(1, "Performance State", FIELDS["pstate"][1](machine, gpu)),
            "    FB Memory Usage",
            line(2, "Total", f"{TOTAL_MIB} MiB"),
            line(2, "Reserved", f"{RESERVED_MIB} MiB"),
            line(2, "Used", f"{machine.used_mib(gpu.index)} MiB"),
            line(2, "Free", f"{machine.free_mib(gpu.index)} MiB"),
            "    Utilization",
            line(2, "GPU", f"{round(100 * machine.load(gpu))} %"),
            line(2, "Memory", f"{round(71 * machine.load(gpu))} %"),
            "    Temperature",
            line(2, "GPU Current Temp", f"{round(machine.temperature(gpu))} C"),
            "    GPU Power Readings",
            line(2, "Instantaneous Power Draw", f"{machine.power_w(gpu):.2f} W"),
            line(2, "Current Power Limit", f"{POWER_LIMIT_W:.2f} W"),
            "    Clocks",
            line(2, "SM", FIELDS["clocks.current.sm"][1](machine, gpu) + " MHz"),
        ]
        holders = machine.holders(gpu.index) if call.host == "node" else []
        lines.append(line(1, "Processes", "None") if not holders else "    Processes")
        for proc, mib in holders:
            lines += [
                line(2, "Process ID", str(proc.pid)),
                line(3, "Type", "C"),
                line(3, "Name", proc.title.split(" ")[0]),
                line(3, "Used GPU Memory", f"{mib} MiB"),
            ]
    return "\n".join(lines) + "\n"
