"""Predicted time of the descriptor kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.measured import MEASURED, Measured
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.tma.cost import MainLoop, TmaModel
from constrint.kernels.gemm.units import OUTPUT_BYTES
from constrint.select.cost import CostColumns
from constrint.select.spec import Columns
from constrint.select.tile_work import derived


def descriptor_cost(
    gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any], constants: Measured = MEASURED
) -> CostColumns:
    """Predicted time of every configuration; the order of tiles makes no difference here."""

    def model(columns: Columns, blocks_per_sm: NDArray[Any]) -> TmaModel:
        return _model(gpu, product.dtype, columns, blocks_per_sm, constants)

    key = "descriptor", product.dtype, id(constants)
    return derived(columns, blocks_per_sm, key, model).cost(product)


def _model(gpu: GpuModel, dtype: str, columns: Columns, blocks_per_sm: NDArray[Any], constants: Measured) -> TmaModel:
    subtile = np.where(np.asarray(columns["epilogue_subtile"]) > 1, constants.subtile_epilogue, 1.0)
    area = np.asarray(columns["tile_m"], dtype=np.float64) * columns["tile_n"]
    loop = MainLoop(
        start_s=0.0,
        matrix_share=constants.matrix_share,
        read_columns=constants.read_columns,
        warpgroup_clk=constants.warpgroup_clk,
        waits_for_sums=True,
        between_clk=area * OUTPUT_BYTES[dtype] / (constants.epilogue_bytes_per_clk / subtile),
    )
    return TmaModel(gpu, dtype, columns, blocks_per_sm, loop, constants)
