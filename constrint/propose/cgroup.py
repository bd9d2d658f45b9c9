"""Limits that all processes of a worker keep together, by the kernel: a control group, where this user may make one.

Version 2 alone. Elsewhere, and beside it, a look at the processes ten times a second does the same, later.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
#: Controllers that a group needs.
NEEDED = frozenset({"memory", "pids"})
#: Tasks of a group for each process that it may have: the kernel counts threads as well.
TASKS_PER_PROCESS = 2
#: Longest wait for the processes of a group that were killed, in seconds.
GONE_S = 2.0
_NUMBERS = itertools.count()


class ControlGroup:
    """A group of processes with limits.

    Args:
        folder: Its folder below the mounted tree of groups.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def around(
        pids: Iterable[int], totals: Mapping[str, int], *, root: Path = ROOT, own: Path = OWN
    ) -> ControlGroup | None:
        """A group with these processes, and all that they start; None where no group can be made.

        Args:
            pids: The processes.
            totals: `memory_bytes` and `processes` that the group may have.
            root: Where groups are mounted.
            own: The file that names the group of this process.
        """
        numbers = list(pids)
        for parent in _parents(root, own):
            group = ControlGroup(parent / f"constrint-{os.getpid()}-{next(_NUMBERS)}")
            try:
                group.folder.mkdir()
                group._set("memory.max", totals["memory_bytes"])
                group._set("memory.oom.group", 1)
                group._set("pids.max", TASKS_PER_PROCESS * totals["processes"])
                with suppress(OSError):  # a system without swap has no such file
                    group._set("memory.swap.max", 0)
                for pid in numbers:
                    group._set("cgroup.procs", pid)
            except OSError:
                group.remove()
            else:
                return group
        return None

    def end(self) -> None:
        """Kill all processes of the group."""
        with suppress(OSError):
            self._set("cgroup.kill", 1)

    def remove(self) -> None:
        """Take the group away, as soon as its processes are gone; it stays if they are not after `GONE_S`."""
        until = time.monotonic() + GONE_S
        while self._has_processes() and time.monotonic() < until:
            time.sleep(0.01)
        with suppress(OSError):
            self.folder.rmdir()

    def _has_processes(self) -> bool:
        with suppress(OSError):
            return "populated 1" in (self.folder / "cgroup.events").read_text()
        return False

    def _set(self, name: str, value: int) -> None:
        # A file of the kernel exists before it is written.
        with (self.folder / name).open("r+") as file:
            file.write(str(value))


def _parents(root: Path, own: Path) -> Iterator[Path]:
    """The groups below which one with limits may be made: the parent of this process's group, then that group."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        if line.startswith("0::/"):
            path = root / line.removeprefix("0::/")
            for group in dict.fromkeys((path.parent if path != root else path, path)):
                with suppress(OSError):
                    if set((group / "cgroup.subtree_control").read_text().split()) >= NEEDED:
                        yield group
