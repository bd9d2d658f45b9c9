"""Recurrent layers in plain PyTorch: the reference that every back-end is tested against.

One loop over time, differentiated by autograd; any device, any floating dtype (states and sums are fp64 for fp64
inputs, fp32 otherwise). It is exact and slow.

    p_t[g, n] = wx_t[g, n] + r[g, n] @ h_{t-1}[n] + b[g, n]        then the cell's pointwise step

Gate orders are those of `torch.nn`: LSTM and sLSTM i, f, z, o (z is torch's g), GRU r, z, n. The GRU's candidate is
tanh(wx_n + r * (r_n @ h + b_n)), so `b` is the bias on the recurrent side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from constrint.kernels.rnn.cells import CELLS

States = tuple[Tensor, ...]


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of states and sums: fp64 for fp64 inputs, else fp32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def lstm_step(p: Sequence[Tensor], states: States) -> States:
    """c' = f c + i z, h' = o tanh(c')."""
    i, f, z, o = torch.sigmoid(p[0]), torch.sigmoid(p[1]), torch.tanh(p[2]), torch.sigmoid(p[3])
    c = f * states[1] + i * z
    return o * torch.tanh(c), c


def gru_step(p: Sequence[Tensor], states: States) -> States:
    """h' = z h + (1 - z) tanh(x_n + r (r_n h + b_n)); p = r, z, x_n, r_n h + b_n."""
    candidate = torch.tanh(p[2] + torch.sigmoid(p[0]) * p[3])
    return (candidate + torch.sigmoid(p[1]) * (states[0] - candidate),)


def slstm_step(p: Sequence[Tensor], states: States, stored: torch.dtype | None = None) -> States:
    """Exponential input gate; m is the stabiliser, n the normaliser, and a state with n = 0 is empty.

    m' = max(i, log sigmoid(f) + m), or i where the state is empty;
    i' = exp(i - m');  f' = exp(log sigmoid(f) + m - m');
    c' = f' c + i' tanh(z);  n' = max(f' n + i', 1);  h' = sigmoid(o) c' / n'.

    `stored` rounds m to the dtype it is stored in before it is used, downwards. It is only a common scale of c and n,
    but a backward pass that reads it has to see the one they were computed with, and rounded up it would let n fall
    below 1.
    """
    _, c, n, m = states
    kept = logsigmoid(p[1]) + m
    empty = n == 0
    new_m = torch.where(empty, p[0], torch.maximum(p[0], kept))
    if stored is not None and stored != new_m.dtype:
        # Slightly more than half a unit in the last place: the nearest representable value is not above m.
        new_m = (new_m - 0.505 * torch.finfo(stored).eps * new_m.abs()).to(stored).to(new_m.dtype)
    i = torch.exp(p[0] - new_m)
    # An empty state has nothing to keep; the inner `where` keeps exp() and its gradient finite there.
    f = torch.where(empty, 0.0, torch.exp(torch.where(empty, 0.0, kept - new_m)))
    new_c = f * c + i * torch.tanh(p[2])
    new_n = torch.clamp(f * n + i, min=1.0)
    return torch.sigmoid(p[3]) * new_c / new_n, new_c, new_n, new_m


def elman_step(p: Sequence[Tensor], states: States) -> States:
    """h' = tanh(g)."""
    return (torch.tanh(p[0]),)


def elman_relu_step(p: Sequence[Tensor], states: States) -> States:
    """h' = max(g, 0)."""
    return (torch.relu(p[0]),)


STEPS: dict[str, Callable[[Sequence[Tensor], States], States]] = {
    "lstm": lstm_step,
    "gru": gru_step,
    "slstm": slstm_step,
    "elman": elman_step,
    "elman_relu": elman_relu_step,
}


def step_of(
    cell: str, params: Tensor | None, stored: torch.dtype | None = None
) -> Callable[[Sequence[Tensor], States], States]:
    """The pointwise step of a cell, with elementwise parameters (P, N, D) where it has any.

    `stored` is the dtype to which a step rounds what it states to be rounded; None for no rounding.
    """
    definition = CELLS[cell].definition
    if definition is None:
        return partial(slstm_step, stored=stored) if cell == "slstm" else STEPS[cell]
    from constrint.kernels.rnn.generated.pointwise import reference_step

    return lambda p, states: reference_step(definition, p, states, params, stored)


class _ClampGradient(torch.autograd.Function):
    """The identity; its gradient is clamped to [-limit, limit]. Forward-mode derivatives pass as they are."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, limit: float) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.limit = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0].clamp(-ctx.limit, ctx.limit), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        tangent: Tensor = tangents[0]
        return tangent.view_as(tangent)


def clamp_gradient(x: Tensor, limit: float) -> Tensor:
    """`x` itself, whose gradient is clamped to [-limit, limit]."""
    apply: Callable[[Tensor, float], Tensor] = _ClampGradient.apply
    return apply(x, limit)


def rnn_reference(
    cell: str,
    wx: Tensor,  # (B, T, G, N, D)
    r: Tensor,  # (G, N, D out, D in)
    b: Tensor | None = None,  # (G, N, D)
    initial: Tensor | None = None,  # (S, B, N, D)
    *,
    lengths: Tensor | None = None,  # (B,)
    reset: Tensor | None = None,  # (B, T)
    clip: float = 0.0,
    params: Tensor | None = None,  # (P, N, D)
    stored: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Run a cell over time.

    Args:
        cell: A key of `CELLS`.
        wx: Projected inputs.
        r: Recurrent weights, one D x D block per gate and head.
        b: Recurrent bias; None for none.
        initial: States before the first step; zeros if None.
        lengths: Steps of each sequence; all T if None. States past the end are zero, the last states are those at
            the end (the initial ones for length 0).
        reset: Where true, the state that enters this step is zero instead of that of the step before.
        clip: The gradient that reaches h_{t-1} through `r` is clamped to [-clip, clip]; 0 does not clamp.
        params: Elementwise parameters, where the cell has any.
        stored: The dtype to which a step rounds the states that it states to be rounded (sLSTM's m); None for none.

    Returns:
        All states (S, B, T, N, D) and the last states (S, B, N, D), in the dtype of `wx`.
    """
    dtype = accumulation_dtype(wx.dtype)
    batch, time, gates, heads, dim = wx.shape
    num_states, step = CELLS[cell].num_states, step_of(cell, None if params is None else params.to(dtype), stored)
    # (N, D in, G * D out): one batched product per step.
    weights = r.to(dtype).permute(1, 3, 0, 2).reshape(heads, dim, gates * dim)
    bias = None if b is None else b.to(dtype)
    x = wx.to(dtype)
    if lengths is not None:  # values in the padding, NaN even, reach neither results nor gradients
        x = torch.where((torch.arange(time, device=wx.device) < lengths[:, None])[:, :, None, None, None], x, 0.0)
    if initial is None:
        states: States = tuple(x.new_zeros(batch, heads, dim) for _ in range(num_states))
    else:
        states = tuple(initial.to(dtype).unbind(0))
    outputs = []
    for t in range(time):
        running = None if lengths is None else (t < lengths)[:, None, None]
        if reset is not None:
            fresh = reset[:, t, None, None] if running is None else reset[:, t, None, None] & running
            states = tuple(torch.where(fresh, 0.0, s) for s in states)
        h = clamp_gradient(states[0], clip) if clip > 0 else states[0]
        recurrent = (h.transpose(0, 1) @ weights).view(heads, batch, gates, dim).permute(1, 2, 0, 3)
        recurrent = recurrent if bias is None else recurrent + bias
        new = step(pre_activations(cell, x[:, t], recurrent), states)
        shown = new
        if running is not None:
            shown = tuple(torch.where(running, s, 0.0) for s in new)
            new = tuple(torch.where(running, s, old) for s, old in zip(new, states, strict=True))
        states = new
        outputs.append(torch.stack(shown))
    if time:
        all_states = torch.stack(outputs, dim=2)
    else:
        all_states = x.new_zeros(num_states, batch, 0, heads, dim)
    return all_states.to(wx.dtype), torch.stack(states).to(wx.dtype)


def pre_activations(cell: str, x: Tensor, recurrent: Tensor) -> list[Tensor]:
    """Pre-activations of a step from the input's and the recurrence's parts (B, G, N, D), unbound along the gates.

    A gate whose parts the cell keeps apart (the GRU's candidate) is two slots, the last ones; every other is a sum.
    """
    if not CELLS[cell].keeps_parts_apart:
        return list((x + recurrent).unbind(1))
    return [*(x[:, :-1] + recurrent[:, :-1]).unbind(1), x[:, -1], recurrent[:, -1]]
