"""Nodes of autograd of layers, activation(x @ weight^T + bias), and of products that end in an activation alone.

A layer's node takes the weight (N, K) itself, so that no node of its transpose runs in the backward pass. The product
is made before its node, by a plan. Gradients are one plan (`backward/plans.py`). Needs torch.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from constrint.kernels.gemm.backward.plans import KEEPS_SUM, activated
from constrint.kernels.gemm.backward.run import all_planned, by_operations, key_of_all, planned
from constrint.kernels.gemm.implementations import AUTO
from constrint.kernels.gemm.operator import Multiply, Saved, SavedOptions
from constrint.kernels.launch.plan.nodes import apply_of

#: The product of a node, and what multiplies where no plan makes its gradients.
Made = tuple[Tensor, Multiply]


def recorded(
    x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, activation: str | None, multiply: Multiply, *,
    is_linear: bool = True,
) -> Tensor:  # fmt: skip
    """The result of a call whose product is `out`, with its node.

    Args:
        x: (..., K).
        weight: (N, K); of a product that is no layer's the right operand (..., K, N), with an activation.
        bias: (N,).
        out: The product with the bias; of relu its result. It is the result itself, or saved.
        activation: A key of `ACTIVATIONS`, or None.
        multiply: Multiplies where no plan makes the gradients.
        is_linear: Whether the product is a layer's.
    """
    made = out if out.grad_fn is None else out.detach(), multiply  # in a tuple: no operand of the node
    result: Tensor
    if activation is None:
        result = _apply_plain(x, weight, bias, made)
    else:
        result = _apply(x, weight, bias, made, activation, is_linear)
    return result


#: `needs_input_grad` of a layer, of which every operand has a gradient, without and with a bias.
_BOTH, _EVERY = (True, True, False, False), (True, True, True, False)


class _PlainLayer(torch.autograd.Function):
    """A layer without an activation, whose result a plan has made; its gradients are one plan, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, made: Made) -> Tensor:
        out, ctx.multiply = made
        ctx.bias_dtype = None if bias is None else bias.dtype
        ctx.save_for_backward(x, weight)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        needs, bias_dtype = ctx.needs_input_grad, ctx.bias_dtype
        if needs == (_EVERY if bias_dtype is not None else _BOTH):
            key = key_of_all(None, bias_dtype, is_linear=True)
            every = all_planned(key, gradient, x, weight, None)
            if every is not None:
                return (*every, None) if bias_dtype is not None else (*every, None, None)
        needs = (*needs[:3], False)
        found = planned(gradient, x, weight, None, (1.0, None, bias_dtype, AUTO), needs, is_linear=True)
        if found is None:
            saved = Saved(x, weight.t(), None, None, None, SavedOptions((1.0, 0.0, None, x.dtype), bias_dtype, None))
            found = _by_operations(ctx.multiply, saved, gradient, needs)
        return *found[:3], None


class _Layer(torch.autograd.Function):
    """A layer, or another product, with an activation, whose product a plan has made."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, made: Made, activation: str, is_linear: bool
    ) -> Tensor:
        kept, ctx.multiply = made  # the activation's argument; of relu the result
        ctx.activation, ctx.is_linear = activation, is_linear
        ctx.save_for_backward(x, weight, bias, kept)
        return activated(kept, activation) if activation in KEEPS_SUM else kept

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, bias, kept = ctx.saved_tensors
        needs = (*ctx.needs_input_grad[:3], False)
        activation, is_linear, bias_dtype = ctx.activation, ctx.is_linear, None if bias is None else bias.dtype
        found = planned(gradient, x, weight, kept, (1.0, activation, bias_dtype, AUTO), needs, is_linear=is_linear)
        if found is None:
            facts = SavedOptions((1.0, 0.0, activation, x.dtype), bias_dtype, None)
            output, z = (None, kept) if activation in KEEPS_SUM else (kept, None)
            right = weight.t() if is_linear else weight
            saved = Saved(x, right, bias, None, output, facts, z)
            found = _by_operations(ctx.multiply, saved, gradient, needs, is_linear=is_linear)
        return *found[:3], None, None, None


def _by_operations(
    multiply: Multiply, saved: Saved, gradient: Tensor, needs: tuple[bool, ...], *, is_linear: bool = True
) -> Any:
    """Gradients of x, the weight (of a product that is no layer's the right operand), the bias and c by operations."""
    found = by_operations(partial(multiply, kernel=AUTO), saved, gradient, needs, AUTO)
    return found if found[1] is None or not is_linear else (found[0], found[1].t(), *found[2:])


_apply_plain, _apply = apply_of(_PlainLayer), apply_of(_Layer)
