"""Where on the roofline a configuration lies: bound by memory, by arithmetic, or by waiting for either."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from constrint.propose.records import Zone

#: The parts of cost models that are arithmetic, and those that are bytes; whatever else there is, is waited for.
_COMPUTE: Final = frozenset({"matrix units", "vector units", "special functions"})
_MEMORY: Final = frozenset({"shared memory", "L2 port", "L2", "last-level cache", "DRAM"})


def zone_of_part(part: str) -> Zone:
    """The zone of a part of a predicted time."""
    if part in _COMPUTE:
        return "compute"
    return "memory" if part in _MEMORY else "latency"


def bound_by(parts_s: Mapping[str, float]) -> str:
    """The largest part of a predicted time; empty where the model names none."""
    return max(parts_s, key=lambda name: parts_s[name]) if parts_s else ""
