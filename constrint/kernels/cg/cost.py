"""Predicted time of conjugate gradients: bytes of an iteration, what the chip holds of them, and two barriers.

A star moves eight vectors in an iteration: r and p read, p written, x read and written; then p and r read, r written.
A matrix in CSR moves itself and nine vectors: q is written and read, and p is not read again. Rows that shared memory
holds save r's three (those within the halo of a block's ends are written all the same) or q's two, and x's two.
Gathered elements of p and r count once: neighbours come from the caches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel, assumed
from constrint.kernels.cg.shape import (
    REGISTER_BYTES,
    REGISTERS_PER_SM,
    ROW_STEP,
    System,
    boxes_of,
    elements_at_once,
    most_blocks,
    registers_of,
)
from constrint.select.cost import CostColumns, dram_bytes_per_s, launch_s, overlap
from constrint.select.spec import Columns

#: Vectors that an iteration moves: of a star, and of a matrix in CSR beside the matrix.
STAR_WORDS, CSR_WORDS, JACOBI_WORDS = 8, 9, 2
#: Vectors of an iteration by a product and three kernels.
PLAIN_WORDS = 13
#: Share of the data sheet's bandwidth that streams reach.
DRAM_SHARE = 0.86
#: Share of the L2 that holds what an iteration reads again, and its rate over the DRAM's: assumed.
L2_SHARE, L2_OVER_DRAM = 0.6, 1.6
#: Rows away up to which a star's neighbours come from the L1: assumed.
L1_ROWS = 2048
#: Seconds of a barrier of the grid with its sums: two trips to the L2 and the part of a block. Measured on an H200: an
#: iteration of a system of 4,096 rows takes 1.9 us (`python -m benchmarks.conjugate`).
BARRIER_S = 0.9e-6
#: Instructions of a thread for its rows of a star beside each other, for each line that it reads and each element; and
#: of a row of a matrix in CSR, and each of its elements. Counted in compiled kernels.
GROUP_INSTRUCTIONS, LINE_INSTRUCTIONS, POINT_INSTRUCTIONS = 170.0, 31.0, 5.3
ROW_INSTRUCTIONS, ELEMENT_INSTRUCTIONS = 50.0, 8.0
#: Share of the issue slots that is reached.
ISSUE_SHARE = 0.5
#: Warps of an SM with which it is: fewer wait for their own results. Assumed.
ENOUGH_WARPS = 16
#: Slowdown for each register that the launch bounds do not give.
SPILL_SHARE = 0.02
#: Latency of a load under load, over that of a load alone: a star of 2048 x 2048 in fp64 took 69 us an iteration on an
#: H200 with two rows of two at once (`python -m benchmarks.conjugate`), where bytes and instructions take 44 each.
LOADED_LATENCY = 2.0
#: Loads of vectors that a thread has in flight for each row that it loads at once.
LOADS_AT_ONCE = 3.0


def compulsory_words(system: System) -> int:
    """Vectors that an iteration moves where the chip holds none."""
    if system.star is not None:
        return STAR_WORDS
    return CSR_WORDS + (JACOBI_WORDS if system.jacobi else 0)


def matrix_bytes(system: System) -> int:
    """Bytes of a stored matrix; 0 for a star."""
    if system.star is not None:
        return 0
    return system.nnz * (system.element + system.column_bytes) + (system.rows + 1) * system.row_bytes


def iteration_bytes(system: System) -> int:
    """Bytes that an iteration moves where the chip holds no vector."""
    return compulsory_words(system) * system.rows * system.element + matrix_bytes(system)


def first_bytes(system: System) -> int:
    """Bytes of the matrix, of b and of x, each moved once in a solve."""
    return matrix_bytes(system) + 2 * system.rows * system.element


def bytes_beyond_chip(gpu: GpuModel, system: System) -> float:
    """Bytes that an iteration moves even if x, r and p and the matrix fill registers, shared memory and L2 first."""
    state = 3 * system.rows * system.element
    sms = gpu.device.sm_count * (gpu.sm.max_smem_bytes_per_block + REGISTERS_PER_SM * REGISTER_BYTES)
    chip = sms + (gpu.memory.l2.size_bytes or 0)
    return 2.0 * max(0, state - chip) + max(0, matrix_bytes(system) - max(0, chip - state))


def rows_of_blocks(gpu: GpuModel, system: System, columns: Columns) -> tuple[Any, Any]:
    """Blocks of the grid, and the most rows of one, per configuration."""
    most = np.maximum(1, most_blocks(system.rows, gpu.device.sm_count, columns))
    per_block = np.ceil(system.rows / most / ROW_STEP) * ROW_STEP
    blocks = np.ceil(system.rows / per_block)
    if system.star is None:
        return blocks, per_block
    planes = np.asarray(columns["planes"])
    boxes_z, boxes_y, lines = boxes_of(system.star, np.maximum(1, planes), most)
    in_boxes = planes > 0
    rows = planes * lines * system.star.extents[2]
    return np.where(in_boxes, boxes_z * boxes_y, blocks), np.where(in_boxes, rows, per_block)


def outer_share(system: System, planes: Any, per_block: Any) -> Any:
    """Share of a block's rows that other blocks read."""
    star = system.star
    if star is None:
        return 1.0
    linear = np.minimum(1.0, 2.0 * star.halo / per_block)
    reach_z, reach_y = (max(abs(line[axis]) for line in star.lines) for axis in (0, 1))
    deep = np.maximum(1, planes)
    lines = per_block / deep / star.extents[2]
    inner = np.maximum(0, deep - 2 * reach_z) * np.maximum(0.0, lines - 2 * reach_y) / (deep * lines)
    return np.where(planes > 0, 1.0 - inner, linear)


def shared_words(system: System, kept: Any, outer: Any, per_block: Any) -> Any:
    """Vectors of rows in shared memory that an iteration does not move, as a share of all rows times words."""
    held = np.minimum(1.0, kept / per_block)
    return 2.0 * held if system.star is None else (3.0 - outer) * held


def gathered_words(system: System, outer: Any) -> Any:
    """Vectors that the L2 gives beside those, for lines that a star reads too far away for the L1."""
    if system.star is None:
        return 0.0
    _, ny, nx = system.star.extents
    far = sum(1 for z, y in system.star.lines if (z or y) and abs(z * ny + y) * nx > L1_ROWS)
    return 2.0 * far + outer


def cg_cost(
    gpu: GpuModel, system: System, iterations: int, columns: Columns, blocks_per_sm: NDArray[Any]
) -> CostColumns:
    """Predicted time of a launch of a number of iterations, per configuration."""
    names = ("threads", "blocks_per_sm", "unroll", "vector")
    threads, per_sm, unroll, vector = (np.asarray(columns[name], float) for name in names)
    sms = gpu.device.sm_count
    blocks, per_block = rows_of_blocks(gpu, system, columns)
    busy = np.minimum(1.0, system.rows / (per_block * per_sm * sms))
    kept_x = np.minimum(1.0, np.asarray(columns["kept_x"], float) / per_block)
    outer = outer_share(system, np.asarray(columns["planes"]), per_block)
    kept = np.asarray(columns["kept_rows"], float)
    saved = shared_words(system, kept, outer, per_block) + 2.0 * kept_x
    words = compulsory_words(system) - saved
    moved = words * system.rows * system.element + matrix_bytes(system)
    gathered = gathered_words(system, outer) * system.rows * system.element
    # What two halves of an iteration and the next one share stays in the L2 if it fits.
    vectors = 4.0 + (2.0 if system.star is None else 0.0) - saved / 2.0
    footprint = vectors * system.rows * system.element + matrix_bytes(system)
    l2_bytes = L2_SHARE * (gpu.memory.l2.size_bytes or 1)
    hits = np.clip(2.0 - footprint / l2_bytes, 0.0, 1.0)
    rate = dram_bytes_per_s(gpu, DRAM_SHARE)
    dram_s, l2_s = moved * (1.0 - hits) / rate, (moved + gathered) / (rate * L2_OVER_DRAM)
    of_matrix = 0
    if system.star is None:
        of_matrix = elements_at_once(system) * (system.element + system.column_bytes)
    in_flight = blocks * threads * (unroll * vector * LOADS_AT_ONCE * system.element + of_matrix)
    needed = rate * LOADED_LATENCY * gpu.figure("dram_latency_s")
    share = 1.0 / np.sqrt(1.0 + np.square(needed / in_flight))
    memory_s = np.maximum(dram_s, l2_s)
    waited_s = memory_s * (1.0 / share - 1.0)
    warps = np.minimum(1.0, threads * per_sm / gpu.sm.warp_size / ENOUGH_WARPS)
    issue_s = _issue_s(gpu, system, columns) / busy / np.sqrt(warps)
    allowed = REGISTERS_PER_SM / (threads * per_sm)
    spilled = np.maximum(0.0, registers_of(system, {k: np.asarray(c, float) for k, c in columns.items()}) - allowed)
    issue_s = issue_s * (1.0 + SPILL_SHARE * spilled)
    waited_s = waited_s + memory_s * SPILL_SHARE * spilled
    barrier_s = 2.0 * BARRIER_S * (1.0 + 0.1 * (per_sm - 1.0))
    step_s = overlap(dram_s + waited_s, l2_s, issue_s) + barrier_s
    parts = {
        "DRAM": iterations * dram_s,
        "L2": iterations * l2_s,
        "latency": iterations * waited_s,
        "instruction issue": iterations * issue_s,
        "barriers": iterations * barrier_s,
    }
    return CostColumns(launch_s(gpu) + iterations * step_s, parts)


def _issue_s(gpu: GpuModel, system: System, columns: Columns) -> Any:
    """Seconds in which the SMs issue the instructions of an iteration; lanes without an element count as others."""
    if system.star is not None:
        vector = np.asarray(columns["vector"], float)
        group = GROUP_INSTRUCTIONS + LINE_INSTRUCTIONS * len(system.star.lines)
        steps: Any = system.rows * (group / vector + POINT_INSTRUCTIONS * len(system.star.coefficients))
    else:
        lanes = np.asarray(columns["lanes"], float)
        mean = system.nnz / system.rows
        turns = np.ceil(mean / lanes) * lanes + 4.0 * lanes * np.log2(2.0 * lanes) / 2.0
        # Lanes of one row read elements beside each other; rows of lanes of their own lie a row's length apart.
        apart = np.minimum(np.maximum(mean / lanes, 1.0), 8.0)
        steps = system.rows * (ROW_INSTRUCTIONS + ELEMENT_INSTRUCTIONS * turns * (0.5 + 0.5 * apart / 2.0))
    per_s = gpu.device.sm_count * gpu.sm.num_partitions * gpu.sm.warp_size * ISSUE_SHARE
    clock = float(assumed.clock_hz(gpu).value)
    return steps / (per_s * clock)
