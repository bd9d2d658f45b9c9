"""`linear`: activation(x @ weight^T + bias) by the plans of `matmul`, at little cost to the host.

A table of its own takes the weight as a layer has it, (N, K), so that no call makes a view of it. Gradients are one
plan (`backward/plans.py`). None stands for calls that torch runs itself: tensors on other devices, other dtypes,
and calls that are traced, transformed or observed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from constrint.kernels.gemm.backward.plans import KEEPS_SUM, activated
from constrint.kernels.gemm.backward.run import all_planned, by_operations, key_of_all, planned
from constrint.kernels.gemm.implementations import AUTO
from constrint.kernels.gemm.op import _multiply as multiply
from constrint.kernels.gemm.operator import PLAIN, Saved, SavedOptions, plan_key
from constrint.kernels.gemm.reference import ACTIVATIONS
from constrint.kernels.launch.plan.nodes import apply_of
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import IS_NEW, WANTS_GRAD, PlanTable

if TYPE_CHECKING:
    from constrint.kernels.launch.plan.recipe import RecordedCall

#: Dtypes of layers that run by plans.
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
#: Shapes of inputs that have plans for one weight, at most, and shapes that are remembered.
MOST_SHAPES, CAPACITY = 64, 65536


def _plan_of_linear(tensors: tuple[Tensor | None, ...], end: Any) -> RecordedCall:
    """The plan of a layer on (x, weight, bias, None): that of the product on the transposed weight.

    Raises:
        NotPlannedError: When the shapes are not those of a layer, so that torch's own error is raised, or when no
            kernel computes the product.
    """
    from constrint.kernels.gemm.first_call import plan_of_call  # loaded where no plan is on disk

    x, weight, bias, _ = tensors
    if x is None or weight is None or not is_layer(x, weight, bias):
        raise NotPlannedError("these are no operands of a layer")
    return plan_of_call((x, weight.t(), bias, None), end)


def _library_function(stated: Mapping[str, Any]) -> Callable[..., Tensor]:
    from constrint.kernels.gemm.library.planned import planned_function  # loaded where a plan calls torch

    multiply = planned_function(stated)
    return lambda x, weight, bias, c: multiply(x, weight.t(), bias, c)


LINEARS = PlanTable("linear", _plan_of_linear, torch.get_float32_matmul_precision, _library_function)


def is_layer(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether x (..., K), weight (N, K) and bias (N,) go together, and have one dtype that layers run in by plans."""
    if x.dim() < 2 or weight.dim() != 2 or x.shape[-1] != weight.shape[1] or x.dtype != weight.dtype:
        return False
    is_bias = bias is None or (bias.dim() == 1 and bias.shape[0] == weight.shape[0] and bias.dtype == x.dtype)
    return is_bias and x.dtype in DTYPES and x.numel() > 0 and weight.numel() > 0


def end_of(activation: str | None) -> tuple[Any, ...] | None:
    """The key of a layer's plans beside its tensors."""
    return plan_key(1.0, 0.0, activation, None, AUTO, None)


def recurs(x: Tensor, weight: Tensor, end: Any) -> bool:
    """Whether calls on operands of these shapes run by plans: from the second one on.

    To choose and to compile takes longer than many calls, so that sequences of ever new lengths must not pay for it.
    """
    key = x.shape, weight.shape, x.dtype, end
    has_plans = _RECURRING.get(key)
    if has_plans:
        return True
    if has_plans is None:
        if len(_RECURRING) >= CAPACITY:
            _RECURRING.clear()
            _NUM_PLANNED.clear()
        _RECURRING[key] = False
        return False
    number = _NUM_PLANNED.get(key[1:], 0)
    if number >= MOST_SHAPES:
        return False
    _NUM_PLANNED[key[1:]] = number + 1
    _RECURRING[key] = True
    return True


#: Shapes that were seen, and whether their calls run by plans; the number of those that do, by weight.
_RECURRING: dict[tuple[Any, ...], bool] = {}
_NUM_PLANNED: dict[tuple[Any, ...], int] = {}


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, end: Any = PLAIN) -> Tensor | None:
    """activation(x @ weight^T + bias), accumulated in 32 bits; None where torch has to run the call.

    The first call of a shape is torch's; see `recurs`.

    Args:
        x: (..., K).
        weight: (N, K), of the same dtype, on the same device.
        bias: (N,), likewise, or None.
        end: `end_of(activation)`.
    """
    out: Any = LINEARS.call(False, end, x, weight, bias, None)
    if out is WANTS_GRAD:
        return _with_gradients(x, weight, bias, end)
    if out is IS_NEW:
        out = LINEARS.learn(end, x, weight, bias, None) if recurs(x, weight, end) else None
    result: Tensor | None = out
    return result


def _with_gradients(x: Tensor, weight: Tensor, bias: Tensor | None, end: Any) -> Tensor | None:
    """`linear` where autograd records the call.

    The product runs before its node is made, so that a call with a plan is one look-up.
    """
    # The argument of these activations is stored for the gradients, as torch stores it: the product ends before them.
    first = PLAIN if end is PLAIN or end[2] in KEEPS_SUM else end
    out: Any = LINEARS.call(True, first, x, weight, bias, None)
    if out is IS_NEW:
        if not recurs(x, weight, end) or not is_layer(x, weight, bias):
            return None
        with torch.no_grad():
            out = LINEARS.learn(first, x, weight, bias, None)
    if out is None:
        return None
    made = (out if out.grad_fn is None else out.detach(),)  # in a tuple: no operand of the node
    recorded: Tensor = _apply_plain(x, weight, bias, made) if end is PLAIN else _apply(x, weight, bias, made, end[2])
    return recorded


def by_torch(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
    """The same by torch's own functions."""
    out = torch.nn.functional.linear(x, weight, bias)
    return out if activation is None else ACTIVATIONS[activation](out)


#: `needs_input_grad` of a layer, of which every operand has a gradient, without and with a bias.
_BOTH, _EVERY = (True, True, False, False), (True, True, True, False)


class _PlainLayer(torch.autograd.Function):
    """A layer without an activation, whose result a plan has made; its gradients are one plan, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, made: tuple[Tensor]) -> Tensor:
        ctx.bias_dtype = None if bias is None else bias.dtype
        ctx.save_for_backward(x, weight)
        return made[0]

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
            found = _by_operations(saved, gradient, needs)
        return *found[:3], None


class _Layer(torch.autograd.Function):
    """A layer with an activation, whose product a plan has made."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, made: tuple[Tensor], activation: str
    ) -> Tensor:
        kept = made[0]  # the activation's argument; of relu the result
        ctx.activation = activation
        ctx.save_for_backward(x, weight, bias, kept)
        return activated(kept, activation) if activation in KEEPS_SUM else kept

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, weight, bias, kept = ctx.saved_tensors
        needs = (*ctx.needs_input_grad[:3], False)
        activation, bias_dtype = ctx.activation, None if bias is None else bias.dtype
        found = planned(gradient, x, weight, kept, (1.0, activation, bias_dtype, AUTO), needs, is_linear=True)
        if found is None:
            facts = SavedOptions((1.0, 0.0, activation, x.dtype), bias_dtype, None)
            output, z = (None, kept) if activation in KEEPS_SUM else (kept, None)
            found = _by_operations(Saved(x, weight.t(), bias, None, output, facts, z), gradient, needs)
        return *found[:3], None, None


def _by_operations(saved: Saved, gradient: Tensor, needs: tuple[bool, ...]) -> Any:
    """Gradients of x, the weight, the bias and c by operations."""
    found = by_operations(partial(multiply, kernel=AUTO), saved, gradient, needs, AUTO)
    return found if found[1] is None else (found[0], found[1].t(), *found[2:])


_apply_plain, _apply = apply_of(_PlainLayer), apply_of(_Layer)
