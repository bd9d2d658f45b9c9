"""GPUs and operands that the TMA unit supports, and widths of tiles that are computed in two parts. No torch."""

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
    """Return why no kernel can load a product's operands through the TMA unit; empty if one can."""
    if not has_tma(gpu):
        return f"{gpu.arch.target} has no TMA unit"
    if product.a.is_expanded or product.b.is_expanded:
        return "the TMA unit would load a copy of an operand that is repeated in memory, larger than the operand"
    return ""


def rest_columns(tile_n: Any) -> Any:
    """Return the columns of a tile beyond the largest power of two in its width; 0 for a power of two.

    Triton's blocks are powers of two, so that a tile of 192 columns is computed as 128 and 64 columns, which share A's
    slices.

    Args:
        tile_n: The width: a power of two, or three times one; a number, an expression or a column of numbers.
    """
    is_threefold = (3 - tile_n % 3) // 3
    return is_threefold * (tile_n // 3)
