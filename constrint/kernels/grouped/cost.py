"""Predicted time of grouped products: that of the CUDA GEMM for a batch, with tiles that rows of an expert do not fill.

The constants are those of `gemm/cuda/constants.json`, but for the share of the DRAM's rate: weights are read in large
pieces, once each (`python -m benchmarks.gemm.grouped`: 0.86 to 0.93 of the data sheet's on an H100 SXM5).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.cost import CONSTANTS, CudaModel
from constrint.kernels.gemm.product import Product
from constrint.select.cost import CostColumns
from constrint.select.spec import Columns
from constrint.select.tile_work import derived

#: Bytes of a block's shared memory for each expert: where its rows end, and its units.
EXPERT_BYTES = 8
#: The most experts.
MOST_EXPERTS = 1024
GROUPED = replace(CONSTANTS, batch_dram_share=0.9)
#: Tiles of an expert beyond those that its rows would fill: its last one is half full, wherever its rows end.
UNFILLED = 0.5


class GroupedModel(CudaModel):
    """`CudaModel` where the number of rows of each product is random and its mean is known."""

    def _tiles(self, p: Product) -> tuple[Any, Any]:
        """Rows and columns of tiles of one product, on average."""
        return np.maximum(p.m / self.over_m + UNFILLED, 1.0), np.ceil(p.n / self.over_n)


def grouped_cost(gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
    """Predicted time of every configuration; `product` is the batch of equal products with the mean number of rows."""

    def model(columns: Columns, blocks_per_sm: NDArray[Any]) -> GroupedModel:
        # One product is a batch, too: its rows may end anywhere.
        return GroupedModel(gpu, replace(product, batch=max(2, product.batch)), columns, GROUPED)

    key = "grouped", product.dtype, product.a, product.b, product.has_bias
    return derived(columns, blocks_per_sm, key, model).cost(product)
