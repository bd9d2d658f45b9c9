"""The scaled product in plain PyTorch, random operands and exact results for checking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def random_operands(m: int, n: int, k: int, *, in_blocks: bool, device: Any, seed: int) -> dict[str, Tensor]:
    """A and B along K, and positive scales, by name; without data on `meta`."""
    generator = None if torch.device(device).type == "meta" else torch.Generator(device).manual_seed(seed)
    of_k, of_n = (-(-k // DEPTH), -(-n // BLOCK)) if in_blocks else (1, n)
    shapes = {"scale_a": (m, of_k), "scale_b": (of_k, of_n)}
    drawn = {name: torch.rand(shape, device=device, generator=generator) + 0.5 for name, shape in shapes.items()}
    a, b = (torch.randn(rows, k, device=device, generator=generator).to(torch.float8_e4m3fn) for rows in (m, n))
    return {"a": a, "b": b.T, **drawn}


def empty_result(a: Tensor, b: Tensor, *, is_wide: bool) -> Tensor:
    """C (M, N) in bf16, or in fp32."""
    kind = torch.float32 if is_wide else torch.bfloat16
    return torch.empty((a.shape[0], b.shape[1]), dtype=kind, device=a.device)


def exact_result(operands: Mapping[str, Tensor]) -> Tensor:
    """C in fp64."""
    names = ("a", "b", "scale_a", "scale_b")
    a, b, scale_a, scale_b = (operands[name] for name in names)
    return scaled_reference(a, b, scale_a, scale_b, out_dtype=torch.float64, sums=torch.float64)
