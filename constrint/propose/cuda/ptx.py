"""What the PTX of a candidate says of it: state that outlives a launch, clocks, hints that keep lines in the L2."""

from __future__ import annotations

import re

#: What no kernel may have, by the words that show it.
_FOUND = {
    "a variable in global memory, which would outlive a call": re.compile(r"^\s*(\.[a-z]+\s+)?\.global\b"),
    "a clock": re.compile(r"%(clock|globaltimer)"),
    "what the L2 keeps": re.compile(r"createpolicy|evict_last|applypriority|L2::persist"),
    "a call of what it does not define (printf, malloc, assert)": re.compile(r"^\s*\.extern\s+\.func"),
    "a wait for its own sake": re.compile(r"\bnanosleep\b"),
    "an instruction that ends all": re.compile(r"^\s*(@!?%p\d+\s+)?(trap|brkpt)\b"),
}


def not_allowed(ptx: str) -> tuple[str, ...]:
    """What of it no kernel may have, in words."""
    lines = ptx.splitlines()
    return tuple(what for what, pattern in _FOUND.items() if any(pattern.search(line) for line in lines))
