"""The one program of ours on the real rig: ``nvidia-smi`` over memory that is really held.

The rig's machine has no GPU. This program takes the resident memory of real processes for GPU
memory, so that free, busy, holders and orphans are what the machine is in, not a script:

- a process is on a GPU when its program is ``llama-server``, or when it holds one of the files
  ``/dev/nvidiaN`` open, as a CUDA process would;
- an engine is spread evenly over the GPUs of its ``CUDA_VISIBLE_DEVICES`` (all, where it has
  none), another process over the GPUs whose device files it holds;
- its memory is VmRSS from ``/proc``; utilisation is its processor time over the last interval;
- what nothing here can tell (power, temperature, clocks) is ``[N/A]``, as the real program says.

The number of GPUs and their size come from ``/etc/pretended-gpus``: ``COUNT TOTAL_MIB``. The
spelling of options, headers, cells and refusals follows the real program's query mode.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

SIZES = Path("/etc/pretended-gpus")
PROC = Path("/proc")
ENGINES = ("llama-server",)
DEVICE = "/dev/nvidia"
NAME = "Pretended GPU (resident memory)"
NA = "[N/A]"
SAMPLE_S = 0.05
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Held:
    """One process on the GPUs: its share of memory in KiB on each, and processor ticks so far."""

    pid: int
    name: str
    ticks: int
    kib: dict[int, int]


@dataclass(frozen=True)
class Reading:
    """All GPUs at one moment. ``busy``: percent of each GPU, None where no interval is known."""

    when: float
    total_mib: int
    count: int
    held: tuple[Held, ...]
    busy: tuple[int | None, ...]

    def used_mib(self, gpu: int) -> int:
        return sum(item.kib.get(gpu, 0) for item in self.held) // 1024


def read(before: Reading | None = None) -> Reading:
    """Look at every process once; ``before`` gives the interval for the utilisation."""
    count, total = gpu_sizes()
    held = tuple(sorted(processes(count), key=lambda item: item.pid))
    now = time.monotonic()
    busy: list[int | None] = [None] * count
    if before is not None and now > before.when:
        past = {item.pid: item.ticks for item in before.held}
        for gpu in range(count):
            ticks = sum(
                item.ticks - past[item.pid] for item in held if gpu in item.kib and item.pid in past
            )
            busy[gpu] = min(100, round(100 * ticks / TICKS / (now - before.when)))
    return Reading(now, total, count, held, tuple(busy))


def gpu_sizes() -> tuple[int, int]:
    count, total = SIZES.read_text("ascii").split()
    return int(count), int(total)


def processes(count: int) -> Iterable[Held]:
    for root in PROC.iterdir():
        if not root.name.isdigit():
            continue
        try:
            item = process(root, count)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended while we looked, or is not ours to see
        if item is not None:
            yield item


def process(root: Path, count: int) -> Held | None:
    program = str((root / "exe").readlink()).removesuffix(" (deleted)")
    devices = held_devices(root, count)
    if Path(program).name in ENGINES:
        gpus = visible_devices(root, count)
    elif devices:
        gpus = devices
    else:
        return None
    resident = resident_kib(root)
    if resident is None or not gpus:
        return None
    fields = (root / "stat").read_bytes().rpartition(b")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return Held(int(root.name), program, ticks, {gpu: resident // len(gpus) for gpu in gpus})


def held_devices(root: Path, count: int) -> list[int]:
    found = set()
    for link in (root / "fd").iterdir():
        try:
            path = str(link.readlink())
        except FileNotFoundError:
            continue  # closed while we looked
        suffix = path.removeprefix(DEVICE)
        if suffix != path and suffix.isdigit() and int(suffix) < count:
            found.add(int(suffix))
    return sorted(found)


def visible_devices(root: Path, count: int) -> list[int]:
    items = (root / "environ").read_bytes().split(b"\0")
    variables = dict(item.partition(b"=")[::2] for item in items)
    wanted = variables.get(b"CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return list(range(count))
    return [int(item) for item in wanted.split(b",") if item.isdigit() and int(item) < count]


def resident_kib(root: Path) -> int | None:
    for line in (root / "status").read_text("utf-8", "replace").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return None  # a zombie has no memory


@dataclass(frozen=True)
class Column:
    """One field of a query: its unit in the header, and the cell without the unit."""

    unit: str
    cell: Callable[[Reading, int], object]


def gpu_uuid(gpu: int) -> str:
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'pretended gpu {gpu}')}"


def bus_id(gpu: int) -> str:
    return f"00000000:{gpu + 1:02X}:00.0"


def timestamp() -> str:
    now = time.time()
    return time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now)) + f".{int(now * 1000) % 1000:03}"


def nothing(_reading: Reading, _gpu: int) -> object:
    return None


GPU_COLUMNS = {
    "timestamp": Column("", lambda r, g: timestamp()),
    "index": Column("", lambda r, g: g),
    "count": Column("", lambda r, g: r.count),
    "uuid": Column("", lambda r, g: gpu_uuid(g)),
    "gpu_uuid": Column("", lambda r, g: gpu_uuid(g)),
    "name": Column("", lambda r, g: NAME),
    "gpu_name": Column("", lambda r, g: NAME),
    "pci.bus_id": Column("", lambda r, g: bus_id(g)),
    "gpu_bus_id": Column("", lambda r, g: bus_id(g)),
    "memory.total": Column("MiB", lambda r, g: r.total_mib),
    "memory.reserved": Column("MiB", lambda r, g: 0),
    "memory.used": Column("MiB", lambda r, g: r.used_mib(g)),
    "memory.free": Column("MiB", lambda r, g: max(0, r.total_mib - r.used_mib(g))),
    "utilization.gpu": Column("%", lambda r, g: r.busy[g]),
    "utilization.memory": Column("%", nothing),
    "driver_version": Column("", lambda r, g: "000.00"),
    "pstate": Column("", nothing),
    "temperature.gpu": Column("", nothing),
    "temperature.memory": Column("", nothing),
    "power.draw": Column("W", nothing),
    "power.draw.instant": Column("W", nothing),
    "power.limit": Column("W", nothing),
    "enforced.power.limit": Column("W", nothing),
    "clocks.sm": Column("MHz", nothing),
    "clocks.current.sm": Column("MHz", nothing),
    "clocks.current.memory": Column("MHz", nothing),
    "clocks_event_reasons.active": Column("", nothing),
    "clocks_throttle_reasons.active": Column("", nothing),
    "mig.mode.current": Column("", nothing),
    "persistence_mode": Column("", nothing),
    "compute_mode": Column("", nothing),
    "ecc.mode.current": Column("", nothing),
}

APP_COLUMNS = {
    "timestamp": "",
    "gpu_name": "",
    "gpu_bus_id": "",
    "gpu_serial": "",
    "gpu_uuid": "",
    "pid": "",
    "process_name": "",
    "name": "",
    "used_gpu_memory": "MiB",
    "used_memory": "MiB",
}
LIKE_REAL = {"name": "process_name", "used_memory": "used_gpu_memory"}
"""Short spellings of a compute-apps query and the header the real program gives them."""


def gpu_rows(
    reading: Reading, fields: Sequence[str], units: bool, chosen: Sequence[int]
) -> list[str]:
    rows = []
    for gpu in chosen:
        cells = []
        for field in fields:
            column = GPU_COLUMNS[field]
            cells.append(cell(column.cell(reading, gpu), column.unit if units else ""))
        rows.append(", ".join(cells))
    return rows


def app_rows(
    reading: Reading, fields: Sequence[str], units: bool, chosen: Sequence[int]
) -> list[str]:
    rows = []
    for gpu in chosen:
        for item in reading.held:
            if gpu not in item.kib:
                continue
            known: dict[str, object] = {
                "timestamp": timestamp(),
                "gpu_name": NAME,
                "gpu_bus_id": bus_id(gpu),
                "gpu_uuid": gpu_uuid(gpu),
                "pid": item.pid,
                "process_name": item.name,
                "used_gpu_memory": item.kib[gpu] // 1024,
            }
            rows.append(
                ", ".join(
                    cell(known.get(LIKE_REAL.get(f, f)), APP_COLUMNS[f] if units else "")
                    for f in fields
                )
            )
    return rows


def cell(value: object, unit: str) -> str:
    if value is None:
        return NA
    return f"{value} {unit}".rstrip()


def header(fields: Sequence[str], kind: str) -> str:
    """The header names units also where the cells do not."""
    names = []
    for field in fields:
        unit = GPU_COLUMNS[field].unit if kind == "gpu" else APP_COLUMNS[field]
        shown = field if kind == "gpu" else LIKE_REAL.get(field, field)
        names.append(f"{shown} [{unit}]" if unit else shown)
    return ", ".join(names)


def refuse(message: str, status: int) -> int:
    """The real program complains on stdout."""
    print(message, flush=True)
    return status


@dataclass
class Asked:
    """One command line, taken apart."""

    kind: str = ""
    fields: tuple[str, ...] = ()
    header: bool = True
    units: bool = True
    csv: bool = False
    every_s: float | None = None
    chosen: tuple[int, ...] | None = None
    listing: bool = False
    help_fields: bool = False


def parse(words: Sequence[str]) -> Asked | str:
    """The request, or the complaint about it."""
    asked = Asked()
    queue = list(words)

    def value() -> str:
        return queue.pop(0) if queue else ""

    while queue:
        name, has, given = queue.pop(0).partition("=")
        if name in ("--query-gpu", "--query-compute-apps"):
            asked.kind = "gpu" if name == "--query-gpu" else "apps"
            wanted = given if has else value()
            asked.fields = tuple(field.strip() for field in wanted.split(",") if field.strip())
            known: Iterable[str] = GPU_COLUMNS if asked.kind == "gpu" else APP_COLUMNS
            for field in asked.fields:
                if field not in known:
                    return f'Field "{field}" is not a valid field to query.\n'
        elif name == "--format":
            parts = (given if has else value()).split(",")
            asked.csv = "csv" in parts
            asked.header = "noheader" not in parts
            asked.units = "nounits" not in parts
        elif name in ("-l", "--loop", "-lms", "--loop-ms"):
            number = given if has else value()
            if not number.isdigit() or int(number) == 0:
                return f"Invalid combination of input arguments: {name} {number}"
            asked.every_s = int(number) / (1000 if name.endswith("ms") else 1)
        elif name in ("-i", "--id"):
            wanted_ids = (given if has else value()).split(",")
            by_name = {label: gpu for gpu in range(gpu_sizes()[0]) for label in labels(gpu)}
            if missing := [item for item in wanted_ids if item not in by_name]:
                return f"No devices were found ({missing[0]})"
            asked.chosen = tuple(by_name[item] for item in wanted_ids)
        elif name in ("-L", "--list-gpus"):
            asked.listing = True
        elif name == "--help-query-gpu":
            asked.help_fields = True
        else:
            return (
                f"Invalid combination of input arguments. {name} is not known here. "
                "Please run 'nvidia-smi -h' for help."
            )
    return asked


def labels(gpu: int) -> tuple[str, ...]:
    return (str(gpu), gpu_uuid(gpu), bus_id(gpu))


def table(reading: Reading) -> str:
    """What the bare command prints: enough to see who holds what."""
    lines = [f"| {NAME}: memory is the resident memory of real processes |"]
    for gpu in range(reading.count):
        used = reading.used_mib(gpu)
        lines.append(f"|  {gpu}  {gpu_uuid(gpu)}  {used}MiB / {reading.total_mib}MiB |")
    lines.append("| Processes: |")
    for gpu in range(reading.count):
        lines += [
            f"|  {gpu}  {item.pid}  C  {item.name}  {item.kib[gpu] // 1024}MiB |"
            for item in reading.held
            if gpu in item.kib
        ]
    return "\n".join(lines)


def main(words: Sequence[str]) -> int:
    asked = parse(words)
    if isinstance(asked, str):
        return refuse(asked, 6 if asked.startswith("No devices") else 2)
    if asked.help_fields:
        for field in GPU_COLUMNS:
            print(f'"{field}"\n    (see the real program)\n')
        return 0
    if asked.listing:
        for gpu in range(gpu_sizes()[0]):
            print(f"GPU {gpu}: {NAME} (UUID: {gpu_uuid(gpu)})")
        return 0
    if asked.kind and not asked.csv:
        return refuse('"--format=" is missing or is not csv.', 2)
    reading = read()
    if not asked.kind:
        print(table(reading), flush=True)
        return 0
    if asked.header:
        print(header(asked.fields, asked.kind), flush=True)
    if "utilization.gpu" in asked.fields:
        time.sleep(SAMPLE_S)
        reading = read(reading)
    rows = gpu_rows if asked.kind == "gpu" else app_rows
    while True:
        chosen = range(reading.count) if asked.chosen is None else asked.chosen
        for row in rows(reading, asked.fields, asked.units, chosen):
            print(row, flush=True)
        if asked.every_s is None:
            return 0
        time.sleep(asked.every_s)
        reading = read(reading)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(1)  # the reader went away
