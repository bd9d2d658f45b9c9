"""Gated pairs in plain PyTorch: the kernel's reference, on any device, up to double precision."""

from __future__ import annotations

import torch
from torch import Tensor

from constrint.kernels.gemm.reference import ACTIVATIONS


def gated_reference(
    a: Tensor,
    gate: Tensor,
    up: Tensor,
    bias_gate: Tensor | None = None,
    bias_up: Tensor | None = None,
    activation: str = "silu",
) -> Tensor:
    """activation(a @ gate + bias_gate) * (a @ up + bias_up), accumulated in fp32 or fp64 and rounded once.

    Args:
        a: (..., K).
        gate, up: (K, N).
        bias_gate, bias_up: (N,), or None.
        activation: A key of ACTIVATIONS.

    Returns:
        (..., N) in the dtype of `a`.
    """
    wide = torch.float64 if a.dtype == torch.float64 else torch.float32
    first, second = a.to(wide) @ gate.to(wide), a.to(wide) @ up.to(wide)
    first = first if bias_gate is None else first + bias_gate.to(wide)
    second = second if bias_up is None else second + bias_up.to(wide)
    return (ACTIVATIONS[activation](first) * second).to(a.dtype)
