"""The scaled product in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from constrint.kernels.gemm.scaled.shape import BLOCK, DEPTH


def scaled_reference(
    a: Tensor,  # (M, K)
    b: Tensor,  # (K, N)
    scale_a: Tensor,  # (M, 1) or (M, K / 128)
    scale_b: Tensor,  # (1, N) or (K / 128, N / 128)
    bias: Tensor | None = None,  # (N,)
    out_dtype: torch.dtype = torch.bfloat16,
    *,
    sums: torch.dtype = torch.float32,
) -> Tensor:
    """(A * scale_a) @ (B * scale_b) + bias, added up in `sums`; scales of blocks are those of 128 numbers each."""
    in_blocks = scale_b.shape[0] != 1 or scale_a.shape[1] != 1 or scale_b.shape[1] != b.shape[1]
    wide_a, wide_b, of_a, of_b = a.to(sums), b.to(sums), scale_a.to(sums), scale_b.to(sums)
    if in_blocks:
        of_a = of_a.repeat_interleave(DEPTH, 1)[:, : a.shape[1]]
        of_b = of_b.repeat_interleave(DEPTH, 0)[: b.shape[0]].repeat_interleave(BLOCK, 1)[:, : b.shape[1]]
    out = (wide_a * of_a) @ (wide_b * of_b)
    return (out if bias is None else out + bias.to(sums)).to(out_dtype)
