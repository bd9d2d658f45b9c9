"""`matmul`: matrix products with the configuration that the hardware model chooses, as a PyTorch operator.

`matmul` checks and shapes its arguments; `constrint::gemm` is the operator behind it, with a fake implementation and
gradients, so that `torch.compile(fullgraph=True)` sees one node. CPU tensors run the reference.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from constrint.errors import UnknownNameError
from constrint.kernels.gemm.dispatch import run_on_gpu
from constrint.kernels.gemm.reference import ACTIVATIONS, default_out_dtype, gemm_reference

#: Sizes and strides are 32-bit integers in the kernels.
MAX_SIZE = 2**31 - 1
FLOATS_8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)
OPERANDS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, *FLOATS_8, torch.int8)


def matmul(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Tensor | None = None,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """activation(alpha * a @ b + bias + beta * c), accumulated in 32 bits and rounded once.

    Dimensions and batches are those of `torch.matmul`. Operands may have any strides. fp32 operands are multiplied in
    tf32 where `torch.get_float32_matmul_precision()` allows it, else in fp32 (three tf32 passes on NVIDIA's units).

    Args:
        a: (..., M, K) or (K,): fp16, bf16, fp32, fp64, fp8 (e4m3) or int8.
        b: (..., K, N) or (K,), of the same dtype, on the same device.
        bias: (N,), added to every row.
        alpha: Factor of the product.
        beta: Factor of c; where it is 0, c is not read.
        c: Broadcastable to the result's shape.
        activation: "relu", "gelu" (exact) or "silu".
        out_dtype: Type of the result; None: fp8 gives bf16, int8 gives int32, anything else its own type.

    Returns:
        A new tensor (..., M, N), without the dimensions that a 1-D operand lacks. Sizes of 0 give what torch.matmul
        gives; non-finite values spread as they do there.

    Raises:
        RuntimeError: For shapes, dtypes or devices that do not go together, as torch.matmul does.
        TypeError: For arguments that are no tensors, or dtypes that are not supported.
        UnknownNameError: For an unknown activation.
    """
    _check_types(a, b, bias, c, out_dtype)
    if activation is not None and activation not in ACTIVATIONS:
        raise UnknownNameError("activation", str(activation), ACTIVATIONS)
    kind = out_dtype or default_out_dtype(a.dtype)
    _check_epilogue(a.dtype, kind, alpha, beta, bias, activation)
    wide_a = a.unsqueeze(0) if a.dim() == 1 else a
    wide_b = b.unsqueeze(1) if b.dim() == 1 else b
    _check_shapes(wide_a, wide_b, bias)
    batch = _common_batch(wide_a.shape[:-2], wide_b.shape[:-2])
    shape = (*batch, wide_a.shape[-2], wide_b.shape[-1])
    if c is not None:
        c = _expanded(c, shape) if beta != 0.0 else None
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
    out: Tensor = torch.ops.constrint.gemm(rows, stacked, bias, c, float(alpha), float(beta), activation, kind)
    out = out.reshape(shape)
    if a.dim() == 1:
        out = out.squeeze(-2)
    return out.squeeze(-1) if b.dim() == 1 else out


def _check_types(a: Any, b: Any, bias: Any, c: Any, out_dtype: Any) -> None:
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
            known = ", ".join(str(dtype).removeprefix("torch.") for dtype in OPERANDS)
            raise TypeError(f"matmul: {name} is {value.dtype}; supported are {known}.")
    if a.dtype != b.dtype:
        raise RuntimeError(f"matmul: a and b must have the same dtype, got {a.dtype} and {b.dtype}.")
    if out_dtype is not None and not isinstance(out_dtype, torch.dtype):
        raise TypeError(f"matmul: out_dtype must be a torch.dtype, got {type(out_dtype).__name__}.")


def _check_epilogue(
    dtype: torch.dtype, kind: torch.dtype, alpha: float, beta: float, bias: Any, activation: str | None
) -> None:
    results = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    if kind not in results and not (dtype == torch.int8 and kind == torch.int32):
        raise TypeError(f"matmul: out_dtype {kind} of {dtype} operands is not supported; use a float of 16 to 64 bits.")
    is_plain = alpha == 1.0 and beta == 0.0 and bias is None and activation is None
    if not kind.is_floating_point and not is_plain:
        raise TypeError(
            "matmul: int8 operands with alpha, beta, bias or activation need a floating out_dtype, say torch.float16."
        )


def _check_shapes(a: Tensor, b: Tensor, bias: Tensor | None) -> None:
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


def _common_batch(of_a: tuple[int, ...], of_b: tuple[int, ...]) -> tuple[int, ...]:
    if of_a == of_b:
        return tuple(of_a)
    try:
        return tuple(torch.broadcast_shapes(of_a, of_b))  # type: ignore[no-untyped-call]
    except RuntimeError:
        raise RuntimeError(
            f"matmul: the batches of a and b cannot be broadcast together: {tuple(of_a)} and {tuple(of_b)}."
        ) from None


def _expanded(c: Tensor, shape: tuple[int, ...]) -> Tensor:
    try:
        return c.expand(shape)
    except RuntimeError:
        seen = tuple(c.shape)
        raise RuntimeError(f"matmul: c of shape {seen} cannot be broadcast to the result's {shape}.") from None


torch.library.define(
    "constrint::gemm",
    "(Tensor a, Tensor b, Tensor? bias, Tensor? c, float alpha, float beta, str? activation, ScalarType out_dtype)"
    " -> Tensor",
)


torch.library.impl("constrint::gemm", "CUDA", run_on_gpu)


@torch.library.impl("constrint::gemm", "CPU")
def _on_cpu(*arguments: Any) -> Tensor:
    return gemm_reference(*arguments).contiguous()


@torch.library.register_fake("constrint::gemm")  # type: ignore[untyped-decorator]
def _fake(a: Tensor, b: Tensor, *end: Any) -> Tensor:
    return a.new_empty((a.shape[0], a.shape[1], b.shape[2]), dtype=end[-1])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, bias, c, alpha, beta, activation, out_dtype = inputs
    # Only relu's derivative can be read off its result; for the others the product is computed again.
    needs_sum = activation not in (None, "relu")
    ctx.save_for_backward(a, b, bias if needs_sum else None, c if needs_sum else None, output if activation else None)
    ctx.factors = (alpha, beta, activation, out_dtype)
    ctx.dtypes = (bias.dtype if bias is not None else None, c.dtype if c is not None else None)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    a, b, bias, c, output = ctx.saved_tensors
    alpha, beta, activation, out_dtype = ctx.factors
    needs_a, needs_b, needs_bias, needs_c = ctx.needs_input_grad[:4]
    gemm = torch.ops.constrint.gemm
    if activation == "relu":
        gradient = torch.where(output > 0, gradient, torch.zeros_like(gradient))
    elif activation is not None:
        z = gemm(a, b, bias, c, alpha, beta, None, out_dtype)
        gradient = torch.ops.aten.gelu_backward(gradient, z) if activation == "gelu" else _silu_backward(gradient, z)
    narrow = gradient.to(a.dtype)
    grad_a = gemm(narrow, b.transpose(1, 2), None, None, alpha, 0.0, None, a.dtype) if needs_a else None
    grad_b = gemm(a.transpose(1, 2), narrow, None, None, alpha, 0.0, None, b.dtype) if needs_b else None
    grad_bias = gradient.sum((0, 1), dtype=_wide(gradient.dtype)).to(ctx.dtypes[0]) if needs_bias else None
    grad_c = (beta * gradient).to(ctx.dtypes[1]) if needs_c else None
    return grad_a, grad_b, grad_bias, grad_c, None, None, None, None


def _silu_backward(gradient: Tensor, z: Tensor) -> Tensor:
    """As aten::silu_backward, which has no derivative of its own."""
    wide = z.to(_wide(z.dtype))
    share = torch.sigmoid(wide)
    return (gradient * (share * (1 + wide * (1 - share)))).to(gradient.dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


torch.library.register_autograd("constrint::gemm", _backward, setup_context=_save)
