"""Predicted time of the fp32 GEMM: rounds of tiles on the busiest SM, each the sum of its slices and its end.

The time of a slice is the longest of four: matrix instructions, instructions that bring rows into registers and split
them, a consumer's chain of both, and bytes that arrive at the SM. DRAM works in parallel. `constants.json` states the
source of each constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.fp32.shape import DEPTH, OWN_ROWS, columns_of, loaded_bytes, rows_of
from constrint.kernels.gemm.measured import MEASURED, read_constants
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.spec import matrix_peak_flop_per_s
from constrint.kernels.gemm.units import PARTIAL_BYTES
from constrint.select.cost import (
    CostColumns,
    Later,
    dram_bytes_per_s,
    launch_offset_s,
    loaded_clock_hz,
    overlap,
)
from constrint.select.spec import Columns

FILE = Path(__file__).with_name("constants.json")
#: Matrix products of both operands' parts.
PRODUCTS = 6
#: Bytes that splitting reads and writes for a number of wgmma's columns.
SPLIT_BYTES = 4 + 6


@dataclass(frozen=True)
class Fp32Constants:
    """The constants of `constants.json`, which states the meaning and the source of each; units are suffixes."""

    measured: str
    launch_s: float
    matrix_share: float
    least_columns: float
    split_clk: float
    read_clk: float
    chain_clk: float
    alone_clk: float
    port_bytes_per_clk: float
    dram_share: float
    tile_clk: float
    result_clk: float
    hand_over_s: float
    hand_over_bytes_per_clk: float
    pack_s: float


CONSTANTS = read_constants(Fp32Constants, FILE)
ASSUMED = read_constants(Fp32Constants, FILE, assumed=True)


def fp32_cost(
    gpu: GpuModel,
    product: Product,
    columns: Columns,
    blocks_per_sm: NDArray[Any],
    constants: Fp32Constants = CONSTANTS,
) -> CostColumns:
    """Predicted time of every configuration."""
    v = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
    dtype, three = ("bf16", True) if product.is_three_pass else ("tf32", False)
    clock, sms = loaded_clock_hz(gpu, dtype), gpu.device.sm_count
    consumers, wide = v["consumers"], np.maximum(columns_of(v), constants.least_columns)
    slices = np.ceil(product.k / DEPTH)
    tiles = np.ceil(product.m / v["tile_m"]) * np.ceil(product.n / v["tile_n"])
    units, part_slices = tiles * v["split_k"], np.ceil(slices / v["split_k"])
    peak = matrix_peak_flop_per_s(gpu, dtype) / sms / clock * constants.matrix_share
    matrix = consumers * (2 * OWN_ROWS * DEPTH * (PRODUCTS if three else 1)) * wide / peak
    issue = consumers * (constants.split_clk if three else constants.read_clk)
    port = loaded_bytes(v, is_three_pass=three) / constants.port_bytes_per_clk
    # A consumer's own products wait for what it splits, and the other way round, at the end of each run of slices.
    chain = matrix / consumers + constants.chain_clk if three else 0.0
    step = np.maximum(overlap(matrix, issue, port), chain) + constants.alone_clk * (consumers < 2)
    # Rounds: the busiest SM has whole units.
    rounds = np.ceil(units / sms)
    results = rows_of(v) * columns_of(v) / (consumers * OWN_ROWS * 2)
    end = constants.tile_clk + results * constants.result_clk
    sums_bytes = rows_of(v) * columns_of(v) * PARTIAL_BYTES
    is_split = v["split_k"] > 1
    handed = np.where(
        is_split,
        constants.hand_over_s + (1 + v["split_k"]) * sums_bytes / constants.hand_over_bytes_per_clk / clock,
        0.0,
    )
    sm_s = rounds * (part_slices * step + end) / clock + handed
    bandwidth = gpu.memory.dram.bandwidth_bytes_per_s
    moved = 4.0 * (product.m * product.k + product.k * product.n) + product.m * product.n * product.output_bytes
    dram_s = moved / dram_bytes_per_s(gpu, constants.dram_share)
    first_s: Any = 0.0
    if three:
        short = np.where(v["turned"] > 0, product.m, product.n) * float(product.k)
        first_s = constants.pack_s + short * SPLIT_BYTES / (bandwidth * MEASURED.pack_share)
    busy_s = overlap(sm_s, dram_s)
    seconds = constants.launch_s + launch_offset_s(gpu) + busy_s + first_s

    def parts() -> dict[str, Any]:
        shared = units * part_slices / sms / clock
        rest = {"wave quantisation": np.maximum(sm_s - shared * step, 0.0), "DRAM": dram_s + first_s}
        return {"matrix units": shared * matrix, "L2 port": shared * port, "latency": shared * issue, **rest}

    return CostColumns(seconds, Later(parts))
