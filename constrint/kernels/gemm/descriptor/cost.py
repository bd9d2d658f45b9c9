"""Predicted time of the descriptor kernel, which loads operands through the TMA unit.

The time of a step is the p-norm of three times: its matrix instructions, its loads, and the part of the loads' latency
that the pipeline stages do not hide. Steps, the stores between tiles and the waves of blocks add up to the time of the
SMs. DRAM works in parallel to the SMs, and so does the L2 where it is assumed to deliver less than the SMs can take.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.hwmodels.assumed import TMA_PORT, assumption, sustained_matrix_fraction
from constrint.kernels.gemm.measured import MEASURED, Measured
from constrint.kernels.gemm.product import Product, activation_clk, rest_columns
from constrint.kernels.gemm.rules import MAX_TILE
from constrint.kernels.gemm.spec import matrix_peak_flop_per_s
from constrint.kernels.gemm.units import (
    ELEMENT_BYTES,
    OUTPUT_BYTES,
    PARTIAL_BYTES,
    needs_k_major,
    promotion_interval,
    straddling,
    unit,
)
from constrint.select.cost import (
    FITTED_SHARE,
    PARTS,
    CostColumns,
    Later,
    dram_bytes_per_s,
    l2_bytes_per_s,
    launch_offset_s,
    loaded_clock_hz,
)
from constrint.select.cost import overlap as overlap_of_device
from constrint.select.spec import Columns
from constrint.select.tile_work import MAX_DERIVED, derived

#: Products of tf32 for one of fp32.
PASSES = 3


def descriptor_cost(
    gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any], constants: Measured = MEASURED
) -> CostColumns:
    """Predicted time of every configuration; the order of tiles makes no difference here."""

    def model(columns: Columns, blocks_per_sm: NDArray[Any]) -> DescriptorModel:
        return DescriptorModel(
            gpu, product.dtype, columns, blocks_per_sm, constants, is_three_pass=product.is_three_pass
        )

    key = "descriptor", product.dtype, product.is_three_pass, id(constants)
    return derived(columns, blocks_per_sm, key, model).cost(product)


def overlap(*times: Any) -> Any:
    """Time of resources that work at once: a p-norm, p = 3 (chosen, not fitted)."""
    return np.cbrt(sum(_power(time) for time in times))


def _power(time: Any) -> Any:
    return time * time * time


class DescriptorModel:
    """Predicted times of configurations on a GPU, for many products of a dtype.

    Args:
        gpu: The hardware model.
        dtype: Type of A and B.
        columns: Parameters, per configuration.
        blocks_per_sm: Blocks that reside on one SM, per configuration.
        constants: The measured constants.
        is_three_pass: Whether fp32 operands are split and multiplied three times.
    """

    def __init__(
        self, gpu: GpuModel, dtype: str, columns: Columns, blocks_per_sm: NDArray[Any], constants: Measured,
        *, is_three_pass: bool = False,
    ) -> None:  # fmt: skip
        c = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
        self.gpu, self.dtype, self.c, self.constants = gpu, dtype, c, constants
        self.clock, self.num_sms = loaded_clock_hz(gpu, dtype), gpu.device.sm_count
        self.splits, self.is_persistent = c["split_k"], c["persistent"] > 0
        self.resident = np.where(self.is_persistent, 1.0, np.maximum(blocks_per_sm, 1.0))
        self.slots = self.num_sms * self.resident
        rest = rest_columns(c["tile_n"])
        self.parts = (c["tile_n"] - rest, rest)
        # Fewer warps than the SM has partitions leave some idle, unless other blocks use them.
        self.alone = np.maximum(1.0, 4 / c["num_warps"])
        # A persistent block stores a tile between the last step of that tile and the first step of the next.
        subtile = np.where(c["epilogue_subtile"] > 1, constants.subtile_epilogue, 1.0)
        area = c["tile_m"] * c["tile_n"]
        self.between_clk = area * OUTPUT_BYTES[dtype] / (constants.epilogue_bytes_per_clk / subtile)
        self.matrix = self._matrix_clk()
        if is_three_pass:
            split = constants.split_clk * (c["tile_m"] + c["tile_n"]) * c["tile_k"]
            self.matrix = PASSES * self.matrix + split * self.alone
        self.has_waves, self.has_splits = not self.is_persistent.all(), bool((self.splits > 1).any())
        self.partial_bytes = c["tile_m"] * c["tile_n"] * PARTIAL_BYTES
        self.hand_over_rate = constants.hand_over_bytes_per_clk * self.clock
        self.last_hand_over_s = self.splits * self.partial_bytes / self.hand_over_rate
        self.l2_bytes_per_s = l2_bytes_per_s(gpu)
        self._loads: dict[tuple[float, ...], _Loads] = {}

    def cost(self, product: Product) -> CostColumns:
        """Predicted time of every configuration; the order of tiles makes no difference here."""
        p, c, constants = product, self.c, self.constants
        loads = self._loads_of(p)
        tiles = np.ceil(p.m / c["tile_m"]) * np.ceil(p.n / c["tile_n"]) * p.batch
        blocks = tiles * self.splits
        steps = np.ceil(np.ceil(p.k / c["tile_k"]) / self.splits)
        bandwidth = self.gpu.memory.dram.bandwidth_bytes_per_s
        rate = dram_bytes_per_s(self.gpu, constants.dram_share)
        sm_s = self._sm_s(loads, tiles, blocks, steps) + self._activation_s(p, tiles)
        dram_s = loads.moved_bytes(p) / rate
        copied = p.copied_bytes * p.batch
        copy_s = constants.pack_s + 2 * copied / (bandwidth * constants.pack_share) if copied else 0.0
        busy_s, l2_s = overlap(sm_s, dram_s), self._l2_s(p, blocks * steps)
        if self.l2_bytes_per_s is not None:
            busy_s = overlap_of_device(busy_s, l2_s)
        seconds = constants.launch_s + launch_offset_s(self.gpu) + busy_s + self._hand_over_s(blocks) + copy_s

        def parts() -> dict[str, Any]:
            # Seconds of the grid if each step took so long and the steps were spread evenly over all SMs.
            each = blocks * steps
            clks = {"matrix units": self.matrix, "L2 port": loads.load, "latency": loads.latency / self.resident}
            shared = {name: each * clk / self.num_sms / self.clock for name, clk in clks.items()}
            busiest = np.maximum(np.maximum(shared["matrix units"], shared["L2 port"]), shared["latency"])
            rest = {"wave quantisation": np.maximum(sm_s - busiest, 0.0), "L2": l2_s, "DRAM": dram_s}
            return dict.fromkeys(PARTS, 0.0) | shared | rest

        return CostColumns(seconds, Later(parts))

    def _matrix_clk(self) -> Any:
        """Clocks of one step's arithmetic, and of warps that wait for each other."""
        gpu, c, constants, dtype = self.gpu, self.c, self.constants, self.dtype
        peak = matrix_peak_flop_per_s(gpu, dtype)
        most_warps = 8 if unit(gpu, dtype).kind == "tcgen05" else 16
        is_direct = (c["tile_m"] >= 64) & (c["num_warps"] >= 4) & (c["num_warps"] <= most_warps)
        # Every part of a tile reads A's slice again.
        busy = sum(np.where(part > 0, part + constants.read_columns, 0.0) for part in self.parts)
        columns = np.where(is_direct, busy, c["tile_n"] / constants.fallback_share)
        share = constants.matrix_share * (sustained_matrix_fraction(gpu, dtype) / FITTED_SHARE)
        if unit(gpu, dtype).fallback is None:
            # The fastest unit takes fragments from registers; nothing was fitted to it.
            columns, share = c["tile_n"], sustained_matrix_fraction(gpu, dtype)
        clk = 2 * c["tile_m"] * c["tile_k"] / (peak / self.num_sms / self.clock * share)
        matrix = clk * columns
        if promotion_interval(gpu, dtype, 1) is not None:
            # Another block multiplies meanwhile.
            matrix = matrix / constants.promoted_share ** (1 / np.minimum(self.resident, 2.0))
        return matrix + constants.warpgroup_clk * np.maximum(0.0, c["num_warps"] / 4 - 1)

    def _loads_of(self, product: Product) -> _Loads:
        """Load times, shared by products with equal layouts whose sides are equal or exceed every tile."""
        a, b, constants = product.a, product.b, self.constants
        split = constants.tma_split_lines, constants.tma_split_sectors
        longer = (straddling(self.gpu, operand.tma_step_bytes, *split) for operand in (a, b))
        sides = min(product.m, MAX_TILE["tile_m"]), min(product.n, MAX_TILE["tile_n"])
        key = *sides, a.is_tma_k_major, b.is_tma_k_major, *longer
        loads = self._loads.get(key)
        if loads is None:
            if len(self._loads) >= MAX_DERIVED:
                self._loads.clear()
            loads = self._loads[key] = _Loads(self, product)
        return loads

    def _sm_s(self, loads: _Loads, tiles: Any, blocks: Any, steps: Any) -> Any:
        """Seconds of the busiest SM: whole waves and the rest, or the tiles of a persistent block."""
        walked = np.ceil(tiles / self.num_sms) * (steps * loads.walked_step + self.between_clk)
        if not self.has_waves:
            return walked / self.clock
        full = np.floor(blocks / self.slots)
        rest = np.ceil((blocks - full * self.slots) / self.num_sms)
        tail = np.where(rest > 0, steps * loads.step_of(np.maximum(rest, 1.0)), 0.0)
        waves = full * (steps * loads.full_step + self.constants.wave_s * self.clock) + tail
        return np.where(self.is_persistent, walked, waves) / self.clock

    def _activation_s(self, p: Product, tiles: Any) -> Any:
        """Seconds in which the busiest SM activates results: blocks of a wave do so at about the same time."""
        each_clk = activation_clk(self.gpu, p)
        if not each_clk:
            return 0.0
        area = self.c["tile_m"] * self.c["tile_n"]
        return np.ceil(tiles / self.num_sms) * area * each_clk / self.clock

    def _l2_s(self, p: Product, all_steps: Any) -> Any:
        """Seconds in which the L2 gives all blocks their operands and takes the result."""
        if self.l2_bytes_per_s is None:
            return 0.0
        step_bytes = (self.c["tile_m"] + self.c["tile_n"]) * self.c["tile_k"] * ELEMENT_BYTES[self.dtype]
        stored = p.batch * p.m * p.n * OUTPUT_BYTES[p.dtype]
        return (all_steps * step_bytes + stored) / self.l2_bytes_per_s

    def _hand_over_s(self, blocks: Any) -> Any:
        """Seconds for partial sums to go out and come back, where K is split."""
        if not self.has_splits:
            return 0.0
        out_s = 2 * blocks * self.partial_bytes / (self.hand_over_rate * self.num_sms)
        return np.where(self.splits > 1, self.constants.hand_over_s + (out_s + self.last_hand_over_s), 0.0)


class _Loads:
    """Clocks of a step and bytes from DRAM, for all products whose operands lie in memory as one product's do."""

    def __init__(self, model: DescriptorModel, product: Product) -> None:
        self.model, self.matrix, self.alone = model, model.matrix, model.alone
        constants, c, dtype = model.constants, model.c, model.dtype
        self.element = ELEMENT_BYTES[dtype]
        a_is_k_major = product.a.is_tma_k_major or needs_k_major(dtype)
        b_is_k_major = product.b.is_tma_k_major or needs_k_major(dtype)
        split = constants.tma_split_lines, constants.tma_split_sectors
        a_longer, b_longer = (straddling(model.gpu, t.tma_step_bytes, *split) for t in (product.a, product.b))
        widths = [(c["tile_m"], product.m, a_is_k_major, a_longer)]
        widths += [(part, product.n, b_is_k_major, b_longer) for part in model.parts]
        loaded: Any = 0.0
        for width, size, is_k_major, longer in widths:
            rows = np.minimum(width, size)
            line = (c["tile_k"] if is_k_major else np.maximum(rows, 1.0)) * self.element
            loaded = loaded + longer * rows * np.maximum(1.0, constants.line_bytes / line)
        port = assumption(model.gpu, TMA_PORT)
        rate = constants.load_bytes_per_clk if port is None else port.value
        self.load = c["tile_k"] * self.element * loaded / rate
        # The stages ahead cover the round trip of a stage: its latency, and the time of its own bytes.
        self.latency = (constants.latency_s * model.clock + self.load) / np.maximum(1.0, c["num_stages"] - 1)
        self._latency_power = _power(self.latency)
        self.walked_step = overlap(self.alone * self.matrix, self.load, self.latency)
        self.full_step = self.step_of(model.resident)
        # Factor of the time of DRAM for short rows.
        self.slow_a, self.slow_b = (
            np.maximum(1.0, 2 * constants.line_bytes / line) ** constants.short_rows
            for line in (
                (c["tile_k"] if is_k_major else np.minimum(width, size)) * self.element
                for width, size, is_k_major, _ in widths[:2]
            )
        )

    def step_of(self, blocks: Any) -> Any:
        """Clocks of a step with this number of blocks on an SM."""
        matrix = np.maximum(blocks, self.alone) * self.matrix
        return np.cbrt(_power(matrix) + _power(blocks * self.load) + self._latency_power)

    def moved_bytes(self, p: Product) -> Any:
        """Bytes that DRAM moves for the whole grid."""
        of_a, of_b = (p.batch * size * p.k * self.element for size in (p.m, p.n))
        return p.batch * p.m * p.n * OUTPUT_BYTES[p.dtype] + of_a * self.slow_a + of_b * self.slow_b
