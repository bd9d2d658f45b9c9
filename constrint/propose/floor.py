"""The time that nothing can beat on a named GPU: a candidate that was timed below it was not timed honestly."""

from __future__ import annotations

from constrint.hwmodels import GpuModel
from constrint.propose.operands import Sizes
from constrint.propose.task import Task


def floor_s(task: Task, sizes: Sizes, dtype: str, gpu: GpuModel, num_calls: int = 1) -> float:
    """Least time of one of several calls in a row on different inputs.

    Formula: the larger of (all bytes - what the caches may hold) / DRAM bandwidth and all operations / peak rate, over
    the calls. The peak rate is that of the fastest units, whether or not the task can use them.

    Args:
        task: The task.
        sizes: The sizes.
        dtype: Type of the operands.
        gpu: The GPU.
        num_calls: How many calls there are.
    """
    memory = gpu.memory
    # What the last calls wrote may still lie in caches, and what the first ones read may have lain there.
    cached = sum(level.size_bytes or 0 for level in (memory.l2, memory.last_level) if level is not None)
    moved = max(0.0, num_calls * task.moved_bytes(sizes, dtype) - 2 * cached)
    peaks = [gpu.peak_flop_per_s(kind) or 0.0 for kind in (dtype, "fp32", "fp16")]
    return max(moved / memory.dram.bandwidth_bytes_per_s / num_calls, task.flops(sizes) / max(peaks))
