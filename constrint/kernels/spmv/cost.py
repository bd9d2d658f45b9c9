"""Predicted times of products with a sparse matrix: bytes from memory, sectors of x from the L2, lengths of rows.

A matrix is known by its sizes, its longest row, the spread of its rows' lengths, how scattered its columns are (the
sectors of x of 32 bytes that 4,096 successive entries touch, as a share of these entries) and how far a row spans.
Entries stream from DRAM; x comes from the L2, as many sectors as the entries touch, unless it fits an L1. The constants
below are fitted to times of 15 matrices on one H200, or are estimates where these do not tell:
`python -m benchmarks.sparse.candidates` measures, `python -m benchmarks.sparse.fit` fits, and says how the model
chooses for matrices that were left out. A trial of the first products corrects a choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel, assumed
from constrint.select.cost import PARTS, CostColumns, dram_bytes_per_s, launch_s, overlap
from constrint.select.spec import Columns
from constrint.select.workload import ELEMENT_BYTES, Workload

#: Bytes of a sector, the unit of traffic between L2 and L1, and of a line, which an L1 gives room to.
SECTOR_BYTES, LINE_BYTES = 32, 128
#: Bytes of an index, and of one that counts from the first column of a row.
INDEX_BYTES, NEAR_BYTES = 4, 2
#: Sectors that an SM takes from the L2 in a clock when the addresses of a warp are scattered.
SECTORS_PER_CLK = 0.685
#: Share of an SM's shared memory and L1 that holds x, where it fits.
L1_SHARE = 0.5
#: Share of the data sheet's DRAM rate that streams of entries reach.
DRAM_SHARE = 0.88
#: Bytes that a thread has in flight: a vector of columns and one of values.
FLIGHT_BYTES = 24.0
#: Shares of the rate of streams that the kernels reach: a thread for each row, groups of threads, tiles in shared
#: memory, panels. Fitted, like clocks and seconds below, to the H200's times in
#: benchmarks/results/h200/spmv_candidates.csv (`python -m benchmarks.sparse.fit`).
SERIAL_SHARE, GROUP_SHARE, MERGE_SHARE, PANEL_SHARE, ELL_SHARE = 1.0, 0.616, 0.785, 1.0, 0.847
#: Seconds of a step of the longest row's loop in a group of threads whose column and element of x are in the L1, and
#: those that a step takes beyond where all of a group's entries are new sectors.
STEP_S, MISS_S = 0.1e-6, 1.0e-6
#: Seconds from the first block's offsets to the last one's sums in which a full GPU does not stream.
CHAIN_S = 3.8e-6
#: Clocks of an SM for a slot (an entry, or none where the row ends) of a thread that adds whole rows, and of one of a
#: group; for a step of such a thread, whatever the number of its rows; for a thread's part in the sum of a row.
SERIAL_CLK, SLOT_CLK, STEP_CLK, SUM_CLK = 0.479, 0.004, 0.736, 0.54
#: Shares of an SM's shared memory and L1, and of the L2, that keep what a step leaves of lines for the next one, and
#: sectors that the DRAM reads for one that was lost.
L1_KEPT, L2_KEPT, LOST_SECTORS = 0.472, 0.56, 2.93
#: Clocks of an SM for a slot of sliced ELL, the share by which each doubling of a thread's entries makes them more, and
#: seconds of a step of a block.
ELL_CLK, ELL_DEEP, ELL_STEP_S = 0.44, 0.167, 0.15e-6
#: Clocks of an SM for an entry that is copied to shared memory, and for one that is added from there, and for a row;
#: factors of products in the order of entries, of rows of uneven lengths, and of each doubling of warps from four.
MERGE_CLK, MERGE_ROW_CLK, MERGE_ORDER, MERGE_UNEVEN, MERGE_WARPS = 0.256, 0.002, 1.24, 2.08, 1.09
#: The same from tiles.
MERGE_S = 5.9e-6
#: Clocks of an SM for an entry of a run, for a run, and for a row's sum of runs; seconds to load the first panel; the
#: factor of the clocks where half as many warps work.
RUN_CLK, OF_RUN_CLK, OF_ROW_CLK, PANEL_S, FEW_WARPS = 0.377, 1.02, 1.92, 7.9e-6, 1.01
#: Rows of few patterns: clocks of an SM for an entry and for a row; seconds of a warp for a group of 32 rows, which
#: waits for x, and for each entry of a row of it.
PATTERN_CLK, PATTERN_ROW_CLK, PATTERN_GROUP_S, PATTERN_ENTRY_S = 0.317, 0.814, 1.0e-6, 0.0386e-6
#: Threads of an SM whose copies fill the memory's latency.
FULL_THREADS = 4096.0
#: Bytes of the number of a row's pattern.
PATTERN_BYTES = 1
#: Seconds of a further launch behind the first one.
NEXT_LAUNCH_S = 2.2e-6
#: Seconds of a tile's barriers and latencies that other tiles of the SM do not hide.
TILE_S = 0.25e-6
#: Share of the rate of streams that the library reaches, bytes that a row takes it beyond its offset and its element of
#: y, and seconds of its first launches.
LIBRARY_SHARE, LIBRARY_ROW_BYTES, LIBRARY_S = 0.74, 20, 12.6e-6


@dataclass(frozen=True)
class SparseShape:
    """A sparse matrix by the numbers that decide about times.

    Args:
        rows, columns, entries: Sizes.
        element: Bytes of a value.
        longest: Entries of the longest row.
        spread: Standard deviation of the lengths of rows over their mean.
        scattered: Sectors of x for each entry.
        width: Columns of x.
        span: Columns from the first to the last one of a row, at most.
        patterns: Patterns of rows: distances of columns from the row, in order; 0: too many, or unknown.
    """

    rows: int
    columns: int
    entries: int
    element: int
    longest: int
    spread: float
    scattered: float
    width: int
    span: int
    patterns: int = 0

    @staticmethod
    def of(workload: Workload) -> SparseShape:
        """The shape of a workload; the longest row is at least as long as the mean."""
        sizes, options = workload.sizes, workload.options
        mean = -(-sizes["nnz"] // sizes["rows"])
        return SparseShape(
            rows=sizes["rows"],
            columns=sizes["cols"],
            entries=sizes["nnz"],
            element=ELEMENT_BYTES[workload.dtype],
            longest=min(max(mean, options.get("longest", 0)), sizes["nnz"]),
            spread=options.get("spread", 0) / 100,
            scattered=options.get("scattered", 100) / 100,
            width=options.get("width", 1),
            span=min(options.get("span", 0) or sizes["cols"], sizes["cols"]),
            patterns=options.get("patterns", 0),
        )

    @property
    def mean(self) -> float:
        """Mean length of a row."""
        return self.entries / self.rows

    @property
    def vector_bytes(self) -> int:
        """Bytes of x and y."""
        return self.element * self.width * (self.rows + self.columns)

    @property
    def moved_bytes(self) -> int:
        """Least traffic with memory: entries, offsets of rows, x and y, each once."""
        return self.entries * (self.element + INDEX_BYTES) + INDEX_BYTES * (self.rows + 1) + self.vector_bytes

    def gathered_bytes(self, gpu: GpuModel) -> float:
        """Bytes of x between L2 and L1s."""
        each = max(SECTOR_BYTES, -(-self.element * self.width // SECTOR_BYTES) * SECTOR_BYTES)
        x_bytes = self.element * self.width * self.columns
        if x_bytes <= L1_SHARE * gpu.sm.max_smem_bytes_per_block:
            return min(self.entries * self.scattered * each, float(x_bytes) * gpu.device.sm_count)
        return self.entries * self.scattered * each

    def missed_bytes(self, gpu: GpuModel) -> float:
        """Bytes of x from DRAM beyond its first read: the share of x that the L2 does not hold."""
        x_bytes = self.element * self.width * self.columns
        held = 0.5 * assumed.l2_bytes(gpu).value
        return self.gathered_bytes(gpu) * max(0.0, 1.0 - held / x_bytes) if self.scattered > SCATTERED else 0.0


def most_of_tile(size: Any, mean: float, spread: float) -> tuple[Any, Any]:
    """Entries (without those that the last row has beyond the tile) and rows that a tile of `size` items has at most.

    Where lengths of rows are alike, all tiles have about the same; else a tile may be full of entries, and the number
    of rows is an estimate.
    """
    is_even = spread < EVEN
    percent = min(100, int(110 * mean / (1 + mean)) + 1) if is_even else 100
    return size * percent // 100, size // max(1, int(1 + mean * (0.9 if is_even else 0.5)))


#: Spread of lengths, as a share of the mean, below which all tiles have about as many rows.
EVEN = 0.2
#: Warps of a full block.
MOST_WARPS = 32
#: Sectors for each entry below which an L2 need not hold x: entries of rows near by find them there.
SCATTERED = 0.3


def sectors_per_s(gpu: GpuModel) -> float:
    """Sectors that all SMs take from the L2 in a second where addresses are scattered."""
    return SECTORS_PER_CLK * _clock_hz(gpu) * gpu.device.sm_count


def _clock_hz(gpu: GpuModel) -> float:
    return assumed.clock_hz(gpu).value


def _cost(
    gpu: GpuModel,
    dram_bytes: Any,
    l2_bytes: Any,
    threads_per_sm: Any,
    *,
    extra_s: Any = 0.0,
    issue_s: Any = 0.0,
    tail_s: Any = 0.0,
) -> CostColumns:
    """The time of traffic, of instructions, and of the longest chain, which work at the same time."""
    rate = dram_bytes_per_s(gpu, DRAM_SHARE)
    flight = gpu.device.sm_count * np.asarray(threads_per_sm, dtype=np.float64) * FLIGHT_BYTES
    share = np.minimum(1.0, flight / (rate * gpu.figure("dram_latency_s")))
    dram_s = dram_bytes / rate
    l2_s = l2_bytes / (SECTOR_BYTES * sectors_per_s(gpu)) + 0.0 * share
    seconds = launch_s(gpu) + overlap(dram_s / share, l2_s, issue_s, tail_s) + extra_s
    parts: dict[str, Any] = dict.fromkeys(PARTS, 0.0)
    parts |= {"DRAM": dram_s, "L2": l2_s, "latency": dram_s / share - dram_s, "load issue": issue_s}
    parts |= {"wave quantisation": tail_s}
    return CostColumns(np.asarray(seconds, dtype=np.float64), parts)


def _threads(columns: Columns, blocks_per_sm: NDArray[Any], blocks: Any, gpu: GpuModel) -> Any:
    """Threads that reside on an SM, of a grid that may be small."""
    at_once = np.minimum(np.asarray(blocks_per_sm, dtype=np.float64), np.asarray(blocks) / gpu.device.sm_count)
    return np.maximum(at_once, 1.0 / gpu.device.sm_count) * columns["num_warps"] * gpu.sm.warp_size


def _filled(gpu: GpuModel, blocks: Any, blocks_per_sm: NDArray[Any]) -> Any:
    """Share of the GPU that a grid fills at once, up to 1: how much of a full device's start and end it sees."""
    at_once = gpu.device.sm_count * np.maximum(np.asarray(blocks_per_sm, dtype=np.float64), 1.0)
    return np.minimum(1.0, np.asarray(blocks) / at_once)


def near_cost(gpu: GpuModel, shape: SparseShape, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
    """Groups of threads with columns of 16 bits, and the first column of each row."""
    return vector_cost(gpu, shape, columns, blocks_per_sm, NEAR_BYTES, INDEX_BYTES * shape.rows)


def vector_cost(
    gpu: GpuModel,
    shape: SparseShape,
    columns: Columns,
    blocks_per_sm: NDArray[Any],
    index: int = INDEX_BYTES,
    more_bytes: int = 0,
) -> CostColumns:
    """Groups of threads: idle threads of short rows, lines that are lost between steps, and the longest row.

    Args:
        gpu: The hardware model.
        shape: The matrix.
        columns: The configurations.
        blocks_per_sm: Blocks of each that reside on an SM.
        index: Bytes of a column.
        more_bytes: Bytes that are read beside entries, offsets and vectors.
    """
    rows, lanes = columns["rows_per_block"], columns["threads_per_row"]
    blocks = np.ceil(shape.rows / rows)
    # A block takes as many steps as its longest row; lengths beyond the mean grow with the rows of a block.
    beyond = 1.0 + shape.spread * np.sqrt(2.0 * np.log(np.maximum(rows, 2)))
    block_longest = np.minimum(np.maximum(shape.mean * beyond, 1.0), max(shape.longest, 1))
    steps = np.ceil(block_longest / lanes)
    held = np.maximum(rows * lanes / (columns["num_warps"] * gpu.sm.warp_size), 1.0)
    clk = steps * np.where(lanes > 1, SLOT_CLK * shape.width + STEP_CLK / held, SERIAL_CLK * shape.width)
    clk = (clk + SUM_CLK) * lanes * shape.rows
    issue_s = clk / (_clock_hz(gpu) * gpu.device.sm_count)
    streamed = shape.entries * (shape.element + index)
    touched = sum(_touched(lanes, size) for size in (shape.element, index)) * shape.entries
    touched = np.maximum(touched, streamed)
    # A step takes a part of a line of each row; other rows' lines may take its place before the next step.
    line = sum(np.minimum(float(LINE_BYTES), shape.mean * size) for size in (shape.element, index))
    resident = np.minimum(np.asarray(blocks_per_sm, dtype=np.float64), blocks / gpu.device.sm_count) * rows
    kept = L1_KEPT * gpu.sm.max_smem_bytes_per_block, L2_KEPT * assumed.l2_bytes(gpu).value / gpu.device.sm_count
    lost, lost_twice = (np.where(steps > 1, np.maximum(0.0, 1.0 - of / (line * resident)), 0.0) for of in kept)
    l2 = shape.gathered_bytes(gpu) + streamed + (touched - streamed) * lost
    missed = np.minimum(1.0, lanes * INDEX_BYTES / SECTOR_BYTES)
    tail_s = np.ceil(max(shape.longest, 1) / lanes) * (STEP_S + MISS_S * missed)
    threads = _threads(columns, blocks_per_sm, blocks, gpu)
    share = np.where(lanes > 1, GROUP_SHARE, SERIAL_SHARE)
    dram = shape.moved_bytes + shape.missed_bytes(gpu) - shape.entries * (INDEX_BYTES - index) + more_bytes
    dram = dram + (LOST_SECTORS * touched - streamed) * lost_twice
    extra_s = CHAIN_S * _filled(gpu, blocks, blocks_per_sm)
    return _cost(gpu, dram / share, l2, threads, extra_s=extra_s, issue_s=issue_s, tail_s=tail_s)


def _touched(lanes: Any, size: int) -> Any:
    """Bytes of the sectors that a group of threads touches, for each of its entries of `size` bytes."""
    return (1.0 + (lanes * size - 1.0) / SECTOR_BYTES) * SECTOR_BYTES / lanes


def merge_cost(gpu: GpuModel, shape: SparseShape, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
    """Tiles of equal work: all threads load; a further launch where a row is longer than a tile."""
    tile = columns["num_warps"] * gpu.sm.warp_size * columns["items"]
    tiles = np.ceil((shape.entries + shape.rows) / tile)
    threads = _threads(columns, blocks_per_sm, tiles, gpu)
    l2 = shape.gathered_bytes(gpu) + shape.entries * (shape.element + INDEX_BYTES)
    dram = shape.moved_bytes + shape.missed_bytes(gpu) + 16 * tiles
    at_once = gpu.device.sm_count * np.asarray(blocks_per_sm, dtype=np.float64)
    waves = tiles / at_once
    tail_s = np.where(columns["num_stages"] == 1, waves, np.ceil(waves)) * TILE_S
    # Rows of a tile fill whole passes of its threads.
    rows = tile / (1 + shape.mean)
    lanes = np.exp2(np.ceil(np.log2(np.maximum(shape.mean / columns["steps"], 1.0))))
    groups = columns["num_warps"] * gpu.sm.warp_size / lanes
    idle = np.where(shape.spread < EVEN, np.ceil(rows / groups) * groups / rows, 1.3)
    clk = MERGE_CLK * (shape.rows * lanes * np.minimum(columns["steps"], shape.mean) * idle + shape.entries)
    clk = clk + MERGE_ROW_CLK * shape.rows
    clk = clk * np.where(columns["by_rows"] == 1, 1.0, MERGE_ORDER) * (1.0 if shape.spread < EVEN else MERGE_UNEVEN)
    issue_s = clk / (_clock_hz(gpu) * gpu.device.sm_count)
    extra_s = np.where(tile <= shape.longest, NEXT_LAUNCH_S, 0.0) + MERGE_S * _filled(gpu, tiles, blocks_per_sm)
    slower = MERGE_WARPS ** np.abs(np.log2(columns["num_warps"] / 4.0))
    return _cost(
        gpu, dram / MERGE_SHARE * slower, l2, threads, extra_s=extra_s, issue_s=issue_s * slower, tail_s=tail_s
    )


def gap_period(length: int) -> int:
    """Elements of shared memory between gaps of 16 bytes, for rows of few patterns; 0: none.

    Rows whose lengths are multiples of 8 would begin in few banks. With gaps they begin at eight multiples of 16 bytes.
    """
    return 0 if length % 8 else max(32, length & -length)


def group_elements(most_entries: int, period: int, element: int) -> int:
    """Elements of shared memory that a warp takes for the values of 32 rows of few patterns, as in the source.

    Args:
        most_entries: Entries of the rows, at most.
        period: Elements between gaps.
        element: Bytes of a value.
    """
    elements = most_entries + 16 // element
    if period:
        elements += (elements // period + 1) * (16 // element)
    return -(-elements // 32) * 32


def pattern_bytes(shape: SparseShape) -> int:
    """Least traffic with memory of rows of few patterns: no columns, and one offset for 32 rows."""
    of_rows = PATTERN_BYTES * shape.rows + INDEX_BYTES * (shape.rows // 32 + 1)
    return shape.entries * shape.element + of_rows + shape.vector_bytes


def patterns_cost(gpu: GpuModel, shape: SparseShape, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
    """Rows of few patterns: values and a byte for each row; columns and offsets are not read."""
    blocks = np.ceil(shape.rows / (gpu.sm.warp_size * columns["num_warps"]))
    blocks_per_sm = np.minimum(blocks_per_sm, columns["resident"])
    dram = pattern_bytes(shape) + shape.missed_bytes(gpu)
    l2 = shape.gathered_bytes(gpu) + shape.entries * shape.element
    clk = PATTERN_CLK * shape.entries + PATTERN_ROW_CLK * shape.rows
    issue_s = clk / (_clock_hz(gpu) * gpu.device.sm_count)
    # Values are copied ahead; a warp waits for x in each of its groups.
    warps = gpu.device.sm_count * blocks_per_sm * columns["num_warps"]
    groups = np.ceil(shape.rows / (gpu.sm.warp_size * warps))
    tail_s = groups * (PATTERN_GROUP_S + PATTERN_ENTRY_S * shape.mean)
    extra_s = CHAIN_S * _filled(gpu, blocks, blocks_per_sm)
    return _cost(gpu, dram, l2, FULL_THREADS, extra_s=extra_s, issue_s=issue_s, tail_s=tail_s)


def panel_cost(gpu: GpuModel, shape: SparseShape, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
    """Panels of columns: x from shared memory, columns of 16 bits, and sums of runs through memory."""
    width = columns["panel_kib"] * 1024 // shape.element
    panels = np.ceil(shape.columns / width)
    each, element = columns["entries_per_lane"], max(shape.element, 4)
    # A row has a run in every panel that it has entries in: random ones, or those that its span reaches.
    is_wide = shape.span > shape.columns // 2
    others = np.minimum(panels - 1, shape.span / width)
    share = -np.expm1(-shape.mean * shape.scattered / panels) if is_wide else 1.0
    runs = shape.rows * (1.0 + others * share)
    runs = np.minimum(runs, shape.entries) + shape.entries / (gpu.sm.warp_size * each)
    dram = shape.entries * (shape.element + 2 + 2 / each) + runs * (2 * element + INDEX_BYTES) + shape.vector_bytes
    dram = dram + INDEX_BYTES * shape.rows
    l2 = gpu.device.sm_count * columns["panel_kib"] * 1024.0 * (1 + panels / gpu.device.sm_count) + dram
    threads = _threads(columns, blocks_per_sm, np.inf, gpu)
    clk = shape.entries * RUN_CLK * (1.0 + 0.5 / each) + runs * OF_RUN_CLK + shape.rows * OF_ROW_CLK
    clk = clk * np.where(columns["num_warps"] < MOST_WARPS, FEW_WARPS, 1.0)
    issue_s = clk / (_clock_hz(gpu) * gpu.device.sm_count)
    extra_s = np.full_like(dram, NEXT_LAUNCH_S + PANEL_S)
    return _cost(gpu, dram / PANEL_SHARE, l2, threads, extra_s=extra_s, issue_s=issue_s)


def ell_cost(gpu: GpuModel, shape: SparseShape, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
    """Sliced ELL: padding to the longest row of a slice, less where rows are sorted within windows."""
    height, window = columns["slice_height"], columns["window"]
    is_sorted = window > height
    beyond = 1.0 + shape.spread * np.sqrt(2.0 * np.log(np.maximum(height, 2)))
    longest = np.minimum(np.maximum(shape.mean * beyond, 1.0), max(shape.longest, 1))
    # Sorted rows of a slice are alike but in the first slice of each window.
    longest = np.where(is_sorted, shape.mean + (longest - shape.mean) * height / np.maximum(window, height), longest)
    padded = np.maximum(longest * shape.rows, shape.entries)
    blocks = np.ceil(shape.rows / height)
    dram = padded * (shape.element + INDEX_BYTES) + shape.vector_bytes + shape.missed_bytes(gpu)
    dram = dram + np.where(is_sorted, shape.rows * (INDEX_BYTES + SECTOR_BYTES / 4), 0.0)
    l2 = shape.gathered_bytes(gpu) + padded * (shape.element + INDEX_BYTES)
    threads = _threads(columns, blocks_per_sm, blocks, gpu)
    # A step loads `unroll` entries of each row, whether it has them or not.
    steps = np.ceil(longest / columns["unroll"])
    held = np.maximum(height * columns["unroll"] / (columns["num_warps"] * gpu.sm.warp_size), 1.0)
    clk = steps * columns["unroll"] * shape.rows * ELL_CLK * (1.0 + ELL_DEEP * np.log2(held))
    issue_s = clk / (_clock_hz(gpu) * gpu.device.sm_count)
    waves = blocks / (gpu.device.sm_count * np.asarray(blocks_per_sm, dtype=np.float64))
    tail_s = np.maximum(np.ceil(max(shape.longest, 1) / columns["unroll"]) * MISS_S, waves * steps * ELL_STEP_S)
    extra_s = CHAIN_S * _filled(gpu, blocks, blocks_per_sm)
    return _cost(gpu, dram / ELL_SHARE, l2, threads, extra_s=extra_s, issue_s=issue_s, tail_s=tail_s)


def library_s(gpu: GpuModel, shape: SparseShape) -> float:
    """Seconds of the library's product: a share of the DRAM's rate, or the L2's for x."""
    rate = dram_bytes_per_s(gpu, DRAM_SHARE) * LIBRARY_SHARE
    dram_s = (shape.moved_bytes + shape.missed_bytes(gpu)) / rate + LIBRARY_ROW_BYTES * shape.rows / rate
    sectors = SECTOR_BYTES * sectors_per_s(gpu)
    l2_s = (shape.gathered_bytes(gpu) + shape.entries * (shape.element + INDEX_BYTES)) / sectors
    return launch_s(gpu) + LIBRARY_S + float(overlap(dram_s, l2_s))


def build_s(gpu: GpuModel, shape: SparseShape, kernel: str) -> float:
    """Seconds to make the arrays of a kernel that copies the matrix, once: passes of sorts and scatters over it."""
    passes = {"panels": 60.0, "ell": 40.0}.get(kernel, 0.0)
    bytes_ = shape.entries * (shape.element + INDEX_BYTES) + 8 * shape.rows
    return passes * bytes_ / dram_bytes_per_s(gpu, DRAM_SHARE) + (2e-3 if passes else 0.0)


def copied_bytes(shape: SparseShape, kernel: str) -> int:
    """Bytes of device memory that a kernel's copy of the matrix takes at most, padding not counted."""
    if kernel == "panels":
        return shape.entries * (shape.element + 2 + INDEX_BYTES) + INDEX_BYTES * shape.rows
    return shape.entries * (shape.element + INDEX_BYTES) if kernel == "ell" else 0


def hash_s(gpu: GpuModel, shape: SparseShape) -> float:
    """Seconds to compare the matrix's values with those that were copied: one read of them, and two launches."""
    return shape.entries * shape.element / dram_bytes_per_s(gpu, DRAM_SHARE) + 2 * NEXT_LAUNCH_S
