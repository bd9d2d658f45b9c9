"""Gradients of a product from its operands, for the operator and for `matmul`.

They consist of products and of differentiable operations alone, so they can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

#: (alpha, beta, activation, out_dtype).
End = tuple[float, float, str | None, "torch.dtype"]
#: Takes a, b, bias, c and the four of `End`.
Multiply = Callable[..., Tensor]


class SavedOptions(NamedTuple):
    """Options of a product that its gradients need: everything that is no tensor."""

    end: End
    bias_dtype: torch.dtype | None
    c_dtype: torch.dtype | None


class Saved(NamedTuple):
    """Tensors and options that a product saves for its gradients; tensors that they do not need are None."""

    a: Tensor  # (..., M, K)
    b: Tensor  # (..., K, N), with the batch of a
    bias: Tensor | None
    c: Tensor | None
    output: Tensor | None
    facts: SavedOptions


def saved_of(
    a: Tensor, b: Tensor, bias: Tensor | None, c: Tensor | None, end: End, output: Tensor
) -> tuple[tuple[Tensor | None, ...], SavedOptions]:
    """The tensors to save, in the order of `Saved`, and the facts."""
    activation = end[2]
    # Only relu's derivative can be read off its result; for the others the product is computed again.
    needs_sum = activation not in (None, "relu")
    facts = SavedOptions(end, None if bias is None else bias.dtype, None if c is None else c.dtype)
    tensors = (a, b, bias if needs_sum else None, c if needs_sum else None, output if activation else None)
    return tensors, facts


def gradients(
    multiply: Multiply, saved: Saved, gradient: Tensor, needs: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of a, b, bias and c; None where they are not needed."""
    a, b = saved.a, saved.b
    alpha, beta, activation, out_dtype = saved.facts.end
    if activation == "relu":
        assert saved.output is not None
        gradient = torch.where(saved.output > 0, gradient, torch.zeros_like(gradient))
    elif activation is not None:
        z = multiply(a, b, saved.bias, saved.c, alpha, beta, None, out_dtype)
        gradient = torch.ops.aten.gelu_backward(gradient, z) if activation == "gelu" else _silu_backward(gradient, z)
    narrow = gradient if gradient.dtype == a.dtype else gradient.to(a.dtype)
    grad_a: Any = multiply(narrow, b.mT, None, None, alpha, 0.0, None, a.dtype) if needs[0] else None
    grad_b: Any = multiply(a.mT, narrow, None, None, alpha, 0.0, None, b.dtype) if needs[1] else None
    grad_bias, grad_c = None, None
    if needs[2] and saved.facts.bias_dtype is not None:
        every_row = tuple(range(gradient.dim() - 1))
        grad_bias = gradient.sum(every_row, dtype=_wide(gradient.dtype)).to(saved.facts.bias_dtype)
    if needs[3] and saved.facts.c_dtype is not None:
        grad_c = (beta * gradient).to(saved.facts.c_dtype)
    return grad_a, grad_b, grad_bias, grad_c


def _silu_backward(gradient: Tensor, z: Tensor) -> Tensor:
    """Compute aten::silu_backward from operations that can be differentiated again."""
    wide = z.to(_wide(z.dtype))
    share = torch.sigmoid(wide)
    return (gradient * (share * (1 + wide * (1 - share)))).to(gradient.dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
