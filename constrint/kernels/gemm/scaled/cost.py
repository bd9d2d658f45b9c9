"""Predicted time of the scaled GEMM: rounds of tiles on the busiest SM, each the sum of its slices and its end.

No torch. Its constants are assumptions, most of them those that were measured for the CUDA GEMM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.cost import CONSTANTS
from constrint.kernels.gemm.scaled.shape import DEPTH, OWN_ROWS, columns_of, rows_of, stage_bytes
from constrint.kernels.gemm.spec import matrix_peak_flop_per_s
from constrint.kernels.gemm.units import PARTIAL_BYTES
from constrint.select.cost import CostColumns, Later, dram_bytes_per_s, launch_offset_s, loaded_clock_hz, overlap
from constrint.select.spec import Columns

#: Clocks from a consumer's last product of a slice to its first of the next one, beside its additions; clocks of the
#: store of a result of each thread; share of DRAM's bandwidth. Assumed.
CHAIN_CLK, RESULT_CLK, DRAM_SHARE = 180.0, 5.0, 0.8
#: Wait of the last block of a split tile for the others. Assumed.
HAND_OVER_S = 1.5e-6


def scaled_cost(gpu: GpuModel, sizes: Mapping[str, int], columns: Columns, out_bytes: int) -> CostColumns:
    """Predicted time of every configuration."""
    v = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
    m, n, k = (sizes[name] for name in ("m", "n", "k"))
    clock, sms = loaded_clock_hz(gpu, "fp8"), gpu.device.sm_count
    wide, consumers = columns_of(v), v["consumers"]
    tiles = np.ceil(m / v["tile_m"]) * np.ceil(n / v["tile_n"])
    units, slices = tiles * v["split_k"], np.ceil(np.ceil(k / DEPTH) / v["split_k"])
    peak = matrix_peak_flop_per_s(gpu, "fp8") / sms / clock * CONSTANTS.matrix_share
    own = 2 * OWN_ROWS * DEPTH * np.maximum(wide, 16.0) / peak
    port = stage_bytes(v) / CONSTANTS.port_bytes_per_clk
    step = np.maximum(overlap(consumers * own, port), own + wide / 2 + CHAIN_CLK)
    rounds = np.ceil(units / sms)
    end = CONSTANTS.tile_clk + wide / 2 * RESULT_CLK
    sums_bytes = rows_of(v) * wide * PARTIAL_BYTES
    handed = HAND_OVER_S + (1 + v["split_k"]) * sums_bytes / CONSTANTS.hand_over_bytes_per_clk / clock
    sm_s = rounds * (slices * step + end) / clock + np.where(v["split_k"] > 1, handed, 0.0)
    dram_s = float(m * k + k * n + m * n * out_bytes) / dram_bytes_per_s(gpu, DRAM_SHARE)
    seconds = CONSTANTS.launch_s + launch_offset_s(gpu) + overlap(sm_s, dram_s)

    def parts() -> dict[str, Any]:
        shared = units * slices / sms / clock
        waste = np.maximum(sm_s - shared * step, 0.0)
        busy = {"matrix units": shared * consumers * own, "L2 port": shared * port, "latency": shared * step}
        return {**busy, "wave quantisation": waste, "DRAM": dram_s}

    return CostColumns(seconds, Later(parts))
