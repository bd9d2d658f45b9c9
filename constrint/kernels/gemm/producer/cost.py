"""Predicted time of the producer kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.measured import MEASURED, Measured
from constrint.kernels.gemm.producer.tile import sums_in_turns
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.tma.cost import MainLoop, TmaModel
from constrint.kernels.gemm.units import OUTPUT_BYTES
from constrint.select.cost import CostColumns
from constrint.select.spec import Columns
from constrint.select.tile_work import derived


def producer_cost(
    gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any], constants: Measured = MEASURED
) -> CostColumns:
    """Predicted time of every configuration; the order of tiles makes no difference here."""

    def model(columns: Columns, blocks_per_sm: NDArray[Any]) -> TmaModel:
        return _model(gpu, product.dtype, columns, blocks_per_sm, constants)

    key = "producer", product.dtype, id(constants)
    return derived(columns, blocks_per_sm, key, model).cost(product)


def _model(gpu: GpuModel, dtype: str, columns: Columns, blocks_per_sm: NDArray[Any], constants: Measured) -> TmaModel:
    area = np.asarray(columns["tile_m"], dtype=np.float64) * columns["tile_n"]
    # Where consumers take turns, one stores while the other multiplies.
    stored = np.where(area <= sums_in_turns(dtype), 0.0, area * OUTPUT_BYTES[dtype])
    loop = MainLoop(
        start_s=constants.producer_s,
        matrix_share=constants.producer_share,
        read_columns=constants.producer_read_columns,
        warpgroup_clk=0.0,
        waits_for_sums=False,
        between_clk=stored / constants.producer_bytes_per_clk,
    )
    ones = np.ones_like(area)
    whole = {**columns, "split_k": ones, "persistent": ones}
    return TmaModel(gpu, dtype, whole, blocks_per_sm, loop, constants)
