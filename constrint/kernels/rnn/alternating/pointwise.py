"""Backward pointwise steps of the cells in plain PyTorch; the forward ones are in `kernels.rnn.reference`.

Each takes gradients `d` of the states after a step, pre-activations `p`, states before (`q`) and after (`s`), and
gives the gradients of `p` and of the states before, without what flows through the recurrent weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

Tensors = Sequence[Tensor]
Gradients = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]


def _slope(sigmoid: Tensor) -> Tensor:
    """The derivative of the logistic function from its value."""
    return sigmoid * (1 - sigmoid)


def lstm_backward(d: Tensors, p: Tensors, q: Tensors, s: Tensors) -> Gradients:
    """c' = f c + i z, h' = o tanh(c')."""
    i, f, z, o = torch.sigmoid(p[0]), torch.sigmoid(p[1]), torch.tanh(p[2]), torch.sigmoid(p[3])
    t = torch.tanh(s[1])
    dc = d[1] + d[0] * o * (1 - t * t)
    return (
        (dc * z * _slope(i), dc * q[1] * _slope(f), dc * i * (1 - z * z), d[0] * t * _slope(o)),
        (torch.zeros_like(dc), dc * f),
    )


def gru_backward(d: Tensors, p: Tensors, q: Tensors, s: Tensors) -> Gradients:
    """h' = z h + (1 - z) n, n = tanh(p2 + r p3)."""
    r, z = torch.sigmoid(p[0]), torch.sigmoid(p[1])
    n = torch.tanh(p[2] + r * p[3])
    dn = d[0] * (1 - z) * (1 - n * n)
    return (dn * p[3] * _slope(r), d[0] * (q[0] - n) * _slope(z), dn, dn * r), (d[0] * z,)


def slstm_backward(d: Tensors, p: Tensors, q: Tensors, s: Tensors, *, least: float = 1.0) -> Gradients:
    """Through the stabiliser m too: it matters where c, n or m get gradients of their own.

    Args:
        d: Gradients of the states after the step.
        p: Pre-activations.
        q: States before the step.
        s: States after the step.
        least: n below this was clamped to 1; less than 1 by what rounding the stored values can do.
    """
    kept = logsigmoid(p[1]) + q[3]
    empty = q[2] == 0
    i, z, o = torch.exp(p[0] - s[3]), torch.tanh(p[2]), torch.sigmoid(p[3])
    f = torch.where(empty, 0.0, torch.exp(kept - s[3]))
    n = f * q[2] + i
    ratio = s[1] / s[2]
    share = d[0] * o / s[2]
    dc = d[1] + share
    dn = torch.where(n < least, 0.0, d[2] - share * ratio)
    # c, n and m can be rescaled together without a change of h, so two terms of dm cancel. They do so in every step
    # only if the stored c and n are used: recomputed ones are rounded differently.
    dm = d[3] - dc * s[1] - dn * s[2]
    from_input = empty | (p[0] >= kept)
    di = (dc * z + dn) * i + torch.where(from_input, dm, 0.0)
    d_kept = (dc * q[1] + dn * q[2]) * f + torch.where(from_input, 0.0, dm)
    return (
        (di, d_kept * torch.sigmoid(-p[1]), dc * i * (1 - z * z), d[0] * ratio * _slope(o)),
        (torch.zeros_like(dc), dc * f, dn * f, d_kept),
    )


def elman_backward(d: Tensors, p: Tensors, q: Tensors, s: Tensors) -> Gradients:
    """h' = tanh(g)."""
    h = torch.tanh(p[0])
    return (d[0] * (1 - h * h),), (torch.zeros_like(h),)


def elman_relu_backward(d: Tensors, p: Tensors, q: Tensors, s: Tensors) -> Gradients:
    """h' = max(g, 0)."""
    return (torch.where(p[0] > 0, d[0], 0.0),), (torch.zeros_like(d[0]),)


BackwardStep = Callable[[Tensors, Tensors, Tensors, Tensors], Gradients]

BACKWARD_STEPS: dict[str, BackwardStep] = {
    "lstm": lstm_backward,
    "gru": gru_backward,
    "slstm": slstm_backward,
    "elman": elman_backward,
    "elman_relu": elman_relu_backward,
}
