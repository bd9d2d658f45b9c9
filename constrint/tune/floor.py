"""The time that nothing can beat on a GPU: what was timed below it was not timed honestly."""

from __future__ import annotations

from constrint.hwmodels import GpuModel
from constrint.select import KernelSpec, Workload


def floor_s(gpu: GpuModel, dtype: str, moved_bytes: float, operations: float, num_calls: int = 1) -> float:
    """Least time of one of several calls in a row on different inputs.

    Formula: the larger of (all bytes - what the caches may hold) / DRAM bandwidth and all operations / peak rate, over
    the calls. The peak rate is that of the fastest units, whether or not the kernel can use them.

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
    moved = max(0.0, num_calls * moved_bytes - 2 * cached)
    peak = max(gpu.peak_flop_per_s(kind) or 0.0 for kind in (dtype, "fp32", "fp16"))
    return max(moved / memory.dram.bandwidth_bytes_per_s / num_calls, operations / peak if peak else 0.0)


def implausible(spec: KernelSpec, gpu: GpuModel, workload: Workload, seconds: float) -> str:
    """Why a kernel cannot have taken a time; empty where it can. A default of `moved_bytes` is no fact about it."""
    is_stated = type(spec).moved_bytes is not KernelSpec.moved_bytes
    moved = spec.moved_bytes(workload) if is_stated else 0
    least = floor_s(gpu, workload.dtype, moved, spec.num_operations(workload))
    if 0 < seconds < float("inf") and seconds >= least:
        return ""
    return (
        f"{1e6 * seconds:.4g} us is no time of this kernel: {gpu.name} needs at least {1e6 * least:.4g} us for its "
        "bytes and operations"
    )
