"""Timing of calls from plain Python, whoever is compared in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

Run = Callable[[], object]

#: Rounds in which all calls of a case are timed in turn.
ROUNDS = 15
#: Seconds that one call is repeated for in a round.
ROUND_S = 0.02


class Figure(NamedTuple):
    """Median over rounds, and half the distance between the quartiles, in us."""

    median_us: float
    spread_us: float


def host(calls: Mapping[str, Run], *, rounds: int = ROUNDS, is_cpu: bool = False) -> dict[str, Figure]:
    """Microseconds of the host per call, calls back to back; the device is waited for between rounds, not in them.

    Where the device takes longer than the host, its queue fills up in the end: so few calls are timed that it does not.
    """
    wait: Callable[[], object] = (lambda: None) if is_cpu else torch.cuda.synchronize
    number = {}
    for name, call in calls.items():
        for _ in range(5):
            call()
        wait()
        start = time.perf_counter()
        for _ in range(5):
            call()
        each = (time.perf_counter() - start) / 5
        wait()
        number[name] = max(3, min(200, int(ROUND_S / max(each, 1e-7))))
    seen: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            wait()
            start = time.perf_counter()
            for _ in range(number[name]):
                call()
            seen[name].append(1e6 * (time.perf_counter() - start) / number[name])
            wait()
    return {name: _figure(values) for name, values in seen.items()}


def cold(calls: Mapping[str, Run], *, rounds: int = 3) -> dict[str, Figure]:
    """Microseconds between two events around a call from Python, each after the L2 was overwritten (`do_bench`)."""
    from triton.testing import do_bench

    seen: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            seen[name].append(1e3 * do_bench(call, warmup=5, rep=30, return_mode="median"))
    return {name: _figure(values) for name, values in seen.items()}


def _figure(values: list[float]) -> Figure:
    if len(values) < 4:
        return Figure(statistics.median(values), (max(values) - min(values)) / 2)
    low, middle, high = statistics.quantiles(values, n=4)
    return Figure(middle, (high - low) / 2)
