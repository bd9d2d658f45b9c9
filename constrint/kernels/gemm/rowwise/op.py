"""`matmul_fp8` and `matmul_rms`: products whose ends look at whole rows, by the program of `matmul` and one pass.

A tile of a product has a part of its rows' columns, so that no kernel of `matmul` ends in these by itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.kernels.gemm.op import matmul
from constrint.kernels.gemm.rowwise.passes import in_fp8, inverse_norms


def matmul_fp8(
    a: Tensor, b: Tensor, bias: Tensor | None = None, *, scale: Tensor | None = None, **options: Any
) -> tuple[Tensor, Tensor]:
    """The product in fp8 (e4m3) for a next product, and what its scale follows from.

    The product is rounded to its own type first, then divided, saturated at 448 and rounded to fp8.

    Args:
        a, b, bias: Those of `matmul`.
        scale: One fp32 number that results are divided by, as of an earlier step; None: each row has its own.
        options: Others of `matmul`: `activation`, `alpha`, `beta`, `c`, `epilogue`, `operands`, `out_dtype`, `kernel`.

    Returns:
        (..., M, N) in fp8. In fp32 (..., M, 1): without `scale` the rows' scales, which `scaled_matmul` takes as
        `scale_a`; with it the greatest magnitude of each row, infinite where there is a NaN.

    Raises:
        UsageError: For a scale that is not one fp32 number. The result has no gradients.
    """
    if scale is not None and (not isinstance(scale, Tensor) or scale.numel() != 1 or scale.dtype != torch.float32):
        seen = f"{tuple(scale.shape)} of {scale.dtype}" if isinstance(scale, Tensor) else type(scale).__name__
        raise UsageError(f"matmul_fp8 takes a scale of one fp32 number, got {seen}.")
    with torch.no_grad():
        return in_fp8(_product(a, b, bias, options), scale)


def matmul_rms(
    a: Tensor, b: Tensor, bias: Tensor | None = None, *, eps: float = 1e-6, **options: Any
) -> tuple[Tensor, Tensor]:
    """The product and the inverse norms of its rows, 1 / sqrt(mean of squares + eps), as a next layer's norm needs.

    Args:
        a, b, bias: Those of `matmul`.
        eps: What is added to the mean of squares.
        options: Others of `matmul`; `c` with `beta=1.0` is a residual that is added first.

    Returns:
        (..., M, N), as `matmul` returns it; and (..., M, 1) in fp32. Neither has gradients.
    """
    with torch.no_grad():
        out = _product(a, b, bias, options)
        return out, inverse_norms(out, eps)


def _product(a: Tensor, b: Tensor, bias: Tensor | None, options: dict[str, Any]) -> Tensor:
    out = matmul(a, b, bias, **options)
    return out if out.is_contiguous() else out.contiguous()
