"""Which GPUs and operands the kernels that load through the TMA unit are for, and how wide tiles are put together.

No torch, no triton.
"""

from __future__ import annotations

from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import Product

#: Widths of output tiles that are computed in two parts, since Triton's blocks are powers of two: 192 is 128 and 64.
TWO_PART_COLUMNS = (192, 384, 96)


def has_tma(gpu: GpuModel) -> bool:
    """Whether the GPU has a TMA unit that Triton's tensor descriptors use."""
    return gpu.traits.has_tensor_descriptors


def tma_refusal(gpu: GpuModel, product: Product) -> str:
    """Why no kernel that loads through the TMA unit computes a product; empty if one does."""
    if not has_tma(gpu):
        return f"{gpu.arch.target} has no TMA unit"
    if product.a.is_expanded or product.b.is_expanded:
        return "the TMA unit would load a copy of an operand that is repeated in memory, larger than the operand"
    return ""


def rest_columns(tile_n: Any) -> Any:
    """Columns of a tile beyond the widest power of two in it, of a number, an expression or a column of numbers.

    Triton's blocks are powers of two, so a tile of 192 columns is computed as 128 and 64 that share A's slices. Widths
    are a power of two or three times one.
    """
    is_threefold = (3 - tile_n % 3) // 3
    return is_threefold * (tile_n // 3)
