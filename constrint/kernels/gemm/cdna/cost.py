"""Predicted time of the CDNA GEMM, by the parts of `constrint.select.cost`; no constant is fitted to this kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cdna.shape import WAVES
from constrint.kernels.gemm.pointer.cost import (
    TileGrid,
    Traffic,
    cache_bytes_per_s,
    cache_latencies_s,
    loaded_latency_s,
    operand_traffic,
)
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.spec import matrix_peak_flop_per_s
from constrint.kernels.gemm.units import ELEMENT_BYTES, WIDEST_BYTES
from constrint.select.cost import BlockTimes, CostColumns
from constrint.select.spec import Columns
from constrint.select.tile_work import BlockWork, GridWork

#: Steps of K that copies run ahead of their use: on gfx950 half a slice is fetched again as soon as it is read, at best
#: seven and at worst five quarters of a step after it; on gfx942 a slice is loaded three quarters of a step before it
#: is stored to LDS.
STEPS_AHEAD = {"gfx950": 1.5, "gfx942": 0.75}


def cdna_cost(gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
    """Predicted time of every configuration; a lower bound where the order of tiles is left open.

    Args:
        gpu: A gfx950 or gfx942.
        product: The product, or a batch of them.
        columns: Parameters, per configuration.
        blocks_per_sm: Blocks that reside on one CU.
    """
    c = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
    element = ELEMENT_BYTES[product.dtype]
    resident = np.maximum(np.asarray(blocks_per_sm, dtype=np.float64), 1.0)
    times = BlockTimes(gpu, matrix_peak_flop_per_s(gpu, product.dtype), block_work(gpu, product, c, resident))
    rows, cols = np.ceil(product.m / c["tile_m"]), np.ceil(product.n / c["tile_n"])
    blocks, steps = product.batch * rows * cols, np.ceil(product.k / c["tile_k"])
    slots = np.minimum(rows * cols, gpu.device.sm_count * resident)
    traffic = tile_traffic(gpu, product, c, slots)
    l2_miss, dram = product.batch * traffic.l2_miss_bytes, product.batch * traffic.dram_bytes
    loaded = blocks * product.k * (c["tile_m"] + c["tile_n"]) * element
    stored = float(product.batch * product.m * product.n * product.output_bytes)
    grid = GridWork(
        num_blocks=blocks,
        iterations=steps,
        l2_bytes=loaded + stored,
        last_level_bytes=l2_miss + stored,
        dram_bytes=dram + stored,
        load_latency_s=loaded_latency_s(cache_latencies_s(gpu), loaded, l2_miss, dram),
        l2_bytes_per_s=cache_bytes_per_s(gpu, loaded, l2_miss, dram),
    )
    return times.of_grid(grid)


def block_work(gpu: GpuModel, product: Product, c: dict[str, Any], resident: Any) -> BlockWork:
    """The work of one block in one step of K."""
    element = ELEMENT_BYTES[product.dtype]
    a_bytes, b_bytes = (c[side] * c["tile_k"] * element for side in ("tile_m", "tile_n"))
    wave_rows = WAVES[8][0]
    # Each column of waves reads all of A, each row of waves all of B.
    read = a_bytes * (c["num_warps"] / wave_rows) + b_bytes * wave_rows
    return BlockWork(
        blocks_per_sm=resident,
        warps_per_block=c["num_warps"],
        flop=2.0 * c["tile_m"] * c["tile_n"] * c["tile_k"],
        matrix_efficiency=1.0,
        smem_bytes=a_bytes + b_bytes + read,
        load_bytes=a_bytes + b_bytes,
        load_instructions=(a_bytes + b_bytes) / WIDEST_BYTES,
        store_bytes=c["tile_m"] * c["tile_n"] * product.output_bytes,
        # While one wave of a SIMD reads and fetches, the other one multiplies; of four waves each does both at once.
        is_async=1.0,
        stages_in_flight=STEPS_AHEAD[gpu.arch.target],
        dtype=product.dtype,
    )


def tile_traffic(gpu: GpuModel, product: Product, c: dict[str, Any], slots: Any) -> Traffic:
    """L2 misses and DRAM bytes of A and B; a lower bound over all orders of tiles where the order is open."""
    depth_bytes = product.k * ELEMENT_BYTES[product.dtype]
    rows, cols = np.ceil(product.m / c["tile_m"]), np.ceil(product.n / c["tile_n"])
    row_bytes, column_bytes = np.minimum(c["tile_m"], product.m), np.minimum(c["tile_n"], product.n)
    row_bytes, column_bytes = row_bytes * depth_bytes, column_bytes * depth_bytes
    if "group_m" not in c:
        least = rows * row_bytes + cols * column_bytes
        return Traffic(least, least)
    zeros = np.zeros_like(c["group_m"])
    tiles = TileGrid(
        rows=zeros + rows,
        columns=zeros + cols,
        row_bytes=zeros + row_bytes,
        column_bytes=zeros + column_bytes,
        resident=zeros + slots,
        group_m=c["group_m"],
        xcd_chunk=zeros + c.get("xcd_chunk", 0.0),
    )
    return operand_traffic(gpu, tiles)
