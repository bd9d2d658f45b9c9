"""Predicted time of sweeps by either kernel: launches, each of which moves bytes, adds and waits at the same time.

In CUDA C++, per launch: every tile loads its rows, halos included, through the L2; halos across the streaming axis are
those of tiles that run at the same time, and most are found there; halos along it are read from DRAM again. Sums of
halos are computed anew. A row of a tile takes the instructions of all warps of a partition, what shared memory needs
for all blocks of an SM, or the latency of its own instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel, assumed
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

#: Instructions of a warp for one row (or plane) of a tile beside those of values: counters, addresses, waits. Counted.
ROW_INSTRUCTIONS = 30.0
#: Instructions for copying, reading and storing one piece of a thread. Counted.
PIECE_INSTRUCTIONS = 24.0
#: Instructions of one sweep of a row beside sums, shuffles and loads: the place in the ring. Counted.
SWEEP_INSTRUCTIONS = 5.0
#: Instructions of a warp a clock and partition where there is work enough. Fitted.
ISSUE_RATE = 0.569
#: Clocks between rows of one warp: some, and a share for each instruction, which waits for others. Fitted.
ROW_CLK, INSTRUCTION_CLK = 10.0, 2.948
#: Clocks of a barrier among warps that share a plane. Fitted.
BARRIER_CLK = 660.0
#: Bytes of shared memory that a shuffle of one register takes the place of, per lane. Fitted.
SHUFFLE_BYTES = 7.7
#: Share of shared memory's rate that is reached. Fitted.
SMEM_SHARE = 1.0
#: Share of the DRAM's rate on the data sheet that a kernel reaches which reads two grids and writes one. Measured.
DRAM_SHARE = 0.797
#: Share of halos across the streaming axis that the L2 has lost before another tile reads them. Fitted.
LOST_SHARE = 0.003
#: Latencies that a copy under way takes where the DRAM is busy. Fitted.
LATENCIES = 1.215
#: Share of the L2 in which grids of the launch before are found.
KEPT_SHARE = 0.6
#: Grids that plain PyTorch moves for a term of a star: it reads the sum and a neighbour, and writes the sum.
TORCH_PASSES = 3
#: Instructions of a warp of Triton's kernel for 32 elements: addresses and masks, and each neighbour.
POINTER_INSTRUCTIONS, NEIGHBOUR_INSTRUCTIONS = 14.0, 4.0
#: Elements of a thread of Triton's kernel from which on it takes longer, and the exponent by which: a block loads all
#: its elements before it stores the first. Fitted to two launches (8192 x 8192 fp32 on an H200): 4 elements a thread,
#: 212 us; 32 of them, 351 us.
FREE_ELEMENTS, ELEMENTS_EXPONENT = 4.0, 0.25
#: Bytes of a sector, the unit in which the L2 is read, and of a line, which tiles should not share.
SECTOR_BYTES, LINE_BYTES = 32, 128
#: Exponent by which the time grows with the parts into which tiles tear lines of whole rows. Assumed.
PART_OF_LINE = 0.25


def sweep_cost(gpu: GpuModel, grid: Grid, columns: Mapping[str, Any], blocks_per_sm: NDArray[Any]) -> CostColumns:
    """Predicted time of every configuration of the kernel in CUDA C++."""
    v = {name: np.asarray(column, dtype=np.int64) for name, column in columns.items()}
    tile = SweepTile.of(v, grid.dtype, grid.widths, is_3d=grid.is_3d, aligned=grid.is_aligned)
    launches = -(-grid.steps // tile.steps)
    element, clock = ELEMENT_BYTES[grid.dtype], assumed.clock_hz(gpu).value
    sms = gpu.device.sm_count
    # A configuration without a useful part is refused by a rule; its figures must be finite.
    over_x = tile.tiles(grid.nx, np.maximum(tile.used_x, 1), tile.halo_x)
    over_y = tile.tiles(grid.ny, np.maximum(tile.used_y, 1), tile.halo_y) if grid.is_3d else 1
    chunk = -(-grid.slow // np.minimum(v["chunks"], grid.slow))
    chunks = -(-grid.slow // chunk)
    tiles = grid.batch * over_x * over_y * chunks
    blocks = np.asarray(tiles if grid.is_3d else -(-tiles // tile.groups), dtype=np.float64)
    rows = (chunk + tile.lead).astype(np.float64)
    resident = np.maximum(np.asarray(blocks_per_sm, dtype=np.float64), 1.0)
    row = _RowWork(gpu, grid, tile)

    # SMs: whole waves, and one that is not full.
    full = np.floor(blocks / (sms * resident))
    left = np.ceil((blocks - full * sms * resident) / sms)
    row_clk, left_clk = row.clk(resident), np.where(left > 0, row.clk(np.maximum(left, 1.0)), 0.0)
    sm_s = rows * (full * row_clk + left_clk) / clock + (full + (left > 0) - 1) * BLOCK_START_S
    share = np.minimum(1.0, blocks / (sms * resident))  # of the slots of a wave
    waves = np.maximum(blocks / (sms * resident), share)

    # DRAM: each grid once, and halos along the streaming axis. The L2: halos of all kinds.
    loaded = chunk + 2.0 * tile.steps * grid.radius * (1 - 1.0 / chunks)
    inside = np.minimum(tile.width * over_x, grid.nx + 2.0 * tile.halo_x * (over_x - 1))
    if grid.is_3d:
        inside = inside * np.minimum(tile.height * over_y, grid.ny + 2.0 * tile.halo_y * (over_y - 1))
    reads = grid.batch * chunks * loaded * inside * element * 2.0
    # One step reads a sector on either side of each row of a tile instead of a halo.
    height = grid.ny if grid.is_3d else 1
    beside = 2.0 * SECTOR_BYTES * over_x * height * grid.batch * chunks * loaded
    reads = reads + np.where((tile.steps == 1) & grid.is_aligned, beside, 0.0)
    own = 2.0 * grid.bytes * loaded / chunk
    dram = own + LOST_SHARE * np.maximum(reads - own, 0.0) + grid.bytes
    # Lanes whose elements are wider than a piece leave gaps between the pieces that are loaded together.
    gaps = np.maximum(1.0, tile.vector * element / PIECE_BYTES)
    l2_bytes = (reads + grid.bytes) * gaps
    busy = np.minimum(resident, blocks / sms)
    in_flight = sms * busy * tile.threads * tile.depth * tile.values * element * 2.0
    rate = dram_bytes_per_s(gpu, DRAM_SHARE)
    flight = np.minimum(1.0, in_flight / (rate * LATENCIES * gpu.figure("dram_latency_s")))
    torn = np.maximum(1.0, LINE_BYTES / (tile.width * element)) ** PART_OF_LINE
    memory_s = dram * (0.5 + 0.5 * gaps) * torn / (rate * np.maximum(flight, 1e-3))
    port_s = l2_bytes / (port_bytes_per_clk(gpu) * clock * np.minimum(sms, np.maximum(blocks, 1)))

    of_launch = overlap(memory_s, port_s, sm_s)
    # Grids that stay in the L2 are read from DRAM once.
    is_kept = 3.0 * grid.bytes <= KEPT_SHARE * assumed.l2_bytes(gpu).value
    later = overlap(port_s, sm_s) if is_kept else of_launch
    seconds = launch_s(gpu) + of_launch + (launches - 1) * (launch_in_row_s(gpu) + later)
    unit_s = launches * waves * rows / clock
    parts: dict[str, Any] = dict.fromkeys(PARTS, 0.0) | {
        "vector units": unit_s * row.issue_clk(resident),
        "shared memory": unit_s * row.smem_clk(resident),
        "L2 port": launches * port_s,
        "latency": unit_s * row.latency_clk,
        "wave quantisation": launches * np.maximum(sm_s - waves * rows * row_clk / clock, 0.0),
        "DRAM": (1 if is_kept else launches) * memory_s,
    }
    return CostColumns(np.asarray(seconds, dtype=np.float64), parts)


class _RowWork:
    """Clocks that blocks of an SM take for one row (or plane) of their tiles, per configuration."""

    def __init__(self, gpu: GpuModel, grid: Grid, tile: SweepTile) -> None:
        element, words = ELEMENT_BYTES[grid.dtype], SUM_BYTES[grid.dtype] // 4
        pieces = tile.values / tile.per_piece
        sums = tile.values * (grid.terms + 2.0 * tile.lag) * sum_clk(gpu, grid.dtype)
        shuffles = 2.0 * grid.radius * tile.rows * words
        shown = 4.0 * grid.radius if grid.is_3d else 0.0
        of_sweep = sums + shuffles + pieces + shown + SWEEP_INSTRUCTIONS
        self.instructions = ROW_INSTRUCTIONS + PIECE_INSTRUCTIONS * pieces + tile.steps * of_sweep
        self.warps = tile.threads / gpu.sm.warp_size
        self.partitions = gpu.sm.num_partitions
        edges = shown * tile.vector * 4 * words
        of_thread = tile.values * element * (3.0 + tile.steps) + tile.steps * (edges + SHUFFLE_BYTES * shuffles)
        self.smem_bytes = of_thread * tile.threads
        self.smem_rate = SMEM_SHARE * assumed.smem_bytes_per_clk(gpu).value
        self.latency_clk = ROW_CLK + INSTRUCTION_CLK * self.instructions + (BARRIER_CLK if grid.is_3d else 0.0)

    def issue_clk(self, resident: Any) -> Any:
        """Clocks of issuing instructions, where so few or many blocks are resident on an SM."""
        return np.ceil(resident * self.warps / self.partitions) * self.instructions / ISSUE_RATE

    def smem_clk(self, resident: Any) -> Any:
        """Clocks of shared memory, likewise."""
        return resident * self.smem_bytes / self.smem_rate

    def clk(self, resident: Any) -> Any:
        """Clocks of all of it, likewise."""
        return overlap(self.issue_clk(resident), self.smem_clk(resident), self.latency_clk)


def sum_clk(gpu: GpuModel, dtype: str) -> float:
    """Issue slots of one multiplication and addition: more than one where the GPU does fewer in fp64."""
    single, double = gpu.vector_flop_per_s("fp32"), gpu.vector_flop_per_s("fp64")
    return single / double if dtype == "fp64" and single and double else 1.0


def pointer_cost(gpu: GpuModel, grid: Grid, columns: Mapping[str, Any], blocks_per_sm: NDArray[Any]) -> CostColumns:
    """Predicted time of every configuration of the kernel in Triton: one launch for each step."""
    v = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
    element, clock = ELEMENT_BYTES[grid.dtype], assumed.clock_hz(gpu).value
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
    held = np.maximum(1.0, v["block_x"] * v["block_y"] / (threads * FREE_ELEMENTS)) ** ELEMENTS_EXPONENT
    memory_s = 3.0 * grid.bytes * held / (rate * np.maximum(flight, 1e-3))
    port_s = l2_bytes / (port_bytes_per_clk(gpu) * clock * np.minimum(sms, blocks))
    neighbours = grid.terms * (NEIGHBOUR_INSTRUCTIONS + sum_clk(gpu, grid.dtype))
    slots = np.maximum(covered, blocks * threads) / warp * (POINTER_INSTRUCTIONS + neighbours)
    issue_s = slots / (ISSUE_RATE * np.minimum(sms, blocks) * partitions * clock)
    waves = np.ceil(blocks / (sms * resident))
    latency_s = waves * (gpu.figure("dram_latency_s") + BLOCK_START_S / resident)
    of_launch = overlap(memory_s, port_s, issue_s, latency_s)
    is_kept = 3.0 * grid.bytes <= KEPT_SHARE * assumed.l2_bytes(gpu).value
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
