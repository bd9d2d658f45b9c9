"""Limits of time in tests, on machines that other processes share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def within(
    limit_s: float, action: Callable[[], Found], *, attempts: int = 4, clock: Callable[[], float] = time.process_time
) -> Found:
    """What `action` returned the first time it took less than `limit_s`.

    A pause of the whole machine lengthens one attempt, and a slow program all of them: this fails where every attempt
    took longer. Seconds are those of this process's processors, unless another clock is given.
    """
    took: list[float] = []
    while len(took) < attempts:
        started = clock()
        found = action()
        took.append(clock() - started)
        if took[-1] < limit_s:
            return found
    raise AssertionError(f"took {', '.join(f'{t:.3f}' for t in took)} s; each has to end within {limit_s} s once")
