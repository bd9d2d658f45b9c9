"""Predicted time of the CUDA kernel: rounds of tiles on the busiest SM, each as long as its slices and its end.

A slice takes as long as the slowest of its matrix instructions, the bytes that arrive at the SM, those that the L2 has
to give (a cluster reads what it shares once), and the latency that the ring does not cover. Constants are in
`constants.json`; none is fitted to products.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.hwmodels.assumed import sustained_matrix_fraction
from constrint.kernels.gemm.cuda.constants import CONSTANTS, Constants
from constrint.kernels.gemm.cuda.shape import LINE_BYTES, ROWS, Shape, cluster_slots, depth, promotes
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.spec import matrix_peak_flop_per_s
from constrint.kernels.gemm.units import ELEMENT_BYTES, PARTIAL_BYTES
from constrint.select.cost import FITTED_SHARE, PARTS, CostColumns, Later, loaded_clock_hz, overlap
from constrint.select.prepared import derived
from constrint.select.spec import Columns

#: Matrix instructions of a slice along K: each takes 32 of its 128 bytes.
INSTRUCTIONS = 4


def cuda_cost(
    gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any], constants: Constants = CONSTANTS
) -> CostColumns:
    """Predicted time of every configuration; the order of tiles makes no difference here."""

    def model(columns: Columns, blocks_per_sm: NDArray[Any]) -> CudaModel:
        return CudaModel(gpu, product.dtype, columns, constants)

    key = "cuda", product.dtype, id(constants)
    return derived(columns, blocks_per_sm, key, model).cost(product)


class CudaModel:
    """Predicted times of configurations on a GPU, for many products of a dtype.

    Args:
        gpu: The hardware model.
        dtype: Type of A and B.
        columns: Parameters, per configuration.
        constants: The constants.
    """

    def __init__(self, gpu: GpuModel, dtype: str, columns: Columns, constants: Constants) -> None:
        c = {name: np.asarray(column, dtype=np.int64) for name, column in columns.items()}
        self.gpu, self.dtype, self.constants = gpu, dtype, constants
        self.clock = loaded_clock_hz(gpu)
        self.shape = Shape.of(c)
        self.tile_m, self.tile_n, self.parts = c["tile_m"], c["tile_n"], c["split_k"]
        self.over_m, self.over_n = c["tile_m"] * c["cluster_m"], c["tile_n"] * c["cluster_n"]
        self.slots = cluster_slots(gpu, self.shape.cluster)
        self.in_turns, self.only_last = c["in_turns"] > 0, c["only_last"] > 0
        self.is_split = self.parts > 1
        self.sums_of_tile = (self.tile_m * self.tile_n).astype(np.float64)
        self.matrix_clk = self._matrix_clk()
        received = LINE_BYTES * (self.tile_m + self.tile_n)
        self.port_clk = received / constants.port_bytes_per_clk
        # Blocks beside each other share A's slice, those above each other share B's.
        self.l2_bytes = LINE_BYTES * (self.tile_m / c["cluster_n"] + self.tile_n / c["cluster_m"])
        self.l2_clk = self.l2_bytes / constants.l2_bytes_per_clk
        self.latency_clk = (constants.latency_s * self.clock + self.port_clk) / np.maximum(1, c["num_stages"] - 1)
        self.step_clk = overlap(self.matrix_clk, self.port_clk, self.l2_clk, self.latency_clk)
        # A part stores its sums; the last of a tile's reads those of all.
        rate = constants.hand_over_bytes_per_clk
        self.part_clk = self.sums_of_tile * PARTIAL_BYTES / rate
        self.hand_over_clk = np.where(self.is_split, self.parts * self.part_clk + constants.hand_over_s * self.clock, 0)

    def _matrix_clk(self) -> Any:
        """Clocks of the matrix instructions of one slice, and between those of two."""
        constants, own = self.constants, self.shape.own_columns
        share = constants.matrix_share * (sustained_matrix_fraction(self.gpu) / FITTED_SHARE)
        peak = matrix_peak_flop_per_s(self.gpu, self.dtype) / self.gpu.device.sm_count / self.clock
        multiply = 2 * ROWS * own * (depth(self.dtype) // INSTRUCTIONS) / (peak * share)
        read = constants.instruction_read_clk + constants.column_read_clk * own
        number = INSTRUCTIONS * (self.shape.rows // ROWS) * self.shape.by_columns
        clk = number * np.maximum(multiply, read) + constants.step_clk
        if promotes(self.dtype):
            # A consumer that adds its sums leaves the matrix units to another one, where there is one.
            clk = clk * np.where((self.shape.consumers > 1) & ~self.in_turns, 1.1, 1.6)
        return clk

    def cost(self, p: Product) -> CostColumns:
        """Predicted time of every configuration for one product."""
        constants = self.constants
        steps = -(-p.k // depth(self.dtype))
        tiles = -(-p.m // self.over_m) * -(-p.n // self.over_n)
        whole = np.where(self.is_split, np.where(self.only_last, tiles // self.slots * self.slots, 0), tiles)
        rounds = -(-whole // self.slots)
        part_rounds = -(-((tiles - whole) * self.parts) // self.slots)
        part_steps = -(-steps // self.parts)
        main = (rounds * steps + part_rounds * part_steps) * self.step_clk
        store = constants.tile_clk + self.sums_of_tile * p.output_bytes / constants.store_bytes_per_clk
        if p.has_source:
            store = store + self.sums_of_tile * p.output_bytes / constants.store_bytes_per_clk
        ends = rounds * store + part_rounds * (constants.tile_clk + self.part_clk)
        units = np.maximum(rounds + part_rounds, 1)
        # In turns, one consumer stores while the other multiplies: what is left is the last end, or what is longer.
        turns = np.maximum(main, (main + ends) / 2) + np.maximum(ends, main) / units / 2
        turns = np.maximum(turns, main + ends / units)
        sm_clk = np.where(self.in_turns, turns, main + ends) + self.hand_over_clk + constants.latency_s * self.clock
        sm_s = sm_clk / self.clock
        dram_s = self._dram_bytes(p) / (self.gpu.memory.dram.bandwidth_bytes_per_s * constants.dram_share)
        seconds = constants.launch_s + overlap(sm_s, dram_s)

        def parts() -> dict[str, Any]:
            # Seconds of the grid if steps were spread evenly over all SMs.
            each = tiles * self.shape.cluster * steps / self.gpu.device.sm_count / self.clock
            clks = {"matrix units": self.matrix_clk, "L2 port": self.port_clk, "latency": self.latency_clk}
            shared = {name: each * clk for name, clk in clks.items()} | {"L2": each * self.l2_clk}
            busiest = np.maximum.reduce(list(shared.values()))
            rest = {"wave quantisation": np.maximum(sm_s - busiest, 0.0), "DRAM": dram_s}
            return dict.fromkeys(PARTS, 0.0) | shared | rest

        return CostColumns(np.asarray(seconds, dtype=np.float64), Later(parts))

    def _dram_bytes(self, p: Product) -> float:
        element = ELEMENT_BYTES[p.dtype]
        results = p.m * p.n * p.output_bytes * (1 + p.has_source)
        return float((p.m + p.n) * p.k * element + results)
