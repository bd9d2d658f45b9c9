"""Predicted time of the scaled GEMM: rounds of tiles on the busiest SM, each the sum of its slices and its end.

No torch. Its constants are set by a few times, others those that were measured for the CUDA GEMM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.cost import CONSTANTS
from constrint.kernels.gemm.scaled.shape import DEPTH, OWN_ROWS, clusters_of, columns_of, rows_of
from constrint.kernels.gemm.spec import matrix_peak_flop_per_s
from constrint.kernels.gemm.units import PARTIAL_BYTES
from constrint.select.cost import CostColumns, Later, dram_bytes_per_s, launch_offset_s, loaded_clock_hz, overlap
from constrint.select.spec import Columns

#: Start and end of a launch; clocks from a consumer's last product of a slice to its first of the next one, beside its
#: additions; with scales of blocks, of three consumers, and for each column that has its own; clocks of the store of a
#: result of each thread; shares of DRAM's bandwidth and of the bytes that arrive at an SM. From times of 250
#: configurations for 34 products on an H200: measured over predicted 0.76 to 1.29, first over best of them 1.04.
LAUNCH_S, CHAIN_CLK, BLOCKS_CLK, COLUMN_CLK, RESULT_CLK = 6.9e-6, 310.0, 540.0, 21.0, 80.0
DRAM_SHARE, PORT_BYTES_PER_CLK = 0.52, 30.5
#: Wait of the last block of a split tile for the others, and bytes of sums of a clock. Likewise.
HAND_OVER_S, HAND_OVER_BYTES_PER_CLK = 0.81e-6, 13.4
#: torch's own operator: start and end, shares of the matrix units' peak and of the bandwidth, the share of the SMs that
#: need a tile of 128 columns to reach it. From 62 times on an H100 and an H200: off by 8 % in the mean.
LIBRARY_LAUNCH_S, LIBRARY_PEAK_SHARE, LIBRARY_DRAM_SHARE, LIBRARY_SM_SHARE = 8.6e-6, 0.634, 0.63, 0.351
#: A launch that copies scales, beside others of its stream. From the same runs.
COPY_S = 2.2e-6


def library_s(gpu: GpuModel, sizes: Mapping[str, int], out_bytes: int) -> float:
    """Estimated time of torch._scaled_mm."""
    m, n, k = (sizes[name] for name in ("m", "n", "k"))
    tiles = -(-m // 128) * -(-n // 128)
    busy = min(1.0, tiles / (LIBRARY_SM_SHARE * gpu.device.sm_count))
    moved = m * k + k * n + m * n * out_bytes
    dram_s = moved / (gpu.memory.dram.bandwidth_bytes_per_s * LIBRARY_DRAM_SHARE * busy)
    matrix_s = 2 * m * n * k / (matrix_peak_flop_per_s(gpu, "fp8") * LIBRARY_PEAK_SHARE * busy)
    return LIBRARY_LAUNCH_S + max(dram_s, matrix_s)


def scaled_cost(
    gpu: GpuModel, sizes: Mapping[str, int], columns: Columns, out_bytes: int, *, in_blocks: bool
) -> CostColumns:
    """Predicted time of every configuration."""
    v = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
    m, n, k = (sizes[name] for name in ("m", "n", "k"))
    clock, sms = loaded_clock_hz(gpu, "fp8"), gpu.device.sm_count
    wide, consumers = columns_of(v), v["consumers"]
    over_rows, over_columns = clusters_of(v)
    cluster = over_rows * over_columns
    tiles = np.ceil(m / v["tile_m"] / v["cluster_m"]) * np.ceil(n / v["tile_n"] / v["cluster_n"]) * cluster
    units, slices = tiles * v["split_k"], np.ceil(np.ceil(k / DEPTH) / v["split_k"])
    peak = matrix_peak_flop_per_s(gpu, "fp8") / sms / clock * CONSTANTS.matrix_share
    own = 2 * OWN_ROWS * DEPTH * np.maximum(wide, 16.0) / peak
    # What two blocks share leaves the L2 once.
    port = DEPTH * (rows_of(v) / over_columns + wide / over_rows) / PORT_BYTES_PER_CLK
    # Scales of more rows than the L1 has lines for come from the L2; turned, each thread asks for those of its columns.
    asked = np.where(v["turned"] > 0, COLUMN_CLK * wide / 2, np.where(consumers > 2, BLOCKS_CLK, 0.0)) * in_blocks
    step = np.maximum(overlap(consumers * own, port), own + wide / 2 + CHAIN_CLK + asked)
    rounds = np.ceil(units / sms)
    end = CONSTANTS.tile_clk + wide / 2 * RESULT_CLK
    sums_bytes = rows_of(v) * wide * PARTIAL_BYTES
    handed = HAND_OVER_S + (1 + v["split_k"]) * sums_bytes / HAND_OVER_BYTES_PER_CLK / clock
    sm_s = rounds * (slices * step + end) / clock + np.where(v["split_k"] > 1, handed, 0.0)
    dram_s = float(m * k + k * n + m * n * out_bytes) / dram_bytes_per_s(gpu, DRAM_SHARE)
    seconds = LAUNCH_S + launch_offset_s(gpu) + overlap(sm_s, dram_s)

    def parts() -> dict[str, Any]:
        shared = units * slices / sms / clock
        waste = np.maximum(sm_s - shared * step, 0.0)
        busy = {"matrix units": shared * consumers * own, "L2 port": shared * port, "latency": shared * step}
        return {**busy, "wave quantisation": waste, "DRAM": dram_s}

    return CostColumns(seconds, Later(parts))
