"""The device that a program measures on, and times of calls on it. Needs torch.

`cold`, `loop` and `host` take calls of several callers, who take turns; `median_ms` takes launches.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping

import torch

from constrint.hwmodels import GpuModel
from constrint.kernels.launch.device import gpu_of
from constrint.select.spec import Launch

Run = Callable[[], object]
#: Rounds of calls between events, calls of a loop, and rounds of loops.
COLD_ROUNDS, LOOP_CALLS, LOOP_ROUNDS = 21, 20, 7
#: Bytes that are overwritten so that no operand stays in the L2.
FLUSHED = 1 << 28
#: Half of the distance of the quartiles, as a share of the median, beyond which a measurement is made again; and how
#: often it is made at most. A machine that others use, too, stops the host for longer than the L2 takes to overwrite.
DISTURBED, ATTEMPTS = 0.15, 3
#: Clocks of the device's pause before each call, in which the host gets ahead of it: over a millisecond, several times
#: what the host takes for a forward and a backward pass, 0.2 to 0.4 ms where these were measured.
PAUSE_CLK = 2_400_000

#: Types by the names that workloads have for them.
DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16}
#: Bytes that `copy_bytes_per_s` reads, and copies of which it takes the median.
COPIED, COPIES = 1 << 30, 9

Figures = dict[str, tuple[float, float]]


def gpu_here() -> GpuModel:
    """The hardware model of this machine's GPU.

    Raises:
        SystemExit: When there is none.
    """
    gpu = gpu_of(torch.device("cuda"))
    if gpu is None:
        raise SystemExit("there is no hardware model of this device")
    return gpu


def quiet(measure: Callable[[], Figures]) -> Figures:
    """The quietest of up to `ATTEMPTS` measurements: as soon as one is not disturbed no other is made."""
    seen: list[tuple[float, Figures]] = []
    while len(seen) < ATTEMPTS:
        figures = measure()
        seen.append((max(spread / median for median, spread in figures.values()), figures))
        if seen[-1][0] <= DISTURBED:
            break
    return min(seen, key=lambda one: one[0])[1]


def cold(calls: Mapping[str, Run], flush: Run) -> Figures:
    """Median and spread in us of calls between events, each after the L2 was overwritten; everyone in turn."""
    pause: Callable[[int], None] = torch.cuda._sleep
    seen: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {who: [] for who in calls}
    for _ in range(COLD_ROUNDS):
        for who, call in calls.items():
            start, end = events()
            pause(PAUSE_CLK)
            flush()
            start.record()
            call()
            end.record()
            seen[who].append((start, end))
    torch.cuda.synchronize()
    return {who: _figure([1e3 * a.elapsed_time(b) for a, b in pairs]) for who, pairs in seen.items()}


def loop(calls: Mapping[str, Run]) -> Figures:
    """Median and spread in us per call of calls back to back; everyone in turn."""
    seen: dict[str, list[float]] = {who: [] for who in calls}
    for _ in range(LOOP_ROUNDS):
        for who, call in calls.items():
            start, end = events()
            torch.cuda.synchronize()
            start.record()
            for _ in range(LOOP_CALLS):
                call()
            end.record()
            torch.cuda.synchronize()
            seen[who].append(1e3 * start.elapsed_time(end) / LOOP_CALLS)
    return {who: _figure(values) for who, values in seen.items()}


def host(calls: Mapping[str, Run]) -> Figures:
    """Median and spread in us that a call takes the host, with an idle device; everyone in turn."""
    seen: dict[str, list[float]] = {who: [] for who in calls}
    for _ in range(LOOP_ROUNDS):
        for who, call in calls.items():
            torch.cuda.synchronize()
            before = time.perf_counter()
            for _ in range(LOOP_CALLS):
                call()
            seen[who].append(1e6 * (time.perf_counter() - before) / LOOP_CALLS)
    torch.cuda.synchronize()
    return {who: _figure(values) for who, values in seen.items()}


def median_ms(launches: Iterable[Launch], rounds: int, uncounted: int) -> float:
    """Median milliseconds of some launches, one after the other, of `rounds` runs after some that do not count."""
    launches, times = list(launches), []
    for _ in range(uncounted + rounds):
        begin, end = events()
        begin.record()
        for launch in launches:
            launch.run()
        end.record()
        end.synchronize()
        times.append(float(begin.elapsed_time(end)))
    return statistics.median(times[uncounted:])


def copy_bytes_per_s() -> float:
    """Bytes per second of a large copy, read and written."""
    source, target = (torch.empty(COPIED, dtype=torch.int8, device="cuda") for _ in range(2))
    times: list[float] = []
    for _ in range(COPIES):
        begin, end = events()
        begin.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        times.append(1e-3 * begin.elapsed_time(end))
    return 2 * COPIED / statistics.median(times)


def events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    """Two events that take times."""
    new: Callable[..., torch.cuda.Event] = torch.cuda.Event
    return new(enable_timing=True), new(enable_timing=True)


def _figure(values: list[float]) -> tuple[float, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return middle, (high - low) / 2
