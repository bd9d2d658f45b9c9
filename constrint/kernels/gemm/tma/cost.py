"""Predicted time of kernels that load through the TMA unit.

The time of a step is a p-norm of its matrix instructions, its loads, and the latency that the stages ahead do not
cover. Steps, the stores between tiles, and waves of blocks add up to the time of the grid; DRAM works beside it. Where
kernels differ is in their `MainLoop`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.measured import Measured
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.spec import matrix_peak_flop_per_s
from constrint.kernels.gemm.tma.operands import rest_columns
from constrint.kernels.gemm.units import (
    ELEMENT_BYTES,
    OUTPUT_BYTES,
    PARTIAL_BYTES,
    needs_k_major,
    promotion_interval,
    straddling,
    unit,
)
from constrint.select.cost import ASSUMED_CLOCK_HZ, PARTS, CostColumns
from constrint.select.spec import Columns


@dataclass(frozen=True)
class MainLoop:
    """How one kernel multiplies and stores, per configuration.

    Args:
        start_s: Seconds to start beyond the launch.
        matrix_share: Share of the peak that the unit would reach on infinitely wide tiles.
        read_columns: The time to read A's slice, as the number of tile columns that are multiplied in that time.
        warpgroup_clk: Clocks that each warpgroup beyond the first adds to a step, since warpgroups wait for each other.
        waits_for_sums: Whether a block that is alone on its SM waits for sums to be promoted.
        between_clk: Clocks of a persistent block between the last step of a tile and the first step of the next.
    """

    start_s: float
    matrix_share: float
    read_columns: float
    warpgroup_clk: float
    waits_for_sums: bool
    between_clk: Any


def tma_cost(
    gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any], loop: MainLoop, constants: Measured
) -> CostColumns:
    """Predicted time of every configuration; the order of tiles makes no difference here.

    Args:
        gpu: The hardware model.
        product: The product or the batch of products.
        columns: Parameters, per configuration; with `split_k` and `persistent`.
        blocks_per_sm: Blocks that reside on one SM.
        loop: What is special of the kernel.
        constants: The measured figures.
    """
    work = _Work(gpu, product, columns, blocks_per_sm, loop, constants)
    sm_s = work.sm_s()
    bandwidth = gpu.memory.dram.bandwidth_bytes_per_s
    dram_s = work.moved_bytes / (bandwidth * constants.dram_share)
    copied = product.copied_bytes * product.batch
    copy_s = constants.pack_s + 2 * copied / (bandwidth * constants.pack_share) if copied else 0.0
    seconds = constants.launch_s + loop.start_s + overlap(sm_s, dram_s) + work.hand_over_s() + copy_s
    parts: dict[str, Any] = dict.fromkeys(PARTS, 0.0)
    shared = {"matrix units": work.shared_s(work.matrix), "L2 port": work.shared_s(work.load)}
    parts |= shared | {"latency": work.shared_s(work.latency / work.resident), "DRAM": dram_s}
    busiest = np.maximum(np.maximum(*shared.values()), parts["latency"])
    parts["wave quantisation"] = np.maximum(sm_s - busiest, 0.0)
    return CostColumns(seconds, parts)


def overlap(*times: Any) -> Any:
    """Time of resources that work at once: a p-norm, p = 3 (chosen, not fitted)."""
    return np.cbrt(sum(time * time * time for time in times))


class _Work:
    """Clocks of one block and seconds of the grid, per configuration."""

    def __init__(
        self, gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any], loop: MainLoop,
        constants: Measured,
    ) -> None:  # fmt: skip
        c = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
        self.c, self.product, self.constants, self.loop = c, product, constants, loop
        self.clock, self.num_sms = gpu.device.boost_clock_hz or ASSUMED_CLOCK_HZ, gpu.device.sm_count
        self.area, self.splits = c["tile_m"] * c["tile_n"], c["split_k"]
        self.tiles = np.ceil(product.m / c["tile_m"]) * np.ceil(product.n / c["tile_n"]) * product.batch
        self.blocks = self.tiles * self.splits
        self.steps = np.ceil(np.ceil(product.k / c["tile_k"]) / self.splits)
        self.is_persistent = c["persistent"] > 0
        self.resident = np.where(self.is_persistent, 1.0, np.maximum(blocks_per_sm, 1.0))
        rest = rest_columns(c["tile_n"])
        self.parts = (c["tile_n"] - rest, rest)
        self.matrix = self._matrix_clk(gpu)
        self.load, self.moved_bytes = self._loads(gpu)
        # The stages ahead cover the round trip of a stage: its latency, and the time of its own bytes.
        self.latency = (constants.latency_s * self.clock + self.load) / np.maximum(1.0, c["num_stages"] - 1)
        # Fewer warps than the SM has partitions leave some idle, unless other blocks use them.
        self.alone = np.maximum(1.0, 4 / c["num_warps"])

    def _matrix_clk(self, gpu: GpuModel) -> Any:
        """Clocks of one step's arithmetic, and of warps that wait for each other."""
        c, constants, dtype = self.c, self.constants, self.product.dtype
        peak = matrix_peak_flop_per_s(gpu, dtype)
        most_warps = 8 if unit(gpu, dtype).kind == "tcgen05" else 16
        is_direct = (c["tile_m"] >= 64) & (c["num_warps"] >= 4) & (c["num_warps"] <= most_warps)
        # Every part of a tile reads A's slice again.
        busy = sum(np.where(part > 0, part + self.loop.read_columns, 0.0) for part in self.parts)
        clk = 2 * c["tile_m"] * c["tile_k"] / (peak / self.num_sms / self.clock * self.loop.matrix_share)
        matrix = clk * np.where(is_direct, busy, c["tile_n"] / constants.fallback_share)
        if self.loop.waits_for_sums and promotion_interval(gpu, dtype, 1) is not None:
            # Another block multiplies meanwhile.
            matrix = matrix / constants.promoted_share ** (1 / np.minimum(self.resident, 2.0))
        return matrix + self.loop.warpgroup_clk * np.maximum(0.0, c["num_warps"] / 4 - 1)

    def _loads(self, gpu: GpuModel) -> tuple[Any, Any]:
        """Clocks of one step's loads, and bytes that DRAM moves for the whole grid."""
        p, c, constants = self.product, self.c, self.constants
        element = ELEMENT_BYTES[p.dtype]
        a_is_k_major = p.a.is_tma_k_major or needs_k_major(p.dtype)
        b_is_k_major = p.b.is_tma_k_major or needs_k_major(p.dtype)
        loaded: Any = 0.0
        split = constants.tma_split_lines, constants.tma_split_sectors
        b_longer = straddling(gpu, p.b.tma_step_bytes, *split)
        of_b = ((part, p.n, b_is_k_major, b_longer) for part in self.parts)
        of_a = (c["tile_m"], p.m, a_is_k_major, straddling(gpu, p.a.tma_step_bytes, *split))
        for width, size, is_k_major, longer in (of_a, *of_b):
            rows = np.minimum(width, size)
            line = (c["tile_k"] if is_k_major else np.maximum(rows, 1.0)) * element
            loaded = loaded + longer * rows * np.maximum(1.0, constants.line_bytes / line)
        moved: Any = p.batch * p.m * p.n * OUTPUT_BYTES[p.dtype]
        for width, size, is_k_major in ((c["tile_m"], p.m, a_is_k_major), (self.parts[0], p.n, b_is_k_major)):
            line = (c["tile_k"] if is_k_major else np.minimum(width, size)) * element
            slow = np.maximum(1.0, 2 * constants.line_bytes / line) ** constants.short_rows
            moved = moved + p.batch * size * p.k * element * slow
        return c["tile_k"] * element * loaded / constants.load_bytes_per_clk, moved

    def sm_s(self) -> Any:
        """Seconds of the busiest SM: whole waves and the rest, or the tiles of a persistent block."""
        slots = self.num_sms * self.resident
        full = np.floor(self.blocks / slots)
        rest = np.ceil((self.blocks - full * slots) / self.num_sms)
        tail = np.where(rest > 0, self._wave(np.maximum(rest, 1.0)), 0.0)
        waves = full * (self._wave(self.resident) + self.constants.wave_s * self.clock) + tail
        walked = np.ceil(self.tiles / self.num_sms) * (
            self.steps * overlap(self.alone * self.matrix, self.load, self.latency) + self.loop.between_clk
        )
        return np.where(self.is_persistent, walked, waves) / self.clock

    def _wave(self, resident: Any) -> Any:
        matrix = np.maximum(resident, self.alone) * self.matrix
        return self.steps * overlap(matrix, resident * self.load, self.latency)

    def hand_over_s(self) -> Any:
        """Seconds for partial sums to go out and come back, where K is split."""
        rate = self.constants.hand_over_bytes_per_clk * self.clock
        partial = self.area * PARTIAL_BYTES
        moved_s = 2 * self.blocks * partial / (rate * self.num_sms) + self.splits * partial / rate
        return np.where(self.splits > 1, self.constants.hand_over_s + moved_s, 0.0)

    def shared_s(self, clocks: Any) -> Any:
        """Seconds of the grid if each step took `clocks` of its SM and the steps were spread evenly over all SMs."""
        return self.blocks * self.steps * clocks / self.num_sms / self.clock
