"""The `alternating` recurrence as a loop of PyTorch calls: one matrix product and one pointwise step per time step.

Any device, dtype and head dimension; states and sums in the accumulation dtype. It works on (T, N, B, ...) so that
every step's operands are contiguous, and makes the weight gradient with one product after the loop.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from constrint.kernels.rnn.alternating.pointwise import BACKWARD_STEPS, BackwardStep, slstm_backward
from constrint.kernels.rnn.interface import RnnGradients, RnnInputs, RnnSaved, RnnUpstream, zero_states
from constrint.kernels.rnn.reference import STEPS, accumulation_dtype, pre_activations, slstm_step


def loop_forward(inputs: RnnInputs, *, save_gates: bool) -> RnnSaved:
    """Run over time; see `RnnBackend.forward`."""
    wx, cell = inputs.wx, inputs.cell
    batch, time, gates, heads, dim = wx.shape
    dtype = accumulation_dtype(wx.dtype)
    weights = _weights(inputs, dtype).transpose(1, 2)
    x = _working(wx, dtype)
    apart = inputs.kind.keeps_parts_apart
    # The bias of a recurrent part that is kept apart belongs to the product with r, every other one joins the input.
    bias = None if inputs.b is None else inputs.b.to(dtype).transpose(0, 1)[:, None]  # (N, 1, G, D)
    inner = None
    if bias is not None and apart:
        x[..., :-1, :] += bias[:, :, :-1]
        inner = bias[:, :, -1]
    elif bias is not None:
        x += bias
    step = partial(slstm_step, stored=wx.dtype) if cell == "slstm" else STEPS[cell]
    masks = _Masks(inputs)
    states = tuple(zero_states(inputs).to(dtype).transpose(1, 2).unbind(0))
    out = wx.new_empty((len(states), batch, time, heads, dim))
    by_time = out.permute(0, 2, 3, 1, 4)  # (S, T, N, B, D), a view
    for t in range(time):
        states = masks.reset(t, states)
        product = torch.bmm(states[0], weights).view(heads, batch, gates, dim)
        p = _parts_apart(x[t], product, inner) if apart else list(x[t].add_(product).unbind(2))
        new = step(p, states)
        if apart:
            x[t, :, :, -1] = p[-1]
        for s, value in enumerate(masks.shown(t, new)):
            by_time[s, t] = value
        states = masks.kept(t, new, states)
    return RnnSaved(out, x.permute(2, 0, 3, 1, 4).to(wx.dtype).contiguous() if save_gates else None)


def _parts_apart(x: Tensor, recurrent: Tensor, inner: Tensor | None) -> list[Tensor]:
    """The cell's slots (N, B, D), both parts of the last gate among them; the others are summed into `x` in place."""
    x[:, :, :-1] += recurrent[:, :, :-1]
    candidate = recurrent[:, :, -1]
    return [*x.unbind(2), candidate if inner is None else candidate + inner]


def loop_backward(inputs: RnnInputs, saved: RnnSaved, upstream: RnnUpstream, *, clip: float) -> RnnGradients:
    """Gradients backwards over time; see `RnnBackend.backward`."""
    wx = inputs.wx
    batch, time, gates, heads, dim = wx.shape
    dtype = accumulation_dtype(wx.dtype)
    weights = _weights(inputs, dtype)
    before = previous_states(inputs, saved.states)  # (S, B, T, N, D)
    p_all = _working(recompute_gates(inputs, before) if saved.gates is None else saved.gates, dtype)
    q_all, s_all = _by_time(before, dtype), _by_time(saved.states, dtype)
    x_candidate = _by_time(wx[:, :, -1][None], dtype)[0] if inputs.kind.keeps_parts_apart else None
    d_all = [None if grad is None else _by_time(grad[None], dtype)[0] for grad in upstream.states]
    d_p = torch.empty_like(p_all)  # gradients on the recurrent side (T, N, B, G, D)
    d_candidate = None if x_candidate is None else torch.empty_like(x_candidate)
    step = _backward_step(inputs)
    masks = _Masks(inputs)
    nothing = q_all.new_zeros(heads, batch, dim)
    carry = tuple(nothing if grad is None else grad.to(dtype).transpose(0, 1) for grad in upstream.last)
    for t in reversed(range(time)):
        d = tuple(c if every is None else c + every[t] for c, every in zip(carry, d_all, strict=True))
        p = list(p_all[t].unbind(2))
        if x_candidate is not None:
            p[-1:] = [x_candidate[t], p[-1]]
        g, new = step(d, p, q_all[:, t].unbind(0), s_all[:, t].unbind(0))
        g = masks.shown(t, g)
        if d_candidate is not None:
            d_candidate[t] = g[-2]
            g = (*g[:-2], g[-1])
        torch.stack(g, 2, out=d_p[t])
        through = torch.bmm(d_p[t].view(heads, batch, gates * dim), weights)
        through = through.clamp_(-clip, clip) if clip > 0 else through
        carry = masks.kept(t, masks.reset(t, (new[0] + through, *new[1:])), carry)
    return _gradients(inputs, before, d_p, d_candidate, carry)


def _backward_step(inputs: RnnInputs) -> BackwardStep:
    if inputs.cell != "slstm":
        return BACKWARD_STEPS[inputs.cell]
    is_rounded = inputs.wx.dtype != accumulation_dtype(inputs.wx.dtype)
    # Stored pre-activations are off by half a unit in the last place: for |p| up to 8 exp(p - m) by this much.
    least = 1 - 4 * torch.finfo(inputs.wx.dtype).eps if is_rounded else 1.0
    return partial(slstm_backward, least=least)


def _gradients(
    inputs: RnnInputs, before: Tensor, d_p: Tensor, d_candidate: Tensor | None, carry: tuple[Tensor, ...]
) -> RnnGradients:
    """The gradients of everything that went in, from those of the pre-activations."""
    d_wx = torch.empty_like(inputs.wx, memory_format=torch.contiguous_format)
    d_wx.copy_(d_p.permute(2, 0, 3, 1, 4))
    if d_candidate is not None:
        d_wx[:, :, -1] = d_candidate.permute(2, 0, 1, 3)
    heads, dim = inputs.wx.shape[3:]
    # Over all T * B rows at once: (N, G * D, T * B) @ (N, T * B, D).
    left = d_p.permute(1, 3, 4, 0, 2).reshape(heads, -1, d_p.shape[0] * d_p.shape[2])
    right = before[0].to(d_p.dtype).permute(2, 1, 0, 3).reshape(heads, -1, dim)
    d_r = torch.bmm(left, right).view(heads, -1, dim, dim).transpose(0, 1)
    return RnnGradients(
        wx=d_wx,
        r=d_r.to(inputs.r.dtype).contiguous(),
        b=None if inputs.b is None else d_p.sum((0, 2)).transpose(0, 1).to(inputs.b.dtype).contiguous(),
        initial=None if inputs.initial is None else torch.stack(carry).transpose(1, 2).contiguous(),
    )


def previous_states(inputs: RnnInputs, states: Tensor) -> Tensor:
    """States (S, B, T, N, D) that enter each step: the initial ones first, zeros where they are reset."""
    first = zero_states(inputs).to(states.dtype)[:, :, None]
    before = torch.cat([first, states[:, :, :-1]], dim=2)
    if inputs.reset is not None:
        before = torch.where(inputs.reset[None, :, :, None, None], 0.0, before)
    return before


def recompute_gates(inputs: RnnInputs, before: Tensor) -> Tensor:
    """Pre-activations (B, T, G, N, D), in the accumulation dtype, of all steps at once."""
    dtype = accumulation_dtype(inputs.wx.dtype)
    recurrent = torch.einsum("btni,gnoi->btgno", before[0].to(dtype), inputs.r.to(dtype))
    recurrent = recurrent if inputs.b is None else recurrent + inputs.b.to(dtype)
    wx = inputs.wx.to(dtype)
    if not inputs.kind.keeps_parts_apart:
        return wx + recurrent
    slots = pre_activations(inputs.cell, wx.flatten(0, 1), recurrent.flatten(0, 1))
    return torch.stack([slots[slot] for slot in inputs.kind.recurrent_slots], 1).view(wx.shape)


def _weights(inputs: RnnInputs, dtype: torch.dtype) -> Tensor:
    """(N, G * D out, D in)."""
    gates, heads, dim, _ = inputs.r.shape
    return inputs.r.to(dtype).transpose(0, 1).reshape(heads, gates * dim, dim)


def _working(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A fresh contiguous (T, N, B, G, D) copy of (B, T, G, N, D)."""
    return torch.empty_like(x.permute(1, 3, 0, 2, 4), dtype=dtype, memory_format=torch.contiguous_format).copy_(
        x.permute(1, 3, 0, 2, 4)
    )


def _by_time(states: Tensor, dtype: torch.dtype) -> Tensor:
    """(S, T, N, B, D), contiguous, from (S, B, T, N, D)."""
    return states.to(dtype).permute(0, 2, 3, 1, 4).contiguous()


class _Masks:
    """Which rows run at a step and which start anew; does nothing where there are neither lengths nor resets."""

    def __init__(self, inputs: RnnInputs) -> None:
        batch, time = inputs.wx.shape[:2]
        self.running: tuple[Tensor, ...] | None = None  # per step (1, B, 1)
        self.fresh: tuple[Tensor, ...] | None = None
        if inputs.lengths is not None:
            steps = torch.arange(time, device=inputs.wx.device)[:, None, None, None]
            self.running = (steps < inputs.lengths.view(1, 1, batch, 1)).unbind(0)
        if inputs.reset is not None:
            self.fresh = inputs.reset.t()[:, None, :, None].unbind(0)

    def reset(self, t: int, values: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Zeros where step `t` starts anew."""
        return values if self.fresh is None else tuple(v.masked_fill(self.fresh[t], 0) for v in values)

    def shown(self, t: int, values: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Zeros where the sequence is over."""
        return values if self.running is None else tuple(torch.where(self.running[t], v, 0.0) for v in values)

    def kept(self, t: int, new: tuple[Tensor, ...], old: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The new value where the sequence runs, else the old one."""
        if self.running is None:
            return new
        return tuple(torch.where(self.running[t], n, o) for n, o in zip(new, old, strict=True))
