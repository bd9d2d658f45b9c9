"""Predicted time of the skinny GEMM: the time to read the long operand, plus epilogues and hand-overs of split tiles.

DRAM, the busiest SM, L2, L1 and the arithmetic units work in parallel, so that the slowest dominates. DRAM and an SM
reach their rate only with enough bytes in flight. `constants.json` states the source of each constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.measured import read_constants
from constrint.kernels.gemm.product import Product, activation_clk
from constrint.kernels.gemm.skinny.shape import COLUMNS, LINE_BYTES, WARP, SkinnyTile, vector
from constrint.kernels.gemm.units import ELEMENT_BYTES, PARTIAL_BYTES, WIDEST_BYTES
from constrint.kernels.gemm.units import LINE_BYTES as L2_LINE_BYTES
from constrint.select.cost import (
    OVERLAP_LOG2,
    PARTS,
    CostColumns,
    Later,
    dram_bytes_per_s,
    launch_offset_s,
    loaded_clock_hz,
)
from constrint.select.spec import Columns
from constrint.select.tile_work import derived

FILE = Path(__file__).with_name("constants.json")


@dataclass(frozen=True)
class SkinnyConstants:
    """The constants of `constants.json`, which states the meaning and the source of each; units are suffixes."""

    measured: str
    launch_s: float
    latency_s: float
    dram_share: float
    ramp_share: float
    shifted_share: float
    sm_bytes_per_clk: float
    l2_share: float
    l1_bytes_per_clk: float
    fma_share: float
    end_s: float
    turn_s: float
    part_s: float
    part_bytes_per_clk: float
    round_s: float


CONSTANTS = read_constants(SkinnyConstants, FILE)
ASSUMED = read_constants(SkinnyConstants, FILE, assumed=True)

#: Measured over predicted time of batches whose long operand is read less than a line of the L2 at a time, along K
#: (`python -m benchmarks.gemm.batches`, on an H100: 1.36 and 1.76 of predicted).
TORN = 1.6
#: FMAs of an SM per clock.
FMA_PER_CLK = 128
#: Split-K reduction, as in the source: partial sums per read, blocks per read, most groups of threads.
SUMS_AT_ONCE, BLOCKS_AT_ONCE, MOST_GROUPS = 16, 2, 32


def skinny_cost(
    gpu: GpuModel,
    product: Product,
    columns: Columns,
    blocks_per_sm: NDArray[Any],
    constants: SkinnyConstants = CONSTANTS,
) -> CostColumns:
    """Predicted time of every configuration."""

    def model(columns: Columns, blocks_per_sm: NDArray[Any]) -> SkinnyModel:
        return SkinnyModel(gpu, product, columns, constants)

    key = "skinny", product.dtype, product.a, product.b, id(constants)
    return derived(columns, blocks_per_sm, key, model).cost(product)


def overlap_of(times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Combine the rows of an array as `overlap` combines times, in few operations."""
    for _ in range(OVERLAP_LOG2):
        times_s = times_s * times_s
    total: NDArray[np.float64] = times_s.sum(axis=0)
    for _ in range(OVERLAP_LOG2):
        total = np.sqrt(total)
    return total


class _Schedule(NamedTuple):
    """The schedule of one product per configuration: tiles, steps of one tile and of all, blocks, C's sides.

    `batch` is the number of products, and `own_long` that of long operands: 1 where all products share one.
    """

    tiles: Any
    steps: Any
    units: Any
    blocks: Any
    long: Any
    short: Any
    batch: float = 1.0
    own_long: Any = 1.0


class SkinnyModel:
    """Predicted times of configurations on a GPU, for all products with one dtype and equal layouts.

    Args:
        gpu: The hardware model.
        product: Any of these products; its dtype and layouts count.
        columns: Parameters, per configuration.
        constants: The constants.
    """

    def __init__(self, gpu: GpuModel, product: Product, columns: Columns, constants: SkinnyConstants) -> None:
        whole = {name: np.asarray(column, dtype=np.int64) for name, column in columns.items()}
        shape, element = SkinnyTile.of_product(whole, product), ELEMENT_BYTES[product.dtype]
        self.gpu, self.element, self.constants = gpu, element, constants
        self.clock, self.sms = loaded_clock_hz(gpu, product.dtype), float(gpu.device.sm_count)
        self.dram_rate = dram_bytes_per_s(gpu, constants.dram_share)
        self.launch_s = constants.launch_s + launch_offset_s(gpu)
        self.turned = whole["turned"] > 0
        # Ceilings of quotients of floats are exact as long as numbers stay far below 2^53; integers divide slowly.
        self.rows, self.small = shape.rows.astype(np.float64), shape.small.astype(np.float64)
        self.tile_k, self.split = whole["tile_k"].astype(np.float64), whole["split_k"].astype(np.float64)
        self.resident = whole["resident"].astype(np.float64)
        self.is_persistent = whole["persistent"] > 0
        self.warps_rows = shape.warps_rows.astype(np.float64)
        self.threads = WARP * whole["num_warps"].astype(np.float64)
        self.under_way = self.threads * shape.vectors * whole["num_stages"] * WIDEST_BYTES
        # With two steps in flight, loads of the next tile overlap the end of a tile.
        self.turn_s = np.where(whole["num_stages"] > 1, 0.0, constants.turn_s)
        self.fan_in = whole["fan_in"].astype(np.float64)
        self.has_fan_in = bool((whole["fan_in"] > 0).any())
        sides = (product.a, product.b)
        shifted = [float(side.step_bytes < WIDEST_BYTES) for side in sides]
        strided = [1.0 if side.is_k_major else float(vector(product.dtype)) for side in sides]
        of_long = np.where(self.turned, shifted[1], shifted[0])
        self.loads = shape.vectors // np.maximum(shape.unroll, 1) * (1 + of_long)
        # Lines that start anywhere are loaded in part by two lanes, and their sectors by two warps.
        self.slower = 1 + constants.shifted_share * of_long
        self.full_step = self.rows * self.tile_k
        # Rows along K that are read a part of a line of the L2 at a time are read from memory more than once.
        of_row = self.tile_k * element < L2_LINE_BYTES
        is_along = np.where(self.turned, product.b.is_k_major, product.a.is_k_major)
        self.torn = np.where(of_row & is_along, TORN, 1.0)
        # A vector of an operand that is not contiguous along K is loaded element by element.
        narrow_loads = np.where(self.turned, strided[0] * (1 + shifted[0]), strided[1] * (1 + shifted[1]))
        self.by_number = np.where(whole["mma"] > 0, 0.0, 1.0)
        self.each_narrow = self.by_number * narrow_loads
        self.narrow = (1 - self.by_number) * self.small / COLUMNS * narrow_loads

    def blocks(self, tiles: Any, units: Any) -> Any:
        """Blocks that share the steps of a product."""
        requested = np.where(self.is_persistent, self.sms * self.resident, tiles * self.split)
        return np.minimum(requested, units)

    def cost(self, p: Product, blocks: Any = None) -> CostColumns:
        """Predicted time of every configuration for one product; `blocks` overrides the configurations' numbers."""
        long, short = (np.where(self.turned, x, y) for x, y in ((p.n, p.m), (p.m, p.n)))
        tiles, steps = np.ceil(long / self.rows), np.ceil(float(p.k) / self.tile_k)
        units = tiles * steps
        asked = self.blocks(tiles, units) if blocks is None else blocks
        batch = float(p.batch)
        own_long = np.where(self.turned, *(1.0 if side.is_shared else batch for side in (p.b, p.a)))
        dealt = _Schedule(tiles, steps, units, asked, long, short, batch, own_long)
        times = self._times(p, dealt)
        rest = self._rest(dealt) + self._activation_s(p, dealt)
        seconds = (
            overlap_of(np.stack(list(times.values()))) + rest + self.constants.launch_s + launch_offset_s(self.gpu)
        )

        def parts() -> dict[str, Any]:
            return dict.fromkeys(PARTS, 0.0) | times | {"wave quantisation": rest}

        return CostColumns(np.asarray(seconds, dtype=np.float64), Later(parts))

    def _times(self, p: Product, d: _Schedule) -> dict[str, Any]:
        """Seconds that each resource needs, by names of `PARTS`."""
        c, element, clock, sms, k = self.constants, self.element, self.clock, self.sms, float(p.k)
        blocks = d.blocks * d.batch
        on_sm, each = np.ceil(blocks / sms), np.ceil(d.units / d.blocks)
        # Lanes beyond the end of K load nothing; lanes beyond the last row load what another lane loads.
        filled = k * d.long / (d.units * self.full_step)
        under_way = np.minimum(on_sm, self.resident) * self.under_way * filled
        large_bytes = d.long * k * element * self.slower
        narrow = self.narrow + self.each_narrow * np.minimum(self.small, d.short)
        lines = d.batch * d.tiles * self.warps_rows * np.ceil(k * element / LINE_BYTES)
        rest = d.short * k * element + p.m * p.n * p.output_bytes * (1 + p.has_source)
        moved = d.own_long * large_bytes + d.batch * rest
        needed = self.dram_rate * c.latency_s / (under_way * np.minimum(sms, blocks))
        sm_bytes = on_sm * each * filled * (self.full_step * element) * self.slower
        # Numbers of fewer bits are converted to fp32 first.
        numbers = d.batch * d.long * k * (d.short + 2 * (element < 4)) / (sms * FMA_PER_CLK * clock * c.fma_share)
        from_l2 = d.batch * (large_bytes + d.tiles * d.short * k * element)
        if d.batch > 1:
            moved = moved * self.torn
        return {
            "DRAM": moved / self.dram_rate * (1 + needed * c.ramp_share),
            "L2 port": sm_bytes / (c.sm_bytes_per_clk * clock),
            "latency": sm_bytes / (under_way / c.latency_s),
            "L2": from_l2 / (sms * c.sm_bytes_per_clk * clock * c.l2_share),
            "load issue": lines * WARP * WIDEST_BYTES * (self.loads + narrow) / (sms * c.l1_bytes_per_clk * clock),
            "vector units": self.by_number * numbers,
        }

    def _rest(self, d: _Schedule) -> Any:
        """Seconds of epilogues, of starting the next tiles, and of handing partial sums over."""
        c, each = self.constants, np.ceil(d.units / d.blocks)
        is_whole = (d.units % d.blocks == 0) & (each % d.steps == 0)
        # Blocks that share tiles may share one more tile at each end of their range.
        sharing = np.minimum(np.minimum(np.ceil(d.steps * d.blocks / d.units) + 1, d.blocks), d.steps)
        contributors = np.where(is_whole, 1.0, sharing)
        # Between two tiles, the loads of an SM start anew.
        touched = np.ceil(each / d.steps) + (~is_whole & (d.blocks % d.tiles > 0))
        on_sm = np.ceil(d.blocks * d.batch / self.sms)
        turns = np.maximum(touched * on_sm / np.minimum(on_sm, self.resident) - 1, 0.0)
        handed = self._handed(self.rows * np.minimum(self.small, d.short), contributors)
        return c.end_s + turns * self.turn_s + handed

    def _activation_s(self, p: Product, d: _Schedule) -> Any:
        """Seconds in which the busiest SM activates the results of its tiles."""
        each_clk = activation_clk(self.gpu, p)
        if not each_clk:
            return 0.0
        return np.ceil(d.tiles / self.sms) * self.rows * np.minimum(self.small, d.short) * each_clk / self.clock

    def _handed(self, sums: Any, contributors: Any) -> Any:
        """Seconds to hand partial sums over to the last of a tile's blocks; in two stages with a fan-in."""
        seconds = self._added_s(sums, contributors)
        if not self.has_fan_in:
            return seconds
        most = np.maximum(self.fan_in, 1)
        in_two = self._added_s(sums, most) + self._added_s(sums, np.ceil(contributors / most))
        return np.where((self.fan_in > 0) & (contributors > self.fan_in), in_two, seconds)

    def _added_s(self, sums: Any, contributors: Any) -> Any:
        c = self.constants
        groups = np.clip(np.floor(4 * self.threads / sums), 1, MOST_GROUPS)
        rounds = np.ceil(sums / (SUMS_AT_ONCE * self.threads)) * np.ceil(contributors / groups / BLOCKS_AT_ONCE)
        read = contributors * PARTIAL_BYTES * sums / (c.part_bytes_per_clk * self.clock)
        return np.where(contributors > 1, c.part_s + np.maximum(rounds * c.round_s, read), 0.0)
