"""One cell of nvidia-smi's output as a value. Unknown is None; what cannot be proved is garbage.

The tokens are those seen in real output (drivers 304 to 610); any other text in square brackets
counts as one of them, since each driver adds some.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from specdash.core.redact import Redactor
from specdash.core.text import make_safe
from specdash.gpus.reasons import reasons_of_mask

Value = int | float | str | bool | tuple[str, ...]
Kind = Literal[
    "index", "pid", "mib", "percent", "celsius", "watts", "mhz", "mask", "switch", "pstate",
    "uuid", "bus", "text", "active", "count", "time",
]  # fmt: skip
Fault = Literal["", "lost", "reset"]

_TOKENS = frozenset(
    {
        "",
        "-",
        "--",
        "n/a",
        "err!",
        "unknown",
        "error",
        "unknown error",
        "not supported",
        "not available",
        "not found",
        "not available in wddm driver model",
        "insufficient permissions",
        "gpu requires reset",
        "gpu is lost",
        "requested functionality has been deprecated",
        "function not found",
        "timeout",
    }
)
_LOST = re.compile(r"(gpu is lost|fallen off the bus)", re.IGNORECASE)
_RESET = re.compile(r"(gpu )?requires reset|reset required", re.IGNORECASE)

# kind -> (digits, units as printed); CSV prints none for temperatures, the other forms do.
_NUMBER: dict[str, tuple[re.Pattern[str], tuple[str, ...]]] = {
    "index": (re.compile(r"[0-9]{1,4}"), ()),
    "count": (re.compile(r"[0-9]{1,4}"), ()),
    "pid": (re.compile(r"[0-9]{1,10}"), ()),
    "mib": (re.compile(r"[0-9]{1,9}"), ("MiB", "MB")),
    "percent": (re.compile(r"[0-9]{1,3}"), ("%",)),
    "celsius": (re.compile(r"-?[0-9]{1,3}"), ("C",)),
    "watts": (re.compile(r"[0-9]{1,5}(?:[.,][0-9]{1,3})?"), ("W",)),
    "mhz": (re.compile(r"[0-9]{1,5}"), ("MHz",)),
}
UNIT_KINDS = frozenset(kind for kind, (_, units) in _NUMBER.items() if units and kind != "celsius")
"""The kinds whose CSV cells carry a unit unless ``nounits`` was asked."""
NUMERIC_KINDS = frozenset(_NUMBER)

_MASK = re.compile(r"0x[0-9A-Fa-f]{1,16}")
_PSTATE = re.compile(r"P(1[0-5]|[0-9])")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z./-]{1,80}")
_BUS = re.compile(r"([0-9A-Fa-f]{1,8}):([0-9A-Fa-f]{1,2}):([0-9A-Fa-f]{1,2})\.([0-7])")
_REDACTOR = Redactor()
_NAME_LIMIT = 300


@dataclass(frozen=True, slots=True)
class Cell:
    """``value`` None is unknown. ``garbage``: neither a value of this kind nor a known token.

    ``unit`` says whether a unit stood behind the number.
    """

    value: Value | None = None
    garbage: bool = False
    unit: bool = False
    fault: Fault = ""


UNKNOWN = Cell()
GARBAGE = Cell(garbage=True)


def read_cell(raw: str, kind: Kind) -> Cell:
    """Read one cell of the given kind."""
    text = raw.strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1].strip()
    if is_token(text):
        return _token(text)
    if kind in NUMERIC_KINDS:
        return _number(text, kind)
    return _word(text, kind)


def is_token(text: str) -> bool:
    """Whether the text stands for "unknown"."""
    return text.lower() in _TOKENS or (text.startswith("[") and text.endswith("]"))


def clean_name(text: str) -> str | None:
    """A name from outside: safe for a screen, without secrets; None where it stands for unknown."""
    name = make_safe(_REDACTOR.text(text), limit=_NAME_LIMIT).strip()
    return None if is_token(name) else name


def normal_bus(text: str) -> str | None:
    """A PCI address in one spelling: ``00000000:65:00.0``, ``0000:65:00.0``, ``GPU0000:65:00.0``."""
    found = _BUS.fullmatch(text.strip())
    if found is None:
        return None
    domain, bus, device, function = found.groups()
    return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function}"


def printed_bus(bus: str) -> str:
    """A normal address as nvidia-smi prints it and takes it for ``-i``: ``00000000:C1:00.0``."""
    return bus.upper().rjust(16, "0")


def _token(text: str) -> Cell:
    if _LOST.search(text):
        return Cell(fault="lost")
    if _RESET.search(text):
        return Cell(fault="reset")
    return UNKNOWN


def _number(text: str, kind: Kind) -> Cell:
    digits, units = _NUMBER[kind]
    unit = next((unit for unit in units if text.endswith(unit)), "")
    bare = text.removesuffix(unit).rstrip() if unit else text
    if digits.fullmatch(bare) is None:
        return GARBAGE
    if kind == "watts":
        return Cell(float(bare.replace(",", ".")), unit=bool(unit))
    number = int(bare)
    if kind == "percent" and number > 100:
        return GARBAGE
    return Cell(number, unit=bool(unit))


def _word(text: str, kind: Kind) -> Cell:
    value: Value | None = None
    match kind:
        case "mask":
            value = reasons_of_mask(int(text, 16)) if _MASK.fullmatch(text) else None
        case "switch":
            value = {"enabled": True, "disabled": False}.get(text.rstrip("*").lower())
        case "active":
            value = {"active": True, "not active": False}.get(text.lower())
        case "pstate":
            value = text if _PSTATE.fullmatch(text) else None
        case "uuid":
            value = text if _UUID.fullmatch(text) else None
        case "bus":
            value = normal_bus(text)
        case _:
            return Cell(clean_name(text))
    return GARBAGE if value is None else Cell(value)
