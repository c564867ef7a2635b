"""Values of the command line with their domains; a value outside is a usage error (exit 2)."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable


def whole(least: int, most: int = 1_000_000) -> Callable[[str], int]:
    """A whole number in [least, most]."""

    def parse(text: str) -> int:
        # int() also takes 1_0, spaces and the digits of other scripts, and refuses the endless.
        if not re.fullmatch("[+-]?[0-9]{1,20}", text):
            raise argparse.ArgumentTypeError(f"{_short(text)} is no whole number")
        value = int(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{value} is not in {least}..{most}")
        return value

    return parse


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")


def seconds(text: str) -> float:
    """A number of seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{_short(text)} is no number of seconds") from None
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{_short(text)} is not a number above 0")
    return value


def whole_list(text: str) -> tuple[int, ...]:
    """``1,4,16``: whole numbers, 1 or more, none twice."""
    parse = whole(1, 100_000)
    values = tuple(parse(part.strip()) for part in text.split(","))
    if len(set(values)) != len(values):
        raise argparse.ArgumentTypeError(f"{_short(text)} names a value twice")
    return values


def candidate_arguments(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """``--steps``, ``--topk`` and ``--draft-tokens``."""
    parser.add_argument(
        "--steps",
        metavar="N",
        type=whole(0),
        required=required,
        help="the speculation depth to set; 0 turns speculation off",
    )
    parser.add_argument(
        "--topk", metavar="T", type=whole(1), help="branches per step (SGLang; left out: kept)"
    )
    parser.add_argument(
        "--draft-tokens",
        metavar="D",
        type=whole(1),
        help="tokens verified per round (SGLang; left out: steps + 1 where topk is 1)",
    )
