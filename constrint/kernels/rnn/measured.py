"""Times of layers between measured ones: along the logarithms of units and batch, and of steps; nothing beyond them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from math import exp, log
from typing import NamedTuple

#: Seconds by steps, batch and units.
Points = dict[int, dict[int, dict[int, float]]]


def add_point(points: Points, time: int, batch: int, dim: int, seconds: float) -> None:
    """Add a measured layer."""
    points.setdefault(time, {}).setdefault(batch, {})[dim] = seconds


class Between(NamedTuple):
    """What measured layers say of another one.

    Args:
        seconds: Time of so many of its steps.
        steps: As many as it has, or the most that were measured if it has more.
    """

    seconds: float
    steps: int


def between(points: Points, time: int, batch: int, dim: int) -> Between | None:
    """Seconds of a layer of `time` steps among measured ones; None outside of them, but for more steps."""
    by_time = dict(_defined((t, _at(by_batch, batch, dim)) for t, by_batch in points.items()))
    if not by_time:
        return None
    steps = min(time, max(by_time))
    seconds = along(by_time, steps)
    return None if seconds is None else Between(seconds, steps)


def _at(by_batch: dict[int, dict[int, float]], batch: int, dim: int) -> float | None:
    return along(dict(_defined((b, along(by_dim, dim)) for b, by_dim in by_batch.items())), batch)


def _defined(pairs: Iterator[tuple[int, float | None]]) -> Iterator[tuple[int, float]]:
    return ((size, seconds) for size, seconds in pairs if seconds is not None)


def along(points: Mapping[int, float], at: int) -> float | None:
    """The value at one size, along the logarithms of its neighbours' sizes and values; None outside of them."""
    if at in points:
        return points[at]
    sizes = sorted(points)
    place = bisect_left(sizes, at)
    if place in (0, len(sizes)):
        return None
    low, high = sizes[place - 1], sizes[place]
    share = log(at / low) / log(high / low)
    return exp((1 - share) * log(points[low]) + share * log(points[high]))
