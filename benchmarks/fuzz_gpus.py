"""Mutate outputs of nvidia-smi and read them: no crash, no wrong number in a valid row.

    python benchmarks/fuzz_gpus.py [--count 200000] [--seed 1]

Every form is mutated as bytes (cut, flip, insert, delete, double, swap, other text between
lines, other line ends). What is checked on each result:

- reading never raises;
- a GPU whose newest line arrived untouched has exactly its true numbers (CSV, damage elsewhere);
- no number is reported that does not stand in the mutated text (so none is invented);
- no true number of one field is reported as another field's (nothing is shifted; not asked of
  forms in sections after their lines changed places, which then say something else);
- after cuts alone, every number is the true one or unknown, in every form.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "gpus"))

from gpus_helpers import capture, csv, gpu_values, section
from test_gpus_forms import NEW, OLD, TABLE, XML_GPU, long_form, xml

from specdash.core.gpu import Gpu, Snapshot
from specdash.gpus.parse import parse
from specdash.gpus.query import FIELDS

NUMBERS = (
    "memory_total_mib",
    "memory_used_mib",
    "memory_reserved_mib",
    "utilization_percent",
    "temperature_c",
    "power_draw_w",
    "power_limit_w",
    "sm_clock_mhz",
)
LARGE = 150
"""Smaller numbers meet by chance when a digit is lost."""
NOISE = (
    b"WARNING: infoROM is corrupted at gpu 0000:65:00.0",
    b"channel 3: open failed: connect failed",
    b"Failed to initialize NVML: Unknown Error",
    b"\x1b[31mred\x1b[0m",
    b"0, 1, 2, 3",
    b"",
    b"Unable to determine the device handle for GPU 0000:EE:00.0: Unknown Error",
)
ALPHABET = b"0123456789,. :|[]<>/%MiBWCPGPU-xABCDEF\n\r\t\x00\xff\"'"


@dataclass(frozen=True)
class Seed:
    name: str
    data: bytes
    truth: Snapshot
    rows: bool = False
    one_form: bool = False

    def others(self) -> dict[str, set[float]]:
        """Per field the large numbers of the text that are not this field's."""
        text = re.sub("RTX [A-Z]* ?[0-9]+|H200", "", self.data.decode("utf-8", "replace"))
        large = {float(n) for n in re.findall(r"\d+(?:\.\d+)?", text) if LARGE <= float(n) < 1e9}
        own: dict[str, set[float]] = {name: set() for name in NUMBERS}
        for part in self.parts():
            for gpu in parse(part, source="s").gpus:
                for name, value in numbers(gpu).items():
                    own[name].add(value)
        own["power_limit_w"].add(550.0)  # the enforced limit stands in for the limit
        return {name: large - own[name] for name in NUMBERS}

    def parts(self) -> list[bytes]:
        """The output, or each of its rows under the header."""
        if not self.rows:
            return [self.data]
        header, *lines = self.data.splitlines(keepends=True)
        return [header + line for line in lines]


def csv_seed(
    name: str, fields: tuple[str, ...], count: int, rounds: int, rng: random.Random
) -> Seed:
    values = [
        gpu_values(i, used=rng.randrange(97000), count=count)
        | {
            "utilization.gpu": f"{rng.randrange(101)} %",
            "temperature.gpu": str(rng.randrange(20, 90)),
            "power.draw": f"{rng.uniform(20, 600):.2f} W",
        }
        for _ in range(rounds)
        for i in range(count)
    ]
    data = csv(fields, values)
    return Seed(name, data, parse(data, source="s"), rows=True)


def seeds(rng: random.Random) -> list[Seed]:
    forms = {
        "long": long_form(4, used=(4, 61247, 0, 96513)).encode(),
        "table": TABLE.encode(),
        "table h200": section("h200.txt", "load :: nvidia-smi"),
        "xml": xml(
            *(XML_GPU.format(bus=b, used="16959 MiB", **NEW) for b in ("01", "02"))
        ).encode(),
        "xml old": xml(XML_GPU.format(bus="83", used="12 MiB", **OLD)).encode() * 2,
        "apps": section("h200.txt", "load :: query-compute"),
        "mixed": section("h200_mig.txt", "load :: nvidia-smi")
        + section("h200_mig.txt", "load :: query-gpu"),
    }
    small = ("index", "name", "memory.total", "memory.used", "utilization.gpu")
    swapped = ("memory.used", "power.draw", "uuid", "memory.total", "index", "pstate")
    return [
        *(
            Seed(name, data, parse(data, source="s"), one_form=name != "mixed")
            for name, data in forms.items()
        ),
        csv_seed("csv", FIELDS, 8, 1, rng),
        csv_seed("csv loop", FIELDS, 2, 4, rng),
        csv_seed("csv small", small, 4, 2, rng),
        csv_seed("csv order", swapped, 4, 2, rng),
    ]


Damage = Literal["cut", "moved", "other"]


def mutate(data: bytes, rng: random.Random) -> tuple[bytes, Damage]:
    """Some damage: a cut at the end and nothing else, or with lines that changed places, or other."""
    damage: Damage = "other"
    if rng.random() < 0.15:
        return data[: rng.randrange(len(data) + 1)], "cut"
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        at = rng.randrange(len(out) + 1)
        end = min(len(out), at + rng.choice((1, 1, 2, 5, 40, 300)))
        match rng.randrange(8):
            case 0:
                del out[at:end]
            case 1:
                out[at:at] = bytes(rng.choices(ALPHABET, k=rng.choice((1, 1, 2, 6))))
            case 2 if at < len(out):
                out[at] = rng.randrange(256)
            case 3:
                out[at:at] = out[at:end]
            case 4:
                line = out.find(b"\n", at) + 1
                out[line:line] = rng.choice(NOISE) + b"\n"
            case 5:
                out[at:at] = rng.choice(NOISE)
            case 6:
                lines = out.split(b"\n")
                a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
                lines[a], lines[b] = lines[b], lines[a]
                out = bytearray(b"\n".join(lines))
                damage = "moved"
            case _:
                out = bytearray(out.replace(b"\n", rng.choice((b"\r\n", b"\r\r\n", b"\n\n"))))
        if not out:
            return b"", damage
    return bytes(out), damage


def numbers(gpu: Gpu) -> dict[str, float]:
    return {name: getattr(gpu, name) for name in NUMBERS if getattr(gpu, name) is not None}


def check(
    seed: Seed, data: bytes, damage: Damage, others: dict[str, set[float]], compared: Counter[str]
) -> str:
    """What is wrong with the reading, or ""; ``compared`` counts what was held against the truth."""
    snapshot = parse(data, source="s")
    snapshot.to_json()
    text = data.decode("utf-8", "replace").replace("\x00", "").replace(",", ".")
    there = set(re.findall(r"\d+(?:\.\d+)?", text)) | set(re.findall(r"\d+", text))
    values = {float(number) for number in there if len(number) < 12}
    for gpu in snapshot.gpus:
        for name, value in numbers(gpu).items():
            compared["numbers in the text"] += 1
            if value not in values and -value not in values:
                return f"{name} {value} stands nowhere in the text"
    if seed.rows or (seed.one_form and damage != "moved"):
        for gpu in snapshot.gpus:
            for name, value in numbers(gpu).items():
                if value in others[name]:
                    return f"{name} {value} is another field's"
    truths = {gpu.uuid or gpu.index: gpu for gpu in seed.truth.gpus}
    if damage == "cut" and seed.one_form:
        for gpu in snapshot.gpus:
            true = truths.get(gpu.uuid or gpu.index)
            for name, value in numbers(gpu).items():
                compared["numbers after a cut"] += 1
                known = [true] if true is not None else list(truths.values())
                if value not in [getattr(one, name) for one in known]:
                    return f"{name} {value} after a cut"
    return check_rows(seed, data, snapshot, compared) if seed.rows else ""


def check_rows(seed: Seed, data: bytes, snapshot: Snapshot, compared: Counter[str]) -> str:
    """CSV: where the header and all lines of a GPU are untouched, its numbers are its own."""
    plain = re.sub(rb"\r*\n|\r", b"\n", data)
    lines, original = plain.split(b"\n"), seed.data.split(b"\n")
    header = original[0]
    if header not in lines or any(b"index" in line and line != header for line in lines):
        return ""
    if any(line.count(b",") > 0 and line not in original for line in lines[: lines.index(header)]):
        return ""
    by_key = {gpu.uuid or gpu.index: gpu for gpu in snapshot.gpus}
    for true in seed.truth.gpus:
        mark = (true.uuid or f"{true.index}, NVIDIA").encode()
        mine = [line for line in original if mark in line]
        seen = [line for line in lines[lines.index(header) :] if mark in line]
        strange = [line for line in lines if line not in original and b"," in line]
        ends = plain.rfind(b"\n")
        if seen != mine or any(_may_be(line, true) for line in strange):
            continue
        if plain.find(mine[-1]) > ends:
            continue
        compared["valid rows"] += 1
        got = by_key.get(true.uuid or true.index)
        if got is None:
            return f"GPU {true.index} is missing although its rows are whole"
        if got.state != "lost" and numbers(got) != numbers(true):
            return f"GPU {true.index} reads {numbers(got)}, is {numbers(true)}"
    return ""


def _may_be(line: bytes, gpu: Gpu) -> bool:
    """Whether a damaged line may have become a row of this GPU."""
    return str(gpu.index).encode() in line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    pool = seeds(rng)
    large = [
        Seed(name, capture(name), parse(capture(name), source="s"))
        for name in ("h200.txt", "h200_mig.txt", "rtx_4080_super.txt")
    ]
    others = {seed.name: seed.others() for seed in [*pool, *large]}
    began, bad = time.monotonic(), 0
    outcomes: Counter[str] = Counter()
    compared: Counter[str] = Counter()
    for turn in range(args.count):
        seed = rng.choice(large) if turn % 100 == 0 else rng.choice(pool)
        data, damage = mutate(seed.data, rng)
        try:
            wrong = check(seed, data, damage, others[seed.name], compared)
        except Exception as error:  # noqa: BLE001
            wrong = f"crash: {error!r}"
        outcomes[seed.name] += 1
        if wrong:
            bad += 1
            path = Path(f"fuzz_gpus_{args.seed}_{turn}.txt")
            path.write_bytes(data)
            print(f"{seed.name}: {wrong} ({path})")
            if bad >= 10:
                break
    seconds = time.monotonic() - began
    done = sum(outcomes.values())
    print(f"{done} mutated outputs, {bad} wrong, {seconds:.0f} s ({done / seconds:.0f}/s)")
    print(", ".join(f"{name} {count}" for name, count in sorted(outcomes.items())))
    print(", ".join(f"{what}: {count}" for what, count in sorted(compared.items())))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
