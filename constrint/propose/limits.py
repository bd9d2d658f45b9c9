"""Limits that a worker puts on itself before it loads a candidate; from then on the system enforces them."""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Mapping
from contextlib import suppress

from constrint.tune.keeper import descendants, is_larger

#: Users without rights, one of whom a worker becomes that was started as root: those that systemd draws from.
DYNAMIC_USERS = range(61184, 65520)

_NAMES = {
    "cpu_s": resource.RLIMIT_CPU,
    "memory_bytes": resource.RLIMIT_AS,
    "file_bytes": resource.RLIMIT_FSIZE,
    "processes": resource.RLIMIT_NPROC,
    "files": resource.RLIMIT_NOFILE,
    "core_bytes": resource.RLIMIT_CORE,
}


def apply(limits: Mapping[str, int]) -> None:
    """Set each limit, soft and hard; one that is already lower stays.

    Raises:
        OSError, ValueError: When the system refuses.
    """
    for name, limit in limits.items():
        kind = _NAMES[name]
        _, hard = resource.getrlimit(kind)
        value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (value, value))


def drop_root() -> None:
    """Become a user without rights, for good; the kernel holds root to no limit of processes.

    Each worker draws a user of its own, so that the processes of one do not count for another.

    Raises:
        OSError: When the system refuses.
    """
    user = random.SystemRandom().choice(DYNAMIC_USERS)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def num_tasks_of_user() -> int:
    """Processes and threads that the user of this process has; the limit of processes counts them together."""
    total, user = 0, os.getuid()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == user:
                total += len(os.listdir(f"/proc/{name}/task"))
    return total


def exceeded(root: int, totals: Mapping[str, int]) -> str:
    """The limit that all processes below one exceed together, in words; empty where they keep all."""
    most = totals["memory_bytes"]
    if is_larger(root, most):
        return f"it took more than {most / 2**30:g} GiB of memory, in all its processes"
    number = sum(1 for _ in descendants(root))
    return f"it started {number} processes" if number > totals["processes"] else ""
