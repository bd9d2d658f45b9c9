"""`linear`: activation(x @ weight^T + bias) by the plans of `matmul`, at little cost to the host.

A table of its own takes the weight as a layer has it, (N, K), so that no call makes a view of it. Gradients are one
plan (`backward/plans.py`). None stands for calls that torch runs itself: tensors on other devices, other dtypes,
and calls that are traced, transformed or observed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from constrint.kernels.gemm.backward.plans import KEEPS_SUM
from constrint.kernels.gemm.implementations import AUTO
from constrint.kernels.gemm.layer_nodes import recorded
from constrint.kernels.gemm.op import _multiply as multiply
from constrint.kernels.gemm.operator import PLAIN, plan_key
from constrint.kernels.gemm.reference import ACTIVATIONS
from constrint.kernels.gemm.training import recorded_table
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


#: Keys of layers' plans by activation.
ENDS = {activation: end_of(activation) for activation in (None, *ACTIVATIONS)}


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
        with_node: Any = RECORDED.call(True, end, x, weight, bias, None)
        if with_node is IS_NEW:
            # Calls of a shape have plans from the second one on; see `recurs`.
            has_plans = _RECURRING.get((x.shape, weight.shape, x.dtype, end)) and is_layer(x, weight, bias)
            with_node = RECORDED.learn(end, x, weight, bias, None) if has_plans else None
        recorded_call: Tensor | None = _with_gradients(x, weight, bias, end) if with_node is None else with_node
        return recorded_call
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
    return recorded(x, weight, bias, out, None if end is PLAIN else end[2], multiply)


def _by_nodes(activation: str | None, x: Tensor, weight: Tensor, bias: Tensor | None, _: None) -> Tensor:
    """A layer where autograd records it, by our nodes; by torch's where it has no plan."""
    out = _with_gradients(x, weight, bias, ENDS[activation])
    return by_torch(x, weight, bias, activation) if out is None else out


def by_torch(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
    """The same by torch's own functions."""
    out = torch.nn.functional.linear(x, weight, bias)
    return out if activation is None else ACTIVATIONS[activation](out)


#: Calls of layers that autograd records.
RECORDED = recorded_table(
    "recorded_linear", LINEARS, _by_nodes, lambda activation, x, w, b, _: by_torch(x, w, b, activation)
)
