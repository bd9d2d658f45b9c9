"""A trial on a device, and its possible outcomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from constrint.select import KernelSpec, Workload

#: Finds a kernel by its full name; it has to be importable in another process (`registry.load_spec` is).
Load = Callable[[str], KernelSpec]


@dataclass(frozen=True)
class Trial:
    """A configuration of a kernel for a workload.

    Args:
        kernel: The kernel's full name, `gemm.pointer`.
        workload: The workload.
        config: A value for each of the kernel's parameters.
        is_final: Whether it is timed again with the best of its workload, however slow it is.
        seed: Seed of the random inputs of its check; None for the engine's.
    """

    kernel: str
    workload: Workload
    config: dict[str, int]
    is_final: bool = False
    seed: int | None = None


class Outcome(IntEnum):
    """The outcome of a trial."""

    NOT_RUN = 0
    OK = 1
    COMPILE_FAILED = 2
    LAUNCH_FAILED = 3
    WRONG_RESULT = 4
    TIMED_OUT = 5
    CRASHED = 6
    IMPLAUSIBLE = 7
