"""NVIDIA occupancy, equal to cuda_occupancy.h of CUDA 13.0 on every input that the header takes.

Registers are given out per warp inside the SM's sub-partitions, shared memory from one of a few legal
carve-outs, and named barriers last. The header's own text was read, not copied.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UsageError
from constrint.hwmodels.occupancy.inputs import KernelUse
from constrint.hwmodels.occupancy.limits import UNLIMITED, Limits
from constrint.hwmodels.vendors.nvidia.sm import NvidiaSm

#: The header's own limit; hardware and PTX stop at 255.
HEADER_MAX_REGISTERS = 256


def limits(name: str, sm: NvidiaSm, kernel: KernelUse) -> Limits:
    """Blocks per SM that each resource allows.

    Raises:
        UsageError: When `wave_size` is not the size of a warp.
    """
    if kernel.wave_size not in (None, *sm.warp_sizes):
        raise UsageError(f"wave_size = {kernel.wave_size}: a warp of {name} has {sm.warp_size} threads.")
    warps = -(-kernel.threads_per_block // sm.warp_size)
    by_registers, registers_per_block = _registers(sm, kernel.registers_per_thread, warps)
    by_smem, smem_bytes_per_block = _smem(sm, kernel)
    return Limits(
        warps=np.where(kernel.threads_per_block > sm.max_threads_per_block, 0, sm.max_warps_per_sm // warps),
        registers=by_registers,
        smem=by_smem,
        blocks=np.int64(sm.max_blocks_per_sm),
        barriers=_barriers(sm, kernel.barriers_per_block),
        warps_per_block=warps,
        registers_per_block=registers_per_block,
        smem_bytes_per_block=smem_bytes_per_block,
        max_warps_per_sm=sm.max_warps_per_sm,
    )


def _registers(sm: NvidiaSm, registers: Any, warps: Any) -> tuple[Any, Any]:
    """Warps fit the partitions one by one: floor per partition, then per SM, then per block."""
    unit = sm.register_alloc_granularity_registers_per_warp
    per_warp = -(-registers * sm.warp_size // unit) * unit
    per_block = per_warp * warps
    # The header checks a block as if its warps came in multiples of the allocation granularity.
    assumed = per_warp * (-(-warps // sm.warp_alloc_granularity_warps) * sm.warp_alloc_granularity_warps)
    warps_per_sm = sm.registers_per_partition // np.maximum(per_warp, 1) * sm.num_partitions
    too_many = (assumed > sm.max_registers_per_block) | (registers > HEADER_MAX_REGISTERS)
    return np.where(too_many, 0, np.where(per_warp == 0, UNLIMITED, warps_per_sm // warps)), per_block


def _smem(sm: NvidiaSm, kernel: KernelUse) -> tuple[Any, Any]:
    """Blocks in the carve-out: the preferred one, or the smallest that holds a block at all."""
    unit = sm.smem_alloc_granularity_bytes
    reserved = sm.smem_reserved_bytes_per_block
    used = -(-(kernel.smem_bytes_per_block + reserved) // unit) * unit
    allowed = sm.max_smem_bytes_per_block if kernel.smem_opt_in else sm.max_smem_bytes_per_block_without_opt_in
    carveouts = _as_array(sm.smem_carveouts_bytes)
    percent = kernel.carveout_percent
    preferred = np.where(percent < 0, sm.smem_bytes_per_sm, percent * sm.smem_bytes_per_sm // 100)
    legal = np.searchsorted(carveouts, np.maximum(preferred, used))
    pool = carveouts[np.minimum(legal, len(carveouts) - 1)]
    blocks = np.where(used == 0, UNLIMITED, pool // np.maximum(used, 1))
    return np.where(used > allowed + reserved, 0, blocks), used


@functools.cache
def _as_array(values: tuple[int, ...]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _barriers(sm: NvidiaSm, barriers: Any) -> Any:
    if sm.max_barriers_per_sm is None:
        return np.int64(UNLIMITED)
    return np.where(barriers == 0, UNLIMITED, sm.max_barriers_per_sm // np.maximum(barriers, 1))
