"""The gradients of a product: by one plan; else by a plan of the pointwise pass and products; else by operations.

Operations can be differentiated again, which plans cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from constrint.kernels.gemm.backward.plans import BACKWARD, KEEPS_SUM
from constrint.kernels.gemm.operator import Multiply, Saved, SavedOptions, gradients
from constrint.kernels.launch.plan.table import IS_NEW, WANTS_GRAD

#: Gradients of a, b, the bias, and c or the sum; None where they are not needed.
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def planned(
    gradient: Tensor,
    a: Tensor,
    b: Tensor,
    saved: Tensor | None,
    options: tuple[float, str | None, torch.dtype | None, str],
    needs: Sequence[bool],
    *,
    is_linear: bool = False,
) -> Gradients | None:
    """The gradients by one plan; None where there is no plan, or the gradients will be differentiated again.

    Args:
        gradient: That of the result, (..., N).
        a: (..., K).
        b: (K, N), or the weight (N, K) of a linear layer.
        saved: The activation's argument, or its result for relu; None without an activation.
        options: (alpha, activation, dtype of the bias, kernel).
        needs: Whether the gradients of a, b, the bias and the sum before the activation are needed.
        is_linear: Whether b is a weight.
    """
    alpha, activation, bias_dtype, kernel = options
    of_a, of_b, of_bias, of_sum = needs
    if not of_bias:
        bias_dtype = None
    key = alpha, activation, of_a, of_b, bias_dtype, of_sum, is_linear, kernel
    out: Any = BACKWARD.call(False, key, gradient, a, b, saved)
    if out is IS_NEW:
        out = BACKWARD.learn(key, gradient, a, b, saved)
    if out is None or out is WANTS_GRAD:
        return None
    if of_a and of_b and not of_sum:
        return (*out, None, None) if bias_dtype is None else (*out, None)
    results = iter(out if type(out) is tuple else (out,))
    return (
        next(results) if of_a else None,
        next(results) if of_b else None,
        next(results) if bias_dtype is not None else None,
        next(results) if of_sum else None,
    )


@cache
def key_of_all(activation: str | None, bias_dtype: torch.dtype | None, *, is_linear: bool) -> tuple[Any, ...]:
    """`BackwardKey` of a product without factors, of which every operand has a gradient."""
    return (1.0, activation, True, True, bias_dtype, False, is_linear, "auto")


def all_planned(key: tuple[Any, ...], gradient: Tensor, a: Tensor, b: Tensor, saved: Tensor | None) -> Any:
    """`planned` for the gradients of every operand, by `key_of_all`, at less cost to the host: a tuple, or None."""
    out: Any = BACKWARD.call(False, key, gradient, a, b, saved)
    if out is IS_NEW:
        out = BACKWARD.learn(key, gradient, a, b, saved)
    return out if type(out) is tuple else None


def by_operations(multiply: Multiply, saved: Saved, gradient: Tensor, needs: Sequence[bool], kernel: str) -> Gradients:
    """Gradients of a, b, the bias and c by products, after a plan of the pointwise pass where there is one."""
    saved, gradient, shape = _one_product(saved, gradient)
    alpha, beta, activation, out_dtype = saved.facts.end
    of_bias = needs[2] and saved.facts.bias_dtype is not None
    grad_bias = None
    is_wider = needs[3] and gradient.dtype != saved.a.dtype  # the gradient of c, than that of the sum
    if (activation is not None or of_bias) and not is_wider and not torch.is_grad_enabled():
        kept = saved.z if activation in KEEPS_SUM else saved.output if activation else None
        options = alpha, activation, saved.facts.bias_dtype, kernel
        passed = None
        if activation is None or kept is not None:
            only = False, False, of_bias, activation is not None
            passed = planned(gradient, saved.a, saved.b, kept, options, only)
        if passed is not None:
            _, _, grad_bias, before = passed
            gradient = gradient if before is None else before
            facts = SavedOptions((alpha, beta, None, out_dtype), None, saved.facts.c_dtype)
            saved = saved._replace(facts=facts)
    grad_a, grad_b, rest, grad_c = gradients(multiply, saved, gradient, needs)
    grad_a = None if grad_a is None else grad_a.reshape(shape)
    grad_c = None if grad_c is None else grad_c.reshape(*shape[:-1], grad_c.shape[-1])
    return grad_a, grad_b, grad_bias if grad_bias is not None else rest, grad_c


def _one_product(saved: Saved, gradient: Tensor) -> tuple[Saved, Tensor, torch.Size]:
    """The same with one B for all rows as a product of two matrices, and the shape of a."""
    shape = saved.a.shape
    if saved.b.dim() == 2 and len(shape) > 2:
        c, output, z = (None if t is None else t.flatten(0, -2) for t in (saved.c, saved.output, saved.z))
        saved = saved._replace(a=saved.a.flatten(0, -2), c=c, output=output, z=z)
        gradient = gradient.flatten(0, -2)
    return saved, gradient, shape
