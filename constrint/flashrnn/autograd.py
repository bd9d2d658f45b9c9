"""The gradient of `constrint::rnn_forward`: one call of `constrint::rnn_backward`, which has no gradient itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from constrint.kernels.rnn.op import rnn_backward, rnn_forward

#: Arguments of the two operators; autograd wants one result for each.
NUM_FORWARD_ARGUMENTS = 10
NUM_BACKWARD_ARGUMENTS = 13

DOUBLE_BACKWARD = (
    "a recurrence cannot be differentiated twice by its fused back-ends (create_graph=True, torch.autograd.grad of a "
    "gradient). Use rnn(..., backend='reference'), which is differentiable any number of times."
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    wx, r, b, initial, lengths, reset, cell, backend, _, clip = inputs
    states, _, gates = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(gates)
    ctx.save_for_backward(wx, r, b, initial, lengths, reset, states, gates)
    ctx.cell, ctx.backend, ctx.clip = cell, backend, clip


def _backward(ctx: Any, grad_states: Tensor | None, grad_last: Tensor | None, _: Tensor | None) -> tuple[Any, ...]:
    wx, r, b, initial, lengths, reset, states, gates = ctx.saved_tensors
    if grad_states is None and grad_last is None:
        return (None,) * NUM_FORWARD_ARGUMENTS
    d_wx, d_r, d_b, d_initial = rnn_backward(
        grad_states, grad_last, wx, r, b, initial, lengths, reset, states, gates, ctx.cell, ctx.backend, ctx.clip
    )
    needs = ctx.needs_input_grad
    wanted = (
        d_wx if needs[0] else None,
        d_r if needs[1] else None,
        d_b if b is not None and needs[2] else None,
        d_initial if initial is not None and needs[3] else None,
    )
    return wanted + (None,) * (NUM_FORWARD_ARGUMENTS - len(wanted))


def _refuse(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
    raise RuntimeError(DOUBLE_BACKWARD)


def _keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    return None


torch.library.register_autograd(rnn_forward, _backward, setup_context=_save)
torch.library.register_autograd(rnn_backward, _refuse, setup_context=_keep_nothing)
