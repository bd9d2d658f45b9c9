"""The options that bound a command: `--max-seconds` and `--max-memory`."""

from __future__ import annotations

import math
import re
from typing import Annotated, Final

import typer

from constrint.errors import UsageError

MaxSeconds = Annotated[
    str | None,
    typer.Option(
        "--max-seconds", metavar="SECONDS", help="Stop after this time and say what is known by then; like Ctrl-C."
    ),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        help="Memory for tables, such as 2GB or 512MiB; half of what is free if left out.",
    ),
]

_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}{end}": 1000**power for power, letter in enumerate("kmgt", 1) for end in ("", "b")},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def seconds_of(text: str | None) -> float | None:
    """The time that `--max-seconds` states, in seconds; None for no limit."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(f"--max-seconds takes a number of seconds above 0, such as 2.5, got {text!r}.")
    return seconds


def bytes_of(text: str | None) -> int | None:
    """The memory that `--max-memory` states, in bytes; None for no limit.

    GB is 10^9 bytes and GiB is 2^30; a number without a unit is bytes.
    """
    if text is None:
        return None
    match = _SIZE.fullmatch(text)
    unit = None if match is None else _UNITS.get(match[2].lower())
    if match is None or unit is None or float(match[1]) * unit < 1:
        raise UsageError(f"--max-memory takes a size above 0, such as 2GB, 512MiB or 100000000, got {text!r}.")
    return int(float(match[1]) * unit)
