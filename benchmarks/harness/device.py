"""The device that a program measures on. Needs torch."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

import torch

from constrint.hwmodels import GpuModel
from constrint.kernels.launch.device import gpu_of
from constrint.select.spec import Launch


def gpu_here() -> GpuModel:
    """The hardware model of this machine's GPU.

    Raises:
        SystemExit: When there is none.
    """
    gpu = gpu_of(torch.device("cuda"))
    if gpu is None:
        raise SystemExit("there is no hardware model of this device")
    return gpu


def median_ms(launches: Iterable[Launch], rounds: int, uncounted: int) -> float:
    """Median milliseconds of some launches, one after the other, of `rounds` runs after some that do not count."""
    launches, times = list(launches), []
    for _ in range(uncounted + rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        for launch in launches:
            launch.run()
        end.record()
        end.synchronize()
        times.append(float(begin.elapsed_time(end)))
    return statistics.median(times[uncounted:])
