"""Reads the constants of a kernel's cost model from JSON: each with its value, meaning and source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec


class ConstantEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One constant.

    Args:
        value: The value in use.
        assumed: The value before any time was fitted.
        what: Its meaning, with its unit.
        source: Where the value comes from.
    """

    value: float
    assumed: float
    what: str
    source: str


class ConstantsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole file; `measured` names the results that the values were fitted to and is empty before the first fit."""

    device: str
    measured: str
    note: str
    constants: dict[str, ConstantEntry]


Values = TypeVar("Values")


def read_constants(kind: type[Values], file: Path, *, assumed: bool = False) -> Values:
    """Read a file into a dataclass with the field `measured` and one field for each constant.

    Args:
        kind: The dataclass.
        file: The JSON file.
        assumed: Take the assumed values, from which a fit starts; `measured` is empty then.
    """
    read = msgspec.json.decode(file.read_bytes(), type=ConstantsFile)
    values = {name: entry.assumed if assumed else entry.value for name, entry in read.constants.items()}
    make: Callable[..., Values] = kind
    return make(measured="" if assumed else read.measured, **values)
