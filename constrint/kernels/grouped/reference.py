"""Grouped products in plain PyTorch: a loop over experts, on any device, up to double precision."""

from __future__ import annotations

import torch
from torch import Tensor

from constrint.kernels.gemm.reference import gemm_reference


def clamped_ends(offsets: Tensor, rows: int) -> list[int]:
    """Where the rows of each expert end, as the kernel takes them: never before the expert ahead, never behind `rows`.

    Args:
        offsets: (experts,), on any device; read by the host.
        rows: Rows of A.
    """
    ends, last = [], 0
    for end in offsets.tolist():
        last = max(last, min(max(int(end), 0), rows))
        ends.append(last)
    return ends


def grouped_reference(
    a: Tensor,  # (M, K)
    b: Tensor,  # (experts, K, N)
    offsets: Tensor,  # (experts,)
    bias: Tensor | None = None,  # (N,) or (experts, N)
    alpha: float = 1.0,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """activation(alpha * a[rows of e] @ b[e] + bias[e]) for every expert e; zeros for rows of no expert.

    fp64 operands are multiplied in fp64, all others in fp32; results are rounded once.
    """
    out = a.new_zeros((a.shape[0], b.shape[2]), dtype=out_dtype or a.dtype)
    begin = 0
    for expert, end in enumerate(clamped_ends(offsets, a.shape[0])):
        if end > begin:
            own = bias if bias is None or bias.dim() == 1 else bias[expert]
            rows = gemm_reference(a[begin:end], b[expert], own, alpha=alpha, activation=activation, out_dtype=out.dtype)
            out[begin:end] = rows
        begin = end
    return out
