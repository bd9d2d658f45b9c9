"""Predicted time of matrix-vector products: the matrix streams through DRAM once, x comes from the L2."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel, assumed
from constrint.kernels.gemv.shape import MatrixShape
from constrint.select.cost import CostColumns, dram_bytes_per_s
from constrint.select.spec import Columns
from constrint.select.streams import EXPOSED, STREAM_SHARE, Stream, dram_latency_s, stream_cost

SECTOR, LINE = 32, 128
#: Exponent by which the time grows with the share of a line that a block leaves to others.
PART_OF_LINE = 0.25
#: Seconds of a block after its last load: the reduction over its threads and the store.
REDUCE_S = 0.5e-6
#: The same of a matrix that lies by rows: of any block, for each of its rows, for four elements of each thread. These
#: and the shares below are fitted to the times of an H200 in benchmarks/results/h200/gemv_configs.csv
#: (`python -m benchmarks.gemv_configs FILE`).
ROWS_REDUCE_S, ROW_S, ADD_S = 0.79e-6, 0.017e-6, 0.034e-6
#: Seconds of the last block of a tile whose rows are split: its counter, and one read of partial sums after another.
HAND_OVER_S, PARTIAL_S = 1.0e-6, 0.02e-6
#: What some blocks wait for while the L2 writes back what others left there, as shares of the time that the DRAM takes
#: for as many bytes: where steps are copied ahead, where blocks of several steps all start at once, where rows are
#: split, where blocks have more than `MOST_WARPS` warps.
STAGED, LOOPED, SPLIT, CROWDED = 0.367, 0.235, 0.168, 0.125
MOST_WARPS = 8
#: Share of a block's latency and tail that the next one does not hide, where rows are read.
ROWS_EXPOSED = 0.196
#: Clocks of an SM's four schedulers for one load instruction of a warp with its conversions and multiply-adds.
INSTRUCTION_CLK = 2.0


def gemv_cost(gpu: GpuModel, shape: MatrixShape, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
    """Predicted time of every configuration."""
    tile_m, tile_n, splits, vector, warps, stages = (
        np.asarray(columns[name], dtype=np.float64)
        for name in ("tile_m", "tile_n", "splits", "vector", "num_warps", "num_stages")
    )
    tiles = np.ceil(shape.m / tile_m)
    blocks = tiles * splits * shape.batch
    steps = np.ceil(np.ceil(shape.n / tile_n) / splits)
    contiguous = np.minimum(tile_m if shape.by_columns else tile_n, shape.length)
    segment = contiguous * shape.element_bytes
    # Segments that do not start at sectors touch one more each, which their neighbours have in the L2 or not.
    is_ragged = shape.width < min(16, SECTOR) or shape.length * shape.element_bytes % SECTOR != 0
    touched = (np.ceil(segment / SECTOR) + (0.25 if is_ragged else 0.0)) * SECTOR / segment
    # Blocks that read a part of a line of the L2 reach less of the DRAM's rate.
    whole_line = min(LINE, shape.length * shape.element_bytes)
    touched = touched * np.maximum(whole_line / segment, 1.0) ** PART_OF_LINE
    partials = np.where(splits > 1, 2.0 * shape.batch * shape.m * splits * shape.sum_bytes, 0.0)
    tile_bytes = np.minimum(tile_m, shape.m) * np.minimum(tile_n, shape.n) * shape.element_bytes
    ahead = np.where(stages > 1, stages - 1, 1.0)
    flight = tile_bytes * np.minimum(ahead, steps)
    elements = float(shape.batch) * shape.m * shape.n
    threads = gpu.sm.warp_size
    issue_clk = elements / (threads * vector) * (INSTRUCTION_CLK + 1.25 * vector)
    clock = gpu.device.boost_clock_hz or 1.5e9
    issue_s = issue_clk / (gpu.device.sm_count * gpu.sm.num_partitions * clock)
    reduce_s = REDUCE_S * (1.0 + 0.02 * tile_m * warps / 8)
    serial_s = np.where(splits > 1, HAND_OVER_S + PARTIAL_S * splits, 0.0)
    if not shape.by_columns:
        of_thread = tile_m * tile_n / (threads * warps)
        reduce_s = ROWS_REDUCE_S + ROW_S * tile_m + ADD_S * of_thread / 4
        # A block has nothing in flight while it stores, and while it adds, unless steps are loaded ahead.
        waits_s = dram_latency_s(gpu) * np.maximum(steps / ahead, 1.0)
        adds_s = ADD_S * of_thread / 4 * np.where(stages > 1, 0.0, steps - 1.0)
        flight = flight * waits_s / (waits_s + adds_s + reduce_s)
        written_s = min(shape.matrix_bytes, assumed.l2_bytes(gpu).value) / dram_bytes_per_s(gpu, STREAM_SHARE)
        is_one_wave = blocks <= gpu.device.sm_count * np.asarray(blocks_per_sm, dtype=np.float64)
        share = np.where(stages > 1, STAGED, np.where((steps > 1) & is_one_wave, LOOPED, 0.0))
        share = share + np.where(splits > 1, SPLIT, 0.0) + np.where(warps > MOST_WARPS, CROWDED, 0.0)
        serial_s = serial_s + written_s * share
    stream = Stream(
        dram_bytes=shape.matrix_bytes * np.maximum(touched, 1.0) + shape.moved_bytes - shape.matrix_bytes,
        l2_bytes=blocks * steps * tile_n * shape.vector_bytes + partials,
        num_blocks=blocks,
        flight_bytes=flight,
        tail_s=reduce_s,
        serial_s=serial_s,
        compute_s=issue_s,
        exposed=EXPOSED if shape.by_columns else ROWS_EXPOSED,
    )
    return stream_cost(gpu, stream, blocks_per_sm)
