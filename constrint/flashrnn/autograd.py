"""The gradient of `constrint::rnn_forward`: one call of `constrint::rnn_backward`, which has no gradient itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from constrint.kernels.rnn.op import rnn_backward

#: Arguments of the forward operator; autograd wants one result for each.
NUM_ARGUMENTS = 11

DOUBLE_BACKWARD = (
    "a recurrence cannot be differentiated twice by its fused back-ends (create_graph=True, torch.autograd.grad of a "
    "gradient). Use rnn(..., backend='reference'), which is differentiable any number of times."
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    wx, r, b, initial, lengths, reset, cell, backend, _, hidden_only, clip = inputs
    states, hidden, _, _, gates = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(gates, states if hidden_only else hidden)
    ctx.save_for_backward(wx, r, b, initial, lengths, reset, states, gates)
    ctx.cell, ctx.backend, ctx.clip = cell, backend, clip


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    wx, r, b, initial, lengths, reset, states, gates = ctx.saved_tensors
    upstream = grads[:4]
    if all(grad is None for grad in upstream):
        return (None,) * NUM_ARGUMENTS
    d_wx, d_r, d_b, d_initial = rnn_backward(
        *upstream, wx, r, b, initial, lengths, reset, states, gates, ctx.cell, ctx.backend, ctx.clip
    )
    needs = ctx.needs_input_grad
    wanted = (
        d_wx if needs[0] else None,
        d_r if needs[1] else None,
        d_b if b is not None and needs[2] else None,
        d_initial if initial is not None and needs[3] else None,
    )
    return wanted + (None,) * (NUM_ARGUMENTS - len(wanted))


def _refuse(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
    raise RuntimeError(DOUBLE_BACKWARD)


torch.library.register_autograd("constrint::rnn_forward", _backward, setup_context=_save)
torch.library.register_autograd("constrint::rnn_backward", _refuse)
