"""The predicted time of kernels of which little is known: they stream bytes through DRAM, over some blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from constrint.hwmodels import GpuModel
from constrint.select.cost import BLOCK_START_S, LAUNCH_S, PARTS, CostColumns

#: Bytes of the widest load of one thread, on both vendors' parts.
WIDEST_LOAD_BYTES = 16


def streaming_cost(gpu: GpuModel, moved_bytes: float, threads_per_sm: Any) -> CostColumns:
    """Predict the time of kernels that do little but stream bytes through DRAM.

    By Little's law the bandwidth is reached when the bytes in flight are at least latency x bandwidth. Every resident
    thread is assumed to have one load of 16 bytes in flight.

    Args:
        gpu: The hardware model.
        moved_bytes: Bytes to and from DRAM.
        threads_per_sm: Threads that reside on one SM, per configuration.
    """
    bandwidth = gpu.memory.dram.bandwidth_bytes_per_s
    in_flight = gpu.device.sm_count * np.asarray(threads_per_sm, dtype=np.float64) * WIDEST_LOAD_BYTES
    latency_s = gpu.figure("dram_latency_s")
    share = np.minimum(1.0, np.maximum(in_flight, 1.0) / (bandwidth * latency_s))
    dram_s = np.full_like(share, moved_bytes / bandwidth)
    parts: dict[str, Any] = dict.fromkeys(PARTS, 0.0) | {"DRAM": dram_s, "latency": dram_s / share - dram_s}
    return CostColumns(LAUNCH_S + dram_s / share, parts)


@dataclass(frozen=True)
class GridLoad:
    """What is known of any kernel: what it moves and computes in all, and over how many blocks that is spread.

    Args:
        moved_bytes: Bytes to and from DRAM.
        num_operations: Floating or integer operations, a multiply-add being two; 0 where they are not counted.
        dtype: Type of the operands.
        num_blocks: Blocks of the grid, per configuration.
        threads_per_block: Threads of a block, per configuration.
    """

    moved_bytes: float
    num_operations: float
    dtype: str
    num_blocks: Any
    threads_per_block: Any


def grid_cost(gpu: GpuModel, load: GridLoad, blocks_per_sm: Any) -> CostColumns:
    """Predict the time of a kernel of which no more is known than its load.

    The load is taken to be the same for all blocks. Few blocks leave SMs idle and have few bytes in flight; the last,
    partial wave of blocks takes as long as a whole one; a block in the place of another takes time to start.

    Args:
        gpu: The hardware model.
        load: What the kernel does.
        blocks_per_sm: Blocks that reside on one SM at once, per configuration.
    """
    num_blocks = np.maximum(np.asarray(load.num_blocks, dtype=np.float64), 1.0)
    per_sm = np.asarray(blocks_per_sm, dtype=np.float64)
    at_once = gpu.device.sm_count * per_sm
    resident = np.minimum(num_blocks, at_once)
    streamed = streaming_cost(gpu, load.moved_bytes, resident * load.threads_per_block / gpu.device.sm_count)
    peak = gpu.peak_flop_per_s(load.dtype) if load.num_operations else None
    busy = np.minimum(num_blocks, gpu.device.sm_count) / gpu.device.sm_count
    arithmetic_s = load.num_operations / peak / busy if peak else np.zeros_like(busy)
    work_s = np.maximum(streamed.seconds - LAUNCH_S, arithmetic_s)
    waves = np.ceil(num_blocks / at_once)
    quantisation_s = work_s * np.where(waves > 1, waves * at_once / num_blocks - 1.0, 0.0)
    quantisation_s = quantisation_s + (waves - 1) * BLOCK_START_S / per_sm
    units = "matrix units" if load.dtype in gpu.compute.matrix_flop_per_s else "vector units"
    parts = {**streamed.parts_s, units: arithmetic_s, "wave quantisation": quantisation_s}
    return CostColumns(LAUNCH_S + work_s + quantisation_s, parts)
