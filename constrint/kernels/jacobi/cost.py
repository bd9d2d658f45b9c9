"""Predicted time of sweeps by either kernel: launches, each of which moves bytes, adds and waits at the same time.

In CUDA C++, per launch: every tile loads its rows, halos included, through the L2; halos across the streaming axis are
those of tiles that run at the same time, and found there; halos along it are read from DRAM again. Sums of halos are
computed anew. Warps issue one instruction a clock and partition; a row of a tile takes at least a latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel, nulls
from constrint.kernels.jacobi.shape import ELEMENT_BYTES, PIECE_BYTES, SUM_BYTES, SweepTile
from constrint.kernels.jacobi.sizes import Grid
from constrint.select.cost import (
    BLOCK_START_S,
    PARTS,
    CostColumns,
    dram_bytes_per_s,
    launch_in_row_s,
    launch_s,
    overlap,
    port_bytes_per_clk,
)

#: Instructions of a warp for one row of a tile beside those of values: counters, addresses, the wait for copies.
ROW_INSTRUCTIONS = 40.0
#: Instructions for copying and storing one piece of a thread, of u and f.
PIECE_INSTRUCTIONS = 22.0
#: Instructions beside sums for one sweep of a row: the place in the ring, and what is kept of a row.
SWEEP_INSTRUCTIONS = 6.0
#: Share of a warp's issue slots that is used where there is work enough.
ISSUE_SHARE = 0.75
#: Clocks from one row of a tile to the next one: reading a ring and storing, each sweep, and a barrier.
ROW_CLK, SWEEP_CLK, BARRIER_CLK = 120.0, 12.0, 60.0
#: Share of the DRAM's rate on the data sheet that a kernel reaches which reads two grids and writes one.
DRAM_SHARE = 0.88
#: Share of the L2 in which grids of the launch before are found.
KEPT_SHARE = 0.6
#: Grids that plain PyTorch moves for a term of a star: it reads the sum and a neighbour, and writes the sum.
TORCH_PASSES = 3
#: Instructions of a warp of Triton's kernel for 32 elements: addresses and masks, and each neighbour.
POINTER_INSTRUCTIONS, NEIGHBOUR_INSTRUCTIONS = 14.0, 4.0
#: Bytes of a sector, the unit in which the L2 is read.
SECTOR_BYTES = 32


def sweep_cost(gpu: GpuModel, grid: Grid, columns: Mapping[str, Any], blocks_per_sm: NDArray[Any]) -> CostColumns:
    """Predicted time of every configuration of the kernel in CUDA C++."""
    v = {name: np.asarray(column, dtype=np.int64) for name, column in columns.items()}
    tile = SweepTile.of(v, grid.dtype, grid.widths, is_3d=grid.is_3d)
    launches = -(-grid.steps // tile.steps)
    element, clock = ELEMENT_BYTES[grid.dtype], nulls.clock_hz(gpu).value
    sms, warp, partitions = gpu.device.sm_count, gpu.sm.warp_size, gpu.sm.num_partitions
    # A configuration without a useful part is refused by a rule; its figures must be finite.
    used_x, used_y = np.maximum(tile.used_x, 1), np.maximum(tile.used_y, 1)
    over_x = tile.tiles(grid.nx, used_x, tile.halo_x)
    over_y = tile.tiles(grid.ny, used_y, tile.halo_y) if grid.is_3d else 1
    chunk = -(-grid.slow // np.minimum(v["chunks"], grid.slow))
    chunks = -(-grid.slow // chunk)
    tiles = grid.batch * over_x * over_y * chunks
    blocks = tiles if grid.is_3d else -(-tiles // tile.groups)
    rows = (chunk + tile.lead).astype(np.float64)
    loaded = chunk + 2.0 * tile.steps * grid.radius * (1 - 1.0 / chunks)
    resident = np.maximum(np.asarray(blocks_per_sm, dtype=np.float64), 1.0)
    warps = tile.threads / warp
    busy = np.minimum(resident, blocks / sms)
    waves = np.where(blocks > sms * resident, np.ceil(blocks / (sms * resident)) * resident * sms / blocks, 1.0)
    # A last wave that is not full runs faster than a full one: half of what it lacks is lost.
    waves = 0.5 + 0.5 * waves

    # DRAM: each grid once, and halos along the streaming axis.
    dram = grid.bytes * (2.0 * loaded / chunk + 1.0)
    l2_bytes = tiles * loaded * tile.width * tile.height * element * 2.0 + grid.bytes
    in_flight = sms * busy * tile.threads * tile.depth * tile.values * element * 2.0
    rate = dram_bytes_per_s(gpu, DRAM_SHARE)
    flight = np.minimum(1.0, in_flight / (rate * gpu.figure("dram_latency_s")))
    memory_s = dram / (rate * np.maximum(flight, 1e-3))
    port_s = l2_bytes / (port_bytes_per_clk(gpu) * clock * np.minimum(sms, np.maximum(blocks, 1)))

    # Instructions of a warp for a row: pieces that are copied, and each sweep's sums, shuffles and loads.
    pieces = tile.values * element / np.minimum(PIECE_BYTES, tile.vector * element)
    wide = SUM_BYTES[grid.dtype] // 4
    sums = tile.values * (grid.terms + 2.0 * tile.lag) * sum_clk(gpu, grid.dtype)
    shuffles = 2.0 * grid.radius * tile.rows * wide
    of_sweep = sums + shuffles + pieces + SWEEP_INSTRUCTIONS + (8.0 * grid.radius if grid.is_3d else 0.0)
    of_row = ROW_INSTRUCTIONS + PIECE_INSTRUCTIONS * pieces + tile.steps * of_sweep
    issue_s = blocks * warps * rows * of_row / (ISSUE_SHARE * sms * partitions * clock) * waves
    issue_s = issue_s / np.minimum(1.0, np.maximum(blocks, 1) * np.minimum(warps, partitions) / (sms * partitions))
    moved = tile.values * tile.threads * element * (4.0 + tile.steps) * rows * blocks
    smem_s = moved / (nulls.smem_bytes_per_clk(gpu).value * clock * sms) * waves
    row_clk = ROW_CLK + SWEEP_CLK * tile.steps + (BARRIER_CLK if grid.is_3d else 0.0)
    latency_s = np.ceil(blocks / (sms * resident)) * rows * row_clk / clock

    of_launch = overlap(memory_s, port_s, issue_s, smem_s, latency_s)
    # Grids that stay in the L2 are read from DRAM once.
    is_kept = 3.0 * grid.bytes <= KEPT_SHARE * nulls.l2_bytes(gpu).value
    later = overlap(port_s, issue_s, smem_s, latency_s) if is_kept else of_launch
    start_s = BLOCK_START_S * np.maximum(np.ceil(blocks / (sms * resident)) - 1, 0)
    seconds = launch_s(gpu) + of_launch + (launches - 1) * (launch_in_row_s(gpu) + later) + launches * start_s
    parts: dict[str, Any] = dict.fromkeys(PARTS, 0.0) | {
        "vector units": launches * issue_s,
        "shared memory": launches * smem_s,
        "L2 port": launches * port_s,
        "latency": launches * latency_s,
        "wave quantisation": launches * issue_s * (1 - 1 / waves),
        "DRAM": (1 if is_kept else launches) * memory_s,
    }
    return CostColumns(np.asarray(seconds, dtype=np.float64), parts)


def sum_clk(gpu: GpuModel, dtype: str) -> float:
    """Issue slots of one multiplication and addition: more than one where the GPU does fewer in fp64."""
    single, double = gpu.vector_flop_per_s("fp32"), gpu.vector_flop_per_s("fp64")
    return single / double if dtype == "fp64" and single and double else 1.0


def pointer_cost(gpu: GpuModel, grid: Grid, columns: Mapping[str, Any], blocks_per_sm: NDArray[Any]) -> CostColumns:
    """Predicted time of every configuration of the kernel in Triton: one launch for each step."""
    v = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
    element, clock = ELEMENT_BYTES[grid.dtype], nulls.clock_hz(gpu).value
    sms, warp, partitions = gpu.device.sm_count, gpu.sm.warp_size, gpu.sm.num_partitions
    height = grid.ny if grid.is_3d else grid.slow
    planes = grid.batch * (grid.slow if grid.is_3d else 1)
    over_x, over_y = np.ceil(grid.nx / v["block_x"]), np.ceil(height / v["block_y"])
    blocks = planes * over_x * over_y
    covered = blocks * v["block_x"] * v["block_y"]
    # Rows of other tiles come from the L2, columns with the sectors in which they lie; neighbours in x are in the L1.
    more = (1 + 2 * grid.radius / v["block_y"]) * (1 + 2 * SECTOR_BYTES / (v["block_x"] * element))
    more = more + (2 * grid.radius if grid.is_3d else 0)
    l2_bytes = covered * element * (more + 2)
    resident = np.maximum(np.asarray(blocks_per_sm, dtype=np.float64), 1.0)
    threads = v["num_warps"] * warp
    in_flight = np.minimum(blocks, sms * resident) * v["block_x"] * v["block_y"] * element * 2
    rate = dram_bytes_per_s(gpu, DRAM_SHARE)
    flight = np.minimum(1.0, in_flight / (rate * gpu.figure("dram_latency_s")))
    memory_s = 3.0 * grid.bytes / (rate * np.maximum(flight, 1e-3))
    port_s = l2_bytes / (port_bytes_per_clk(gpu) * clock * np.minimum(sms, blocks))
    neighbours = grid.terms * (NEIGHBOUR_INSTRUCTIONS + sum_clk(gpu, grid.dtype))
    slots = np.maximum(covered, blocks * threads) / warp * (POINTER_INSTRUCTIONS + neighbours)
    issue_s = slots / (ISSUE_SHARE * np.minimum(sms, blocks) * partitions * clock)
    waves = np.ceil(blocks / (sms * resident))
    latency_s = waves * (gpu.figure("dram_latency_s") + BLOCK_START_S / resident)
    of_launch = overlap(memory_s, port_s, issue_s, latency_s)
    is_kept = 3.0 * grid.bytes <= KEPT_SHARE * nulls.l2_bytes(gpu).value
    later = overlap(port_s, issue_s, latency_s) if is_kept else of_launch
    seconds = launch_s(gpu) + of_launch + (grid.steps - 1) * (launch_in_row_s(gpu) + later)
    parts: dict[str, Any] = dict.fromkeys(PARTS, 0.0) | {
        "vector units": grid.steps * issue_s,
        "L2 port": grid.steps * port_s,
        "latency": grid.steps * latency_s,
        "DRAM": (1 if is_kept else grid.steps) * memory_s,
    }
    return CostColumns(np.asarray(seconds, dtype=np.float64), parts)


def torch_s(gpu: GpuModel, grid: Grid) -> float:
    """Predicted time of plain PyTorch: a kernel for each term, the right side and the result of each step."""
    kernels = grid.terms + 2
    bytes_of_step = grid.bytes * TORCH_PASSES * kernels
    rate = dram_bytes_per_s(gpu, DRAM_SHARE)
    return launch_s(gpu) + grid.steps * (kernels * launch_in_row_s(gpu) + bytes_of_step / rate)
