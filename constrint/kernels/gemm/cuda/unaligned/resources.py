"""What one block takes where operands are gathered: as the CUDA kernel for others, and lines as they lie in memory."""

from __future__ import annotations

from typing import Any

from constrint.kernels.gemm.cuda.resources import least_smem_bytes as least_of_others
from constrint.kernels.gemm.cuda.unaligned.gathered import line_blocks, raw_bytes
from constrint.kernels.gemm.product import Product
from constrint.select.spec import Vars


def least_smem_bytes(product: Product, v: Vars) -> Any:
    """Shared memory of a block with one buffer for the results of each consumer."""
    return least_of_others(product, v) + raw_bytes(v, line_blocks(v, product))
