"""Processes that end with all that they have started: `keep` runs work in a child, and stays behind to end the rest.

A candidate may fork, and what it forks may leave its group and its session. On Linux an orphan goes to the nearest
ancestor that asks for orphans, so the keeper finds everything in the tree below itself. It runs nothing of a candidate.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
#: Time in which a killed process has to be gone, in seconds; one that a driver holds may stay.
END_S = 10.0
#: Time that waiting for a processor adds to a time limit at most, in limits.
MOST_DELAY = 4.0


def keep(work: Callable[[], None]) -> None:
    """Run `work` in a child; then end all that it started, and exit as it did. Never returns.

    SIGTERM, and the end of the process that started this one, end all of it at once.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the user's process decides
    # What runs at a fork would swallow the exception of the handler.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.signal(signal.SIGTERM, _end)
    control(PR_SET_CHILD_SUBREAPER, 1)
    parent, code = os.getpid(), 1
    die_with_parent(signal.SIGTERM)
    try:
        child = os.fork()
        if child == 0:
            _work(work, parent)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                break
    except SystemExit:
        pass
    finally:
        end_tree(os.getpid())
        # A signal as shells tell it: raised here, it might leave a core file.
        os._exit(128 - code if code < 0 else code)


def _work(work: Callable[[], None], parent: int) -> None:
    """Do the work of a child, in a session of its own: it may end all of its group."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        die_with_parent()
        if os.getppid() == parent:
            work()
            code = 0
    except Exception:  # noqa: BLE001 - the process prints it, and ends
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(code)


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)


def end_tree(root: int) -> None:
    """End all processes below this process, which is not ended itself, and wait for them."""
    until = time.monotonic() + END_S
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            # What was forked meanwhile comes to light when its parent is gone.
            for pid in descendants(root):
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(0.001)


def descendants(root: int) -> Iterator[int]:
    """All processes below a process; none where the system does not tell."""
    with suppress(OSError):
        for path in Path(f"/proc/{root}/task").iterdir():
            for child in (path / "children").read_text(encoding="ascii").split():
                yield int(child)
                yield from descendants(int(child))


def is_larger(root: int, most: int) -> bool:
    """Whether the processes below one take more memory together than `most`, in bytes."""
    below = list(descendants(root))
    page = os.sysconf("SC_PAGE_SIZE")
    quick = sum(page * _number(f"/proc/{pid}/statm", r"\d+ (\d+)") for pid in below)
    # Pages that several of them share count once, which takes longer to find out.
    return quick > most and sum(1024 * _number(f"/proc/{pid}/smaps_rollup", r"^Pss: *(\d+)") for pid in below) > most


def delays_of(root: int) -> dict[int, float]:
    """Seconds that each thread of the processes below one has waited for a processor; none where the system is silent.

    A thread that sleeps, or that waits for a device or a lock, waits for no processor.
    """
    found = {}
    for pid in descendants(root):
        with suppress(OSError, ValueError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                found[int(thread.name)] = 1e-9 * _number(f"{thread}/schedstat", r"\d+ (\d+)")
    return found


def longest_wait(before: dict[int, float], after: dict[int, float]) -> float:
    """The longest time that a thread has waited for a processor between two results of `delays_of`, in seconds."""
    return max((delay - before.get(thread, 0.0) for thread, delay in after.items()), default=0.0)


def _number(path: str, pattern: str) -> int:
    """A number of a file of the system; 0 where there is none."""
    with suppress(OSError):
        found = re.search(pattern, Path(path).read_text(encoding="ascii"), re.MULTILINE)
        return int(found[1]) if found else 0
    return 0


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Send this process a signal when the one that started it ends, where the system can do so."""
    control(PR_SET_PDEATHSIG, number)


def control(option: int, value: int) -> None:
    """Set an attribute of this process, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
