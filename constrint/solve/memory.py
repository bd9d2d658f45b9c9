"""How much memory this process may still take: no search should be ended by the system for want of it."""

from __future__ import annotations

import os
import time
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
    """Bytes that a search or a listing may take: half of what the machine, its container and this process have left.

    The other half is for copies on the way, for what uses the answer, and for other processes.
    """
    global _last
    now = time.monotonic()
    if now - _last[0] > _FRESH:
        _last = (now, max(0, min(_of_machine(), _of_group(), _of_process())) // 2)
    return _last[1]


def _read(path: str) -> bytes:
    """The first bytes of a file of the system; quicker than opening it as text."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


def _of_machine() -> int:
    try:
        text = _read("/proc/meminfo")
        return int(text[text.index(b"MemAvailable:") + 13 :].split(None, 1)[0]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return UNKNOWN


def _of_group() -> int:
    for most, used in _GROUPS:
        try:
            return int(_read(most)) - int(_read(used))
        except (OSError, ValueError):
            # No such file, or "max".
            continue
    return UNKNOWN


def _of_process() -> int:
    try:
        text = _read("/proc/self/limits")
        most = text[text.index(b"Max address space") + 17 :].split(None, 1)[0]
        if most == b"unlimited":
            return UNKNOWN
        return int(most) - int(_read("/proc/self/statm").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError, IndexError):
        return UNKNOWN
