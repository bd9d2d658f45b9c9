"""Forbidden PTX of a candidate: state that outlives a launch, clocks, hints that hold lines in the L2."""

from __future__ import annotations

import re

#: Forbidden features by the words that show them.
_FORBIDDEN = {
    "a variable in global memory, which would outlive a call": re.compile(r"^\s*(\.[a-z]+\s+)?\.global\b"),
    "a clock": re.compile(r"%(clock|globaltimer)"),
    "what the L2 keeps": re.compile(r"createpolicy|evict_last|applypriority|L2::persist"),
    "a call of what it does not define (printf, malloc, assert)": re.compile(r"^\s*\.extern\s+\.func"),
    "a wait for its own sake": re.compile(r"\bnanosleep\b"),
    "an instruction that ends all": re.compile(r"^\s*(@!?%p\d+\s+)?(trap|brkpt)\b"),
}


def not_allowed(ptx: str) -> tuple[str, ...]:
    """The forbidden features in a text of PTX."""
    lines = ptx.splitlines()
    return tuple(what for what, pattern in _FORBIDDEN.items() if any(pattern.search(line) for line in lines))
