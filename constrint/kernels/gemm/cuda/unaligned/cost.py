"""Predicted time where operands are gathered: that of the CUDA GEMM for others, with slices that take longer.

Warps of the producer copy lines and move them, which takes instructions; and every byte of a line passes through shared
memory three times before a matrix instruction reads it. Both work beside the matrix units, as the L2 does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.constants import CONSTANTS as OF_OTHERS
from constrint.kernels.gemm.cuda.cost import INSTRUCTIONS, ROW_BYTES, CudaModel
from constrint.kernels.gemm.cuda.rules import leaves_plainly
from constrint.kernels.gemm.cuda.shape import ROWS, stage_bytes
from constrint.kernels.gemm.cuda.unaligned.constants import CONSTANTS, Constants
from constrint.kernels.gemm.cuda.unaligned.gathered import BLOCK_LINES, RAW_LINE_BYTES, WARPS, line_blocks
from constrint.kernels.gemm.product import Product
from constrint.select.cost import CostColumns, overlap
from constrint.select.spec import Columns
from constrint.select.tile_work import derived


def unaligned_cost(
    gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any], constants: Constants = CONSTANTS
) -> CostColumns:
    """Predicted time of every configuration; the order of tiles makes no difference here."""

    def model(columns: Columns, blocks_per_sm: NDArray[Any]) -> UnalignedModel:
        return UnalignedModel(gpu, product, columns, constants)

    key = "unaligned", product.dtype, product.a, product.b, leaves_plainly(product), id(constants)
    return derived(columns, blocks_per_sm, key, model).cost(product)


class UnalignedModel(CudaModel):
    """Predicted times of configurations on a GPU; see `CudaModel`.

    Args:
        gpu: The hardware model.
        product: Its dtype, how its operands lie, and whether sums leave as they are.
        columns: Parameters, per configuration.
        constants: Those of gathering.
    """

    def __init__(self, gpu: GpuModel, product: Product, columns: Columns, constants: Constants = CONSTANTS) -> None:
        super().__init__(gpu, product, columns, OF_OTHERS)
        v = {name: np.asarray(column, dtype=np.int64) for name, column in columns.items()}
        blocks = np.asarray(line_blocks(v, product), dtype=np.float64)
        self.gather_clk = np.ceil(blocks / WARPS) * constants.block_clk + constants.turn_clk
        stage = stage_bytes(v, product.dtype, a_is_k_major=product.a.is_k_major, b_is_k_major=product.b.is_k_major)
        # Lines are written raw, read, and written once more; whatever the TMA unit loads is written.
        raw = blocks * (BLOCK_LINES * RAW_LINE_BYTES)
        own = self.shape.own_columns
        number = INSTRUCTIONS * (self.shape.rows // ROWS) * self.shape.by_columns
        read_clk = number * (OF_OTHERS.instruction_read_clk + OF_OTHERS.column_read_clk * own)
        self.smem_clk = (stage + 2 * raw) / constants.smem_bytes_per_clk + read_clk
        # Raw slices beside the one that is moved are under way.
        self.latency_clk = (constants.copy_s * self.clock + self.port_clk) / (v["raw_stages"] - 1)
        self.boxes = self.shape.own_rows // ROWS * -(-self.shape.own_columns // ROWS)
        self.odd_box_clk = constants.odd_box_clk
        at_once = overlap(self.matrix_clk, self.port_clk, self.l2_clk, self.gather_clk, self.smem_clk)
        self.step_clk = np.maximum(at_once, self.latency_clk)

    def _store_clk(self, p: Product) -> Any:
        """Clocks in which a consumer stores a tile; results of 16 bits to any rows by `source/store.cuh`."""
        if not self.is_plain or p.n * p.output_bytes % ROW_BYTES == 0:
            return super()._store_clk(p)
        # Of a turned tile with more columns of wgmma than C has rows, few rows are stored.
        rows = np.where(self.is_turned, np.minimum(1.0, p.m / self.shape.own_columns), 1.0)
        return self.boxes * self.odd_box_clk * rows
