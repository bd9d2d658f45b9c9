"""Gradients of the operators: that of `constrint::rnn_forward` is one call of `constrint::rnn_backward`.

They are nodes of autograd around the operators that do the work (`kernels/rnn/op.py`), registered by hand: what
`torch.library.register_autograd` makes is passed through by every call, without gradients and in a compiled graph, too.

The gradient of `constrint::rnn_backward` runs the reference and differentiates it twice, whatever back-end ran first.
Derivatives beyond the second one are those of the reference, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from constrint.flashrnn.observers import may_train
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.op import (
    NUM_LOOP_ARGUMENTS,
    every_gradient,
    rnn_backward,
    rnn_backward_loop,
    rnn_forward_loop,
    unpacked,
)
from constrint.kernels.rnn.reference import rnn_reference

#: Arguments of the operators; autograd expects one result for each.
NUM_ARGUMENTS = 11
NUM_BACKWARD_ARGUMENTS = 15
#: Tensors that `constrint::rnn_backward` is differentiated by: gradients of the results, and wx, r, b, initial.
NUM_UPSTREAM, NUM_INPUTS = 4, 4


class _ForwardNode(torch.autograd.Function):
    """A forward pass with a gradient. With `hidden_only` h is a view of all states, which are no result then."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        wx, r, b, initial, lengths, reset, cell, backend, _, hidden_only, clip = inputs
        states, end_h, end_rest, gates = unpacked(wx, cell, rnn_forward_loop(*inputs[:NUM_LOOP_ARGUMENTS]))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(wx, r, b, initial, lengths, reset, states, gates)
        ctx.cell, ctx.backend, ctx.clip = cell, backend, clip
        nothing = wx.new_empty(0)
        every, hidden = (nothing, states[0]) if hidden_only else (states, nothing)
        ctx.mark_non_differentiable(gates, nothing)
        return every, hidden, end_h, end_rest, gates

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        return _backward(ctx, *grads)


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    wx, r, b, initial, lengths, reset, states, gates = ctx.saved_tensors
    upstream = grads[:NUM_UPSTREAM]
    if all(grad is None for grad in upstream):
        return (None,) * NUM_ARGUMENTS
    if gates.dim() > 1 and not CELLS[ctx.cell].keeps_parts_apart and not torch.is_grad_enabled():
        wx = gates  # the loop reads pre-activations alone: a compiled graph does not keep the inputs
    d_wx, d_r, d_b, d_initial = rnn_backward(
        *upstream, wx, r, b, initial, lengths, reset, states, gates, ctx.cell, ctx.backend, ctx.clip
    )
    needs = ctx.needs_input_grad
    gradients = (
        d_wx if needs[0] else None,
        d_r if needs[1] else None,
        d_b if b is not None and needs[2] else None,
        d_initial if initial is not None and needs[3] else None,
    )
    return gradients + (None,) * (NUM_ARGUMENTS - len(gradients))


class _BackwardNode(torch.autograd.Function):
    """A backward pass with a gradient."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        *tensors, _, _, cell, _, clip = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.cell, ctx.clip = cell, clip
        return every_gradient(inputs, rnn_backward_loop(*inputs))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        return _second(ctx, *grads)


def _second(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    """The gradient of `constrint::rnn_backward`: of a loss by its inputs, from that by its results.

    Its inputs include the states and pre-activations of the forward pass. These are functions of wx, r, b and initial,
    so the dependence on them is part of the gradients of those four.
    """
    tensors = ctx.saved_tensors
    inputs, (lengths, reset) = tensors[: NUM_UPSTREAM + NUM_INPUTS], tensors[NUM_UPSTREAM + NUM_INPUTS :]
    goes_on = torch.is_grad_enabled()
    with torch.enable_grad():
        # One tensor may be computed from another, and both count as inputs here: each is taken as an alias.
        taken = [None if t is None else _alias(t) for t in inputs]
        upstream, operands = taken[:NUM_UPSTREAM], taken[NUM_UPSTREAM:]
        every, last = _reference(ctx, *operands, lengths=lengths, reset=reset)
        results = (every, every[0], last[0], last[1:])
        first = _gradients(results, upstream, operands, goes_on=True)
        by = [t if needed else None for t, needed in zip(taken, ctx.needs_input_grad, strict=False)]
        second = _gradients(first, grads, by, goes_on=goes_on)
    return *second, *(None,) * (NUM_BACKWARD_ARGUMENTS - len(second))


def _reference(ctx: Any, wx: Any, r: Any, b: Any, initial: Any, **when: Any) -> tuple[Tensor, Tensor]:
    return rnn_reference(ctx.cell, wx, r, b, initial, **when, clip=ctx.clip)


def _alias(tensor: Tensor) -> Tensor:
    """The same elements as a tensor that requires a gradient, and passes it on where the tensor has one."""
    return tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()


def _gradients(
    results: Sequence[Tensor | None], grads: Sequence[Tensor | None], inputs: Sequence[Tensor | None], *, goes_on: bool
) -> list[Tensor | None]:
    """Gradients by the inputs that are not None, from the results that have gradients."""
    there = [t for t in inputs if t is not None]
    pairs = [(t, g) for t, g in zip(results, grads, strict=True) if t is not None and g is not None and t.requires_grad]
    if not there or not pairs:
        return [None] * len(inputs)
    outs, of_outs = zip(*pairs, strict=True)
    gradients = iter(torch.autograd.grad(outs, there, of_outs, create_graph=goes_on, allow_unused=True))
    return [None if t is None else next(gradients) for t in inputs]


@torch.library.impl("constrint::rnn_forward", "Autograd")
def _forward_kernel(*arguments: Any) -> tuple[Tensor, ...]:
    """`constrint::rnn_forward` as torch calls it where tensors may have gradients."""
    if may_train(*arguments[:NUM_INPUTS]):
        return _ForwardNode.apply(*arguments)  # type: ignore[no-untyped-call, no-any-return]
    wx, cell, hidden_only = arguments[0], arguments[6], arguments[9]
    states, end_h, end_rest, gates = unpacked(wx, cell, rnn_forward_loop(*arguments[:NUM_LOOP_ARGUMENTS]))
    return states, states[0].clone() if hidden_only else wx.new_empty(0), end_h, end_rest, gates


@torch.library.impl("constrint::rnn_backward", "Autograd")
def _backward_kernel(*arguments: Any) -> tuple[Tensor, ...]:
    """`constrint::rnn_backward` as torch calls it where tensors may have gradients."""
    if may_train(*(x for x in arguments if isinstance(x, Tensor))):
        return _BackwardNode.apply(*arguments)  # type: ignore[no-untyped-call, no-any-return]
    return every_gradient(arguments, rnn_backward_loop(*arguments))
