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
#: What the time of a product depends on beside the time of a step.
ALIKE = ("tile_m", "tile_n", "cluster_m", "cluster_n", "in_turns", "split_k", "only_last", "turned")


def cuda_cost(
    gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any], constants: Constants = CONSTANTS
) -> CostColumns:
    """Predicted time of every configuration; the order of tiles makes no difference here."""

    def model(columns: Columns, blocks_per_sm: NDArray[Any]) -> CudaModel:
        return CudaModel(gpu, product.dtype, columns, constants)

    key = "cuda", product.dtype, id(constants)
    return derived(columns, blocks_per_sm, key, model).cost(product)


def leading_rows(gpu: GpuModel, product: Product, columns: Columns) -> NDArray[np.int64]:
    """Of configurations that differ in how a tile is shared out alone, the one with the shortest step.

    Everything else that the model counts is the same in all of them, for products of any size.
    """
    step_clk = CudaModel(gpu, product.dtype, columns, CONSTANTS).step_clk
    same = np.stack([np.asarray(columns[name]) for name in ALIKE])
    order = np.lexsort([step_clk, *same])
    sorted_ = same[:, order]
    is_first = np.concatenate([[True], (sorted_[:, 1:] != sorted_[:, :-1]).any(axis=0)])
    return np.sort(order[is_first])


class CudaModel:
    """Predicted times of configurations on a GPU, for many products of a dtype.

    Args:
        gpu: The hardware model.
        dtype: Type of A and B.
        columns: Parameters, per configuration.
        constants: The constants.
    """

    def __init__(self, gpu: GpuModel, dtype: str, columns: Columns, constants: Constants) -> None:
        whole = {name: np.asarray(column, dtype=np.int64) for name, column in columns.items()}
        # Numbers stay far below 2^53, so that ceilings of quotients of floats are exact; integers divide slowly.
        c = {name: column.astype(np.float64) for name, column in whole.items()}
        self.gpu, self.dtype, self.constants = gpu, dtype, constants
        self.clock = loaded_clock_hz(gpu)
        self.shape = Shape.of(whole)
        self.tile_m, self.tile_n, self.parts = c["tile_m"], c["tile_n"], c["split_k"]
        self.over_m, self.over_n = c["tile_m"] * c["cluster_m"], c["tile_n"] * c["cluster_n"]
        self.slots = np.asarray(cluster_slots(gpu, self.shape.cluster), dtype=np.float64)
        self.in_turns, self.only_last = whole["in_turns"] > 0, whole["only_last"] > 0
        self.is_split = self.parts > 1
        self.sums_of_tile = self.tile_m * self.tile_n
        self.has_turns, self.has_splits = bool(self.in_turns.any()), bool(self.is_split.any())
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
        self.store_clk = self.sums_of_tile / constants.store_bytes_per_clk
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
        steps = float(-(-p.k // depth(self.dtype)))
        tiles = np.ceil(p.m / self.over_m) * np.ceil(p.n / self.over_n)
        store = constants.tile_clk + self.store_clk * (p.output_bytes * (1 + p.has_source))
        full = tiles / self.slots
        if self.has_splits:
            whole = np.where(self.is_split, np.where(self.only_last, np.floor(full), 0.0) * self.slots, tiles)
            rounds = np.ceil(whole / self.slots)
            part_rounds = np.ceil((tiles - whole) * self.parts / self.slots)
            main = (rounds * steps + part_rounds * np.ceil(steps / self.parts)) * self.step_clk
            ends = rounds * store + part_rounds * (constants.tile_clk + self.part_clk) + self.hand_over_clk
            units = rounds + part_rounds
        else:
            units = np.ceil(full)
            main, ends = units * (steps * self.step_clk), units * store
        sm_clk = main + ends
        if self.has_turns:
            # One consumer stores while the other multiplies: what is left is the last end, or what is longer.
            turns = np.maximum(main, (sm_clk + np.maximum(ends, main) / units) / 2)
            sm_clk = np.where(self.in_turns, np.maximum(turns, main + ends / units), sm_clk)
        sm_clk = sm_clk + constants.latency_s * self.clock
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
