"""Waits for events, and limits in work rather than in seconds: on a shared machine a clock says how busy others are."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

Found = TypeVar("Found")
#: Seconds after which a wait for an event gives up: far beyond what the busiest machine takes.
PATIENCE_S = 900.0


def wait_until(holds: Callable[[], Any], what: str, *, pause_s: float = 0.05) -> None:
    """Return once `holds()` is true.

    Raises:
        AssertionError: When that never comes; says `what` was waited for.
    """
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, f"{what}: not after {PATIENCE_S:.0f} s"
        time.sleep(pause_s)


def worked(seconds: float) -> Callable[[], bool]:
    """A condition that becomes true once this process has worked for some seconds of its processors, from now on."""
    end = time.process_time() + seconds
    return lambda: time.process_time() >= end


def when_worked(seconds: float, action: Callable[[], object]) -> threading.Thread:
    """Call `action` in a thread, once this process has worked for some seconds of its processors."""
    is_over = worked(seconds)

    def act() -> None:
        wait_until(is_over, f"{seconds} s of work", pause_s=0.005)
        action()

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def calls_of(action: Callable[[], object]) -> int:
    """How many functions `action` calls, those of Python and those in C."""
    number = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return number


def ticks_beside(work: Callable[[threading.Event], object], number: int) -> int:
    """How often this thread gets to run, up to `number` times, while `work` runs in another until its event is set."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,))
    thread.start()
    ticks = 0
    while ticks < number and thread.is_alive():
        time.sleep(0.001)
        ticks += 1
    is_alive = thread.is_alive()
    stop.set()
    thread.join()
    return ticks if is_alive else -1


def within(limit_s: float, action: Callable[[], Found], *, attempts: int = 4) -> Found:
    """What `action` returned the first time it took less than `limit_s` of this process's processors.

    For limits of time alone, which are kept in seconds: whatever else is to be quick is held against counts of work.
    Other processes may slow one attempt by what they put into caches, and a slow program slows all of them: this fails
    where every attempt took longer.
    """
    took: list[float] = []
    while len(took) < attempts:
        started = time.process_time()
        found = action()
        took.append(time.process_time() - started)
        if took[-1] < limit_s:
            return found
    raise AssertionError(f"took {', '.join(f'{t:.3f}' for t in took)} s; each has to end within {limit_s} s once")
