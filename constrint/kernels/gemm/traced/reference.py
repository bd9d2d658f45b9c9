"""Epilogues in plain PyTorch: values, and gradients from operations that can be differentiated again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from constrint.kernels.gemm.reference import ACTIVATIONS, activation_gradient
from constrint.kernels.gemm.traced.expression import ACC, Expression

#: Operations as functions of tensors.
FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "neg": torch.neg,
    "min": torch.minimum,
    "max": torch.maximum,
    "abs": torch.abs,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "erf": torch.erf,
    "where": torch.where,
    "lt": torch.lt,
    "le": torch.le,
    "eq": torch.eq,
    "ne": torch.ne,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "not": torch.logical_not,
    **ACTIVATIONS,
}


def values_of(expression: Expression, acc: Tensor, operands: Mapping[str, Tensor]) -> list[Tensor]:
    """The value of every step of the tape.

    Args:
        expression: The epilogue.
        acc: The sum, of any shape.
        operands: Tensors by name, broadcastable to it, of its dtype.
    """
    values: list[Tensor] = []
    for step in expression.steps:
        if step.op == "operand":
            values.append(acc if step.name == ACC else operands[step.name])
        elif step.op == "constant":
            values.append(acc.new_full((), step.value))
        else:
            values.append(FUNCTIONS[step.op](*(values[at] for at in step.args)))
    return values


def evaluated(expression: Expression, acc: Tensor, operands: Mapping[str, Tensor], kind: torch.dtype) -> Tensor:
    """The epilogue's value in `kind`, computed in fp32, or in fp64 where the sum or `kind` is fp64; one rounding."""
    wide = torch.float64 if torch.float64 in (acc.dtype, kind) else torch.float32
    widened = {name: operands[name].to(wide) for name in expression.operands}
    result = values_of(expression, acc.to(wide), widened)[-1]
    return result.expand(acc.shape).to(kind)


def gradients(
    expression: Expression, acc: Tensor, operands: Mapping[str, Tensor], gradient: Tensor
) -> tuple[Tensor | None, dict[str, Tensor]]:
    """Gradients of the sum and of the operands, in the dtype of `acc`; None for a sum that has no influence.

    Args:
        expression: The epilogue.
        acc: The sum, of the result's shape, in fp32 or fp64.
        operands: Operands by name.
        gradient: That of the result.
    """
    widened = {name: operands[name].to(acc.dtype) for name in expression.operands}
    values = values_of(expression, acc, widened)
    slopes: list[Tensor | None] = [None] * len(values)
    slopes[-1] = gradient.to(acc.dtype)
    for at in range(len(values) - 1, -1, -1):
        step, slope = expression.steps[at], slopes[at]
        if slope is None or step.op in ("operand", "constant"):
            continue
        for place, part in zip(
            step.args, _parts(step.op, slope, [values[i] for i in step.args], values[at]), strict=True
        ):
            if part is not None:
                before = slopes[place]
                slopes[place] = part if before is None else before + part
    of_acc, of_operands = None, {}
    for step, slope in zip(expression.steps, slopes, strict=True):
        if step.op == "operand" and slope is not None:
            if step.name == ACC:
                of_acc = slope.expand(acc.shape)
            else:
                of_operands[step.name] = _summed(slope, operands[step.name])
    return of_acc, of_operands


def _summed(slope: Tensor, like: Tensor) -> Tensor:
    """A gradient summed over the axes along which its tensor was broadcast."""
    return slope.expand(_common(slope, like)).sum_to_size(like.shape)


def _common(first: Tensor, second: Tensor) -> torch.Size:
    """The shape that both are broadcast to."""
    shape: torch.Size = torch.broadcast_shapes(first.shape, second.shape)  # type: ignore[no-untyped-call]
    return shape


def _parts(op: str, slope: Tensor, args: Sequence[Tensor], value: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of an operation's arguments, as those of torch: halves to both of equal numbers."""
    x = args[0]
    if op in ACTIVATIONS:
        shape = _common(slope, x)
        return (activation_gradient(op, slope.expand(shape), x.expand(shape)),)
    if op in ("min", "max"):
        first = (x < args[1]) if op == "min" else (x > args[1])
        share = torch.where(x == args[1], 0.5, first.to(slope.dtype)).to(slope.dtype)
        return slope * share, slope * (1 - share)
    if op == "where":
        zero = torch.zeros_like(slope)
        return None, torch.where(x, slope, zero), torch.where(x, zero, slope)
    rule = _RULES.get(op)
    return (None,) * len(args) if rule is None else rule(slope, value, *args)


#: Gradients of the arguments from that of the value, the value and the arguments.
_RULES: dict[str, Callable[..., tuple[Tensor | None, ...]]] = {
    "add": lambda g, y, a, b: (g, g),
    "sub": lambda g, y, a, b: (g, -g),
    "mul": lambda g, y, a, b: (g * b, g * a),
    "div": lambda g, y, a, b: (g / b, -g * y / b),
    "neg": lambda g, y, a: (-g,),
    "abs": lambda g, y, a: (g * torch.sign(a),),
    "exp": lambda g, y, a: (g * y,),
    "log": lambda g, y, a: (g / a,),
    "sqrt": lambda g, y, a: (g / (2 * y),),
    "rsqrt": lambda g, y, a: (g * -0.5 * y * y * y,),
    "erf": lambda g, y, a: (g * (2 / math.sqrt(math.pi)) * torch.exp(-a * a),),
}
