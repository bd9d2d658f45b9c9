"""How much memory this process may still take: no search should be ended by the system for want of it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

#: Where nothing is known, or nothing limits.
UNKNOWN: Final = 1 << 62
# Seconds for which an answer is good.
_FRESH: Final = 0.5
_GROUPS: Final = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
_last: tuple[float, int] = (float("-inf"), UNKNOWN)


def available_bytes() -> int:
    """Bytes that can be taken before the machine, its container or a limit of this process has none left."""
    global _last
    now = time.monotonic()
    if now - _last[0] > _FRESH:
        _last = (now, max(0, min(_of_machine(), _of_group(), _of_process())))
    return _last[1]


def _of_machine() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return UNKNOWN


def _of_group() -> int:
    for most, used in _GROUPS:
        try:
            return int(Path(most).read_text()) - int(Path(used).read_text())
        except (OSError, ValueError):
            # No such file, or "max".
            continue
    return UNKNOWN


def _of_process() -> int:
    try:
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most == resource.RLIM_INFINITY:
            return UNKNOWN
        return most - int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, AttributeError, OSError, ValueError, IndexError):
        return UNKNOWN
