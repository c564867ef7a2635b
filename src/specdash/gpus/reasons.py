"""Why clocks are held back: nvidia-smi's bitmask and its names for the bits.

The names are those of the query fields ``clocks_event_reasons.*``; ``gpu_idle`` is among them
although nothing is held back then (nvml.h, nvmlClocksEventReason*).
"""

from __future__ import annotations

BITS: tuple[tuple[int, str], ...] = (
    (0x001, "gpu_idle"),
    (0x002, "applications_clocks_setting"),
    (0x004, "sw_power_cap"),
    (0x008, "hw_slowdown"),
    (0x010, "sync_boost"),
    (0x020, "sw_thermal_slowdown"),
    (0x040, "hw_thermal_slowdown"),
    (0x080, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
)
_NAMES = frozenset(name for _, name in BITS)
_ALIASES = {
    "idle": "gpu_idle",
    "display_clocks_setting": "display_clock_setting",
    "hw_power_braking": "hw_power_brake_slowdown",
}
_HARMLESS = frozenset({"gpu_idle", "applications_clocks_setting", "display_clock_setting"})


def reasons_of_mask(mask: int) -> tuple[str, ...]:
    """The names of the bits that are set; a bit without a name is given as ``bit_0x...``."""
    names = [name for bit, name in BITS if mask & bit]
    rest = mask & ~sum(bit for bit, _ in BITS)
    while rest:
        bit = rest & -rest
        names.append(f"bit_{bit:#x}")
        rest ^= bit
    return tuple(names)


def reason_name(label: str) -> str | None:
    """The name for ``SW Power Cap`` (-q) or ``sw_power_cap`` (XML, CSV); None if it is none."""
    slug = label.strip().lower().replace(" ", "_")
    slug = _ALIASES.get(slug, slug)
    return slug if slug in _NAMES else None


def in_order(names: set[str]) -> tuple[str, ...]:
    """Names in the order of their bits."""
    return tuple(name for _, name in BITS if name in names)


def is_throttled(reasons: tuple[str, ...]) -> bool:
    """Whether the clocks are held back by power or heat (an idle GPU is not throttled)."""
    return any(name not in _HARMLESS for name in reasons)
