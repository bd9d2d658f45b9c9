"""A file with the constants of a kernel's cost model: values with what they are and where they are from."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One constant: its value, what was assumed before times were fitted, what it is, and where that is from."""

    value: float
    assumed: float
    what: str
    source: str


class ConstantsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file; `measured` names the results that the values rest on, and is empty while there are none."""

    device: str
    measured: str
    note: str
    constants: dict[str, Entry]


def read_values(file: Path, *, assumed: bool) -> tuple[str, dict[str, float]]:
    """What a file's values rest on, and the values by name; or what was assumed for them, which rests on nothing."""
    read = msgspec.json.decode(file.read_bytes(), type=ConstantsFile)
    values = {name: entry.assumed if assumed else entry.value for name, entry in read.constants.items()}
    return "" if assumed else read.measured, values
