"""Why a block cannot be launched at all: the limits that it breaks, each with what was asked and the most there is."""

from __future__ import annotations

from typing import Any

from constrint.hwmodels.occupancy.inputs import KernelUse
from constrint.hwmodels.occupancy.limits import Occupancy
from constrint.hwmodels.schema import GpuModel
from constrint.hwmodels.vendors.interface import BlockLimit


def broken_limits(gpu: GpuModel, result: Occupancy, **asked: Any) -> list[BlockLimit]:
    """The limits that a block breaks where not one fits an SM; none where one does.

    Args:
        gpu: The hardware model.
        result: The occupancy, of scalar inputs.
        asked: The arguments of `occupancy` that it was computed from, all but `gpu`.
    """
    if result.blocks_per_sm:
        return []
    options: dict[str, Any] = {"lds_granularity_bytes": None, **asked, "sgprs_per_wave": asked["sgprs_per_wave"] or 0}
    limits = gpu.maker.block_limits(gpu, KernelUse(**options))
    broken = [limit for limit in limits if limit.asked > limit.most]
    if broken:
        return broken
    return [_warps_that_fit(gpu, result, asked)]


def _warps_that_fit(gpu: GpuModel, result: Occupancy, asked: dict[str, Any]) -> BlockLimit:
    """Each figure alone is allowed, but not as many warps of so many registers."""
    file, wave = gpu.register_file, asked["wave_size"] or gpu.sm.warp_size
    warps = -(-asked["threads_per_block"] // wave)
    each = result.registers_per_block // (warps * wave)
    fit = file.capacity * gpu.sm.warp_size // (each * file.per_thread * wave)
    most = fit * gpu.sm.num_partitions * (2 if asked["wgp_mode"] else 1)
    return BlockLimit("threads_per_block", f"{gpu.terms.warps} of {each} registers a thread", warps, most)


def sentence(limit: BlockLimit) -> str:
    """`1,025 threads, the limit is 1,024`."""
    return f"{limit.asked:,} {limit.unit}, the limit is {limit.most:,}"
