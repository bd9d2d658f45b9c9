"""The GEMM in plain PyTorch: the kernels' reference, on any device, up to double precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional


def _gelu_tanh(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(QUICK * x)


def _relu2(x: Tensor) -> Tensor:
    return functional.relu(x).square()


#: The factor of x in quick_gelu's sigmoid.
QUICK = 1.702
#: Activations by the names of `epilogue/activations.py`; each takes and returns a tensor.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "gelu_tanh": _gelu_tanh,
    "sigmoid": torch.sigmoid,
    "quick_gelu": _quick_gelu,
    "relu2": _relu2,
    "tanh": torch.tanh,
}


def activation_gradient(activation: str, gradient: Tensor, z: Tensor) -> Tensor:
    """The gradient of what was activated, from operations that can be differentiated again.

    Args:
        activation: A key of ACTIVATIONS.
        gradient: That of the result.
        z: What was activated.

    Returns:
        A tensor of the gradient's dtype, computed in fp32 or fp64.
    """
    if activation in ("gelu", "gelu_tanh"):
        approximate = "tanh" if activation == "gelu_tanh" else "none"
        slope: Tensor = torch.ops.aten.gelu_backward(gradient, z, approximate=approximate)
        return slope
    wide = torch.float64 if z.dtype == torch.float64 else torch.float32
    return (gradient * _SLOPES[activation](z.to(wide))).to(gradient.dtype)


def _slope_of_times_sigmoid(z: Tensor, factor: float = 1.0) -> Tensor:
    share = torch.sigmoid(factor * z)
    return share * (1 + factor * z * (1 - share))


#: Derivatives of activations but gelu, which torch has an operator for.
_SLOPES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda z: (z > 0).to(z.dtype),
    "silu": _slope_of_times_sigmoid,
    "sigmoid": lambda z: torch.sigmoid(z) * (1 - torch.sigmoid(z)),
    "quick_gelu": partial(_slope_of_times_sigmoid, factor=QUICK),
    "relu2": lambda z: 2 * functional.relu(z),
    "tanh": lambda z: 1 - torch.tanh(z).square(),
}

#: Names of dtypes in the space; fp32 operands go through the tf32 units.
DTYPE_NAMES = {
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "tf32",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e4m3fnuz: "fp8",
    torch.int8: "int8",
}


def gemm_reference(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    c: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """activation(alpha * a @ b + bias + beta * c), accumulated in 32 bits or more and rounded once.

    Args:
        a: (..., M, K).
        b: (..., K, N).
        bias: (N,), or None.
        c: Broadcastable to (..., M, N); not read where beta is 0.
        alpha: Factor of the product.
        beta: Factor of c.
        activation: A key of ACTIVATIONS, or None.
        out_dtype: Type of the result; None: fp8 gives bf16, int8 gives int32, anything else its own type.

    Returns:
        (..., M, N). fp64 operands are multiplied in fp64, integers exactly (modulo 2^32), all others in fp32.
    """
    kind = out_dtype or default_out_dtype(a.dtype)
    if not a.is_floating_point() and not kind.is_floating_point:
        return _wrapped_product(a, b).to(kind)
    wide = torch.float64 if torch.float64 in (a.dtype, kind) else torch.float32
    z = _wrapped_product(a, b).to(wide) if not a.is_floating_point() else a.to(wide) @ b.to(wide)
    if alpha != 1.0:
        z = alpha * z
    if bias is not None:
        z = z + bias.to(wide)
    if c is not None and beta != 0.0:
        z = z + beta * c.to(wide)
    if activation is not None:
        z = ACTIVATIONS[activation](z)
    return z.to(kind)


def default_out_dtype(dtype: torch.dtype) -> torch.dtype:
    """Default dtype of the result: fp8 gives bf16, int8 gives int32, anything else itself."""
    if dtype == torch.int8:
        return torch.int32
    return torch.bfloat16 if dtype.is_floating_point and dtype.itemsize == 1 else dtype


def _wrapped_product(a: Tensor, b: Tensor) -> Tensor:
    """Product of integers, exact modulo 2^32. CUDA has no integer matmul in torch; doubles hold the sums exactly."""
    if a.device.type == "cpu":
        return a.to(torch.int32) @ b.to(torch.int32)
    return (a.double() @ b.double()).to(torch.int64).to(torch.int32)
