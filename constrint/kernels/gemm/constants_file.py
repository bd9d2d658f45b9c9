"""A file with the constants of a kernel's cost model: values with what they are and where they are from."""

from __future__ import annotations

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
