"""Gated pairs in plain PyTorch: the kernel's reference, on any device, up to double precision."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from constrint.kernels.gemm.reference import ACTIVATIONS
from constrint.select.workload import Workload


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


def random_inputs(workload: Workload, *, device: Any, seed: int) -> dict[str, Any]:
    """A (M, K), gate and up (K, N) with columns of unit length on average, biases (N,)."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[workload.dtype]
    m, n, k = (workload.sizes[name] for name in ("m", "n", "k"))
    draw = None if torch.device(device).type == "meta" else torch.Generator(device).manual_seed(seed)
    by_columns = bool(workload.options.get("transpose_b", 0))

    def matrix(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, generator=draw)

    weights = [matrix(*((n, k) if by_columns else (k, n))) / k**0.5 for _ in range(2)]
    gate, up = (w.to(dtype).T if by_columns else w.to(dtype) for w in weights)
    inputs = {"a": matrix(m, k).to(dtype), "gate": gate, "up": up}
    if workload.options.get("bias", 0):
        inputs |= {name: matrix(n).to(dtype) for name in ("bias_gate", "bias_up")}
    return inputs
