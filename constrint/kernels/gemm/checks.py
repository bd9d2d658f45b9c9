"""Checks of the arguments of `matmul`, and its operands as a batch of plain products."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from constrint.errors import UnknownNameError
from constrint.kernels.gemm.reference import ACTIVATIONS, default_out_dtype

#: Sizes and strides are 32-bit integers in the kernels.
MAX_SIZE = 2**31 - 1
FLOATS_8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)
OPERANDS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, *FLOATS_8, torch.int8)


@dataclass(frozen=True)
class Stacked:
    """A call of `matmul` as products of three axes.

    Args:
        a: (batch, M, K).
        b: (batch, K, N).
        c: (batch, M, N), or None.
        result_shape: The shape that the caller gets.
        kind: The result's dtype.
    """

    a: Tensor
    b: Tensor
    c: Tensor | None
    result_shape: tuple[int, ...]
    kind: torch.dtype


def stack(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    c: Tensor | None,
    alpha: float,
    beta: float,
    activation: str | None,
    out_dtype: torch.dtype | None,
) -> Stacked:
    """Check the arguments of `matmul` and shape its operands; copies only where no view will do.

    Raises:
        RuntimeError, TypeError, UnknownNameError: For arguments that do not go together; see `matmul`.
    """
    check_types(a, b, bias, c, out_dtype)
    if activation is not None and activation not in ACTIVATIONS:
        raise UnknownNameError("activation", str(activation), ACTIVATIONS)
    kind = out_dtype or default_out_dtype(a.dtype)
    check_epilogue(a.dtype, kind, alpha, beta, bias, activation)
    wide_a = a.unsqueeze(0) if a.dim() == 1 else a
    wide_b = b.unsqueeze(1) if b.dim() == 1 else b
    check_shapes(wide_a, wide_b, bias)
    batch = common_batch(wide_a.shape[:-2], wide_b.shape[:-2])
    shape = (*batch, wide_a.shape[-2], wide_b.shape[-1])
    if c is not None:
        c = expanded(c, shape) if beta != 0.0 else None
    num_products = math.prod(batch)
    rows = wide_a.expand(*batch, *wide_a.shape[-2:]).reshape(num_products, *wide_a.shape[-2:])
    if math.prod(wide_b.shape[:-2]) == 1:
        # One B for all: the rows of every product are rows of one.
        rows = rows.reshape(1, num_products * rows.shape[1], rows.shape[2])
        stacked = wide_b.reshape(1, *wide_b.shape[-2:])
    else:
        stacked = wide_b.expand(*batch, *wide_b.shape[-2:]).reshape(num_products, *wide_b.shape[-2:])
    if c is not None:
        c = c.reshape(rows.shape[0], rows.shape[1], shape[-1])
    result_shape = shape
    if a.dim() == 1:
        result_shape = (*result_shape[:-2], result_shape[-1])
    if b.dim() == 1:
        result_shape = result_shape[:-1]
    return Stacked(rows, stacked, c, result_shape, kind)


def check_types(a: Any, b: Any, bias: Any, c: Any, out_dtype: Any) -> None:
    """Raise for arguments that are no tensors, lie on several devices, or have a dtype that is not supported."""
    for name, value in (("a", a), ("b", b), ("bias", bias), ("c", c)):
        if value is None and name in ("bias", "c"):
            continue
        if not isinstance(value, Tensor):
            raise TypeError(f"matmul: {name} must be a tensor, got {type(value).__name__}.")
        if value.device != a.device:
            raise RuntimeError(
                f"matmul: all tensors must be on one device, but a is on {a.device} and {name} on {value.device}."
            )
    for name, value in (("a", a), ("b", b)):
        if value.dtype not in OPERANDS:
            supported = ", ".join(str(dtype).removeprefix("torch.") for dtype in OPERANDS)
            raise TypeError(f"matmul: {name} is {value.dtype}; supported are {supported}.")
    if a.dtype != b.dtype:
        raise RuntimeError(f"matmul: a and b must have the same dtype, got {a.dtype} and {b.dtype}.")
    if out_dtype is not None and not isinstance(out_dtype, torch.dtype):
        raise TypeError(f"matmul: out_dtype must be a torch.dtype, got {type(out_dtype).__name__}.")


def check_epilogue(
    dtype: torch.dtype, kind: torch.dtype, alpha: float, beta: float, bias: Any, activation: str | None
) -> None:
    """Raise for a dtype of the result or an epilogue that does not go with the operands' dtype."""
    results = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    if kind not in results and not (dtype == torch.int8 and kind == torch.int32):
        raise TypeError(f"matmul: out_dtype {kind} of {dtype} operands is not supported; use a float of 16 to 64 bits.")
    is_plain = alpha == 1.0 and beta == 0.0 and bias is None and activation is None
    if not kind.is_floating_point and not is_plain:
        raise TypeError(
            "matmul: int8 operands with alpha, beta, bias or activation need a floating out_dtype, say torch.float16."
        )


def check_shapes(a: Tensor, b: Tensor, bias: Tensor | None) -> None:
    """Raise for sizes that do not go together, or are too large."""
    for name, value in (("a", a), ("b", b)):
        if value.dim() < 2:
            raise RuntimeError(f"matmul: {name} must have at least one dimension, got a scalar.")
        if max(value.shape) > MAX_SIZE:
            raise RuntimeError(
                f"matmul: sizes go up to {MAX_SIZE}, but {name} is {tuple(value.shape)}. Split the product."
            )
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError(
            f"matmul: a's last size and b's second to last must be equal, got {a.shape[-1]} and {b.shape[-2]} "
            f"({tuple(a.shape)} @ {tuple(b.shape)})."
        )
    if bias is not None and bias.shape != (b.shape[-1],):
        raise RuntimeError(f"matmul: bias must have shape ({b.shape[-1]},), b's last size, got {tuple(bias.shape)}.")


def common_batch(of_a: tuple[int, ...], of_b: tuple[int, ...]) -> tuple[int, ...]:
    """The batch that the batches of A and B are broadcast to."""
    if of_a == of_b:
        return tuple(of_a)
    try:
        return tuple(torch.broadcast_shapes(of_a, of_b))  # type: ignore[no-untyped-call]
    except RuntimeError:
        raise RuntimeError(
            f"matmul: the batches of a and b cannot be broadcast together: {tuple(of_a)} and {tuple(of_b)}."
        ) from None


def expanded(c: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`c` broadcast to the shape of the result."""
    try:
        return c.expand(shape)
    except RuntimeError:
        seen = tuple(c.shape)
        raise RuntimeError(f"matmul: c of shape {seen} cannot be broadcast to the result's {shape}.") from None
