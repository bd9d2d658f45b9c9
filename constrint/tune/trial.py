"""What is tried on a device and what came of it: rows of a file that every process maps.

A process that hangs or dies so loses the trial it was at, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from constrint.select import KernelSpec, Workload

#: Finds a kernel by its full name; it has to be importable in another process (`registry.load_spec` is).
Load = Callable[[str], KernelSpec]


@dataclass(frozen=True)
class Trial:
    """A configuration of a kernel for a workload.

    Args:
        kernel: The kernel's full name, `gemm.pointer`.
        workload: What it computes.
        config: A value for each of the kernel's parameters.
        is_final: Whether it is timed again with the best of its workload, however slow it is.
    """

    kernel: str
    workload: Workload
    config: dict[str, int]
    is_final: bool = False


class Outcome(IntEnum):
    """What came of a trial."""

    NOT_RUN = 0
    OK = 1
    COMPILE_FAILED = 2
    LAUNCH_FAILED = 3
    WRONG_RESULT = 4
    TIMED_OUT = 5
    CRASHED = 6


#: What is known of a trial; times are in seconds, nan where they were not measured.
FIGURES = ("error_over_bound", "cold_s", "spread_s", "warm_s", "again_s", "baseline_cold_s", "baseline_warm_s")
RESULT = np.dtype([("outcome", np.uint8), *((name, np.float64) for name in FIGURES)])


def open_results(folder: Path, num: int, *, is_new: bool = False) -> Any:
    """Map the results of `num` trials, an array of `RESULT`."""
    results = np.memmap(folder / "results", RESULT, "w+" if is_new else "r+", shape=(max(1, num),))
    if is_new:
        for name in FIGURES:
            results[name] = np.nan
    return results


def write_trials(path: Path, trials: Sequence[Trial]) -> None:
    """Write trials as JSON."""
    path.write_bytes(msgspec.json.encode(trials))


def read_trials(path: Path) -> list[Trial]:
    """Read what `write_trials` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=list[Trial])
