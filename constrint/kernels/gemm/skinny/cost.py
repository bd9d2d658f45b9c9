"""Predicted time of the kernel for short sides: the bytes of the long operand, as fast as they come, and what is left.

DRAM, the busiest SM, the L2, L1 and the arithmetic work at once: the slowest of them counts. DRAM and an SM give what
is asked of them only while enough is under way. Then each tile has an end, and tiles that blocks share a hand-over.
Constants are in `constants.json`, which says what they are fitted to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.skinny.constants import CONSTANTS, Constants
from constrint.kernels.gemm.skinny.shape import LINE_BYTES, WARP, Shape, vector
from constrint.kernels.gemm.units import ELEMENT_BYTES, PARTIAL_BYTES, WIDEST_BYTES
from constrint.select.cost import PARTS, CostColumns, Later, loaded_clock_hz, overlap
from constrint.select.prepared import derived
from constrint.select.spec import Columns

#: FMAs of an SM per clock.
FMA_PER_CLK = 128
#: Sums of a thread that it reads at a time when it adds those of other blocks, of so many blocks, and the most groups
#: of threads that share these out; as the source does.
SUMS_AT_ONCE, BLOCKS_AT_ONCE, MOST_GROUPS = 16, 2, 32


def skinny_cost(
    gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any], constants: Constants = CONSTANTS
) -> CostColumns:
    """Predicted time of every configuration."""

    def model(columns: Columns, blocks_per_sm: NDArray[Any]) -> SkinnyModel:
        return SkinnyModel(gpu, product, columns, constants)

    key = "skinny", product.dtype, product.a, product.b, id(constants)
    return derived(columns, blocks_per_sm, key, model).cost(product)


class SkinnyModel:
    """Predicted times of configurations on a GPU, for many products of a dtype whose operands lie the same way.

    Args:
        gpu: The hardware model.
        product: Its dtype, and how its operands lie.
        columns: Parameters, per configuration.
        constants: The constants.
    """

    def __init__(self, gpu: GpuModel, product: Product, columns: Columns, constants: Constants) -> None:
        whole = {name: np.asarray(column, dtype=np.int64) for name, column in columns.items()}
        shape, element = Shape.of_product(whole, product), ELEMENT_BYTES[product.dtype]
        self.gpu, self.element, self.constants = gpu, element, constants
        self.clock, self.sms = loaded_clock_hz(gpu), float(gpu.device.sm_count)
        self.dram_rate = gpu.memory.dram.bandwidth_bytes_per_s * constants.dram_share
        self.turned = whole["turned"] > 0
        self.is_mma = whole["mma"] > 0
        # Ceilings of quotients of floats are exact as long as numbers stay far below 2^53; integers divide slowly.
        self.rows, self.small = shape.rows.astype(np.float64), shape.small.astype(np.float64)
        self.tile_k, self.split = whole["tile_k"].astype(np.float64), whole["split_k"].astype(np.float64)
        self.resident = whole["resident"].astype(np.float64)
        self.is_persistent = whole["persistent"] > 0
        self.warps_rows = shape.warps_rows.astype(np.float64)
        self.threads = WARP * whole["num_warps"].astype(np.float64)
        self.under_way = self.threads * shape.vectors * WIDEST_BYTES
        sides = (product.a, product.b)
        shifted = [float(side.step_bytes < WIDEST_BYTES) for side in sides]
        strided = [1.0 if side.is_k_major else float(vector(product.dtype)) for side in sides]
        of_long = np.where(self.turned, shifted[1], shifted[0])
        self.loads = shape.vectors // np.maximum(shape.unroll, 1) * (1 + of_long)
        # Of an operand that does not lie along K a vector is loaded by elements.
        self.narrow_loads = np.where(self.turned, strided[0] * (1 + shifted[0]), strided[1] * (1 + shifted[1]))

    def blocks(self, tiles: Any, units: Any) -> Any:
        """Blocks that share the steps of a product."""
        asked = np.where(self.is_persistent, self.sms * self.resident, tiles * self.split)
        return np.minimum(asked, units)

    def cost(self, p: Product, blocks: Any = None) -> CostColumns:
        """Predicted time of every configuration for one product, or with other numbers of blocks than they ask for."""
        c, element, clock, sms, k = self.constants, self.element, self.clock, self.sms, float(p.k)
        long, short = (np.where(self.turned, x, y) for x, y in ((p.n, p.m), (p.m, p.n)))
        tiles, steps = np.ceil(long / self.rows), np.ceil(k / self.tile_k)
        units = tiles * steps
        blocks = self.blocks(tiles, units) if blocks is None else blocks
        on_sm = np.ceil(blocks / sms)
        active = np.minimum(on_sm, self.resident)
        each = np.ceil(units / blocks)
        # Lanes whose vectors lie beyond K load nothing, and those beyond the last row what another one loads.
        filled = k / (steps * self.tile_k) * long / (tiles * self.rows)
        under_way = active * self.under_way * filled
        large_bytes = long * k * element
        narrow = np.where(self.is_mma, self.small // 8, np.minimum(self.small, short)) * self.narrow_loads
        lines = tiles * self.warps_rows * np.ceil(k * element / LINE_BYTES)
        moved = large_bytes + short * k * element + p.m * p.n * p.output_bytes * (1 + p.has_source)
        needed = self.dram_rate * c.latency_s / (under_way * np.minimum(sms, blocks))
        sm_bytes = on_sm * each * self.rows * self.tile_k * filled * element
        numbers = long * k * (short + 2 * (element < 4)) / (sms * FMA_PER_CLK * clock * c.fma_share)
        times = {
            "DRAM": moved / self.dram_rate * (1 + needed * c.ramp_share),
            "L2 port": sm_bytes / (c.sm_bytes_per_clk * clock),
            "latency": sm_bytes / (under_way / c.latency_s),
            "L2": (large_bytes + tiles * short * k * element) / (sms * c.sm_bytes_per_clk * clock * c.l2_share),
            "load issue": lines * WARP * WIDEST_BYTES * (self.loads + narrow) / (sms * c.l1_bytes_per_clk * clock),
            # Numbers of fewer bits are made fp32 first.
            "vector units": np.where(self.is_mma, 0.0, numbers),
        }
        main = overlap(*times.values())
        # Where blocks share tiles, up to two more at the ends of their shares.
        share = steps * blocks / units
        is_whole = (units % blocks == 0) & (each % steps == 0)
        contributors = np.where(is_whole, 1.0, np.minimum(np.minimum(np.ceil(share) + 1, blocks), steps))
        ends = (np.ceil(each / steps) + (contributors > 1)) * on_sm / active * c.end_s
        sums = self.rows * np.minimum(self.small, short)
        groups = np.clip(np.floor(4 * self.threads / sums), 1, MOST_GROUPS)
        rounds = np.ceil(sums / (SUMS_AT_ONCE * self.threads)) * np.ceil(contributors / groups / BLOCKS_AT_ONCE)
        read = contributors * PARTIAL_BYTES * sums / (c.part_bytes_per_clk * clock)
        handed = np.where(contributors > 1, c.part_s + np.maximum(rounds * c.round_s, read), 0.0)
        seconds = c.launch_s + main + ends + handed

        def parts() -> dict[str, Any]:
            rest = {"wave quantisation": ends + handed}
            return dict.fromkeys(PARTS, 0.0) | times | rest

        return CostColumns(np.asarray(seconds, dtype=np.float64), Later(parts))
