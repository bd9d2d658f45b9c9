"""The time that nothing can beat on a GPU: what was timed below it was not timed honestly."""

from __future__ import annotations

import math

from constrint.hwmodels import GpuModel
from constrint.select import KernelSpec, Workload

#: Types whose units' peak rates bound every kernel, whether or not it can use them.
PEAK_DTYPES = ("fp32", "fp16")
#: Least time of anything, in seconds: less than a clock's period.
TICK_S = 1e-10


def floor_s(gpu: GpuModel, dtype: str, moved_bytes: float, operations: float, num_calls: int = 1) -> float:
    """Least time of one of several calls in a row on different inputs.

    Formula: the largest of (all bytes - what the caches may hold) / DRAM bandwidth, all bytes / twice the L2 bandwidth,
    which may read and write at once, and all operations / peak rate, over the calls. The peak rate is that of the
    fastest units. Only an L2 bandwidth that the vendor states counts: others measured less than is possible.

    Args:
        gpu: The GPU.
        dtype: Type of the operands.
        moved_bytes: Bytes that a call has to read and write.
        operations: Operations that a call has to do.
        num_calls: How many calls there are.
    """
    memory = gpu.memory
    # What the last calls wrote may still lie in caches, and what the first ones read may have lain there.
    cached = sum(level.size_bytes or 0 for level in (memory.l2, memory.last_level) if level is not None)
    peak = max(gpu.peak_flop_per_s(kind) or 0.0 for kind in (dtype, *PEAK_DTYPES))
    return max(
        (moved_bytes - 2 * cached / num_calls) / memory.dram.bandwidth_bytes_per_s,
        moved_bytes / 2 / (memory.l2.bandwidth_bytes_per_s or math.inf),
        operations / (peak or math.inf),
        TICK_S,
    )


def impossible(seconds: float, least_s: float, gpu: GpuModel) -> str:
    """Why no call takes such a time; empty where one can. A time that is no number, or not above 0, is none.

    Args:
        seconds: The time that was taken.
        least_s: The least time, of `floor_s`.
        gpu: The GPU.
    """
    if 0 < least_s <= seconds < math.inf:
        return ""
    return (
        f"{1e6 * seconds:.2f} us for a call is less than the {1e6 * least_s:.2f} us that {gpu.name} needs for its "
        "bytes and operations, or no time: the work was not done in the time that was taken."
    )


def implausible(spec: KernelSpec, gpu: GpuModel, workload: Workload, seconds: float) -> str:
    """Why a kernel cannot have taken a time; empty where it can. A default of `moved_bytes` is no fact about it."""
    is_stated = type(spec).moved_bytes is not KernelSpec.moved_bytes
    moved = spec.moved_bytes(workload) if is_stated else 0
    return impossible(seconds, floor_s(gpu, workload.dtype, moved, spec.num_operations(workload)), gpu)
