"""The `alternating` recurrence as a loop of PyTorch calls: per step one matrix product and one pointwise step.

Any device, dtype and head dimension; states and sums in the accumulation dtype. It works on (T, N, B, ...) so that
every step's operands are contiguous. A call costs about as much as its work on small operands, so the loop holds the
calls that depend on earlier steps and no other: it runs over the padding too, which is cleared at once afterwards.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from constrint.kernels.rnn.alternating.pointwise import BACKWARD, FORWARD
from constrint.kernels.rnn.generated.pointwise import GeneratedBackward, GeneratedForward
from constrint.kernels.rnn.interface import ForwardOutputs, RnnGradients, RnnInputs, RnnUpstream, zero_states
from constrint.kernels.rnn.reference import accumulation_dtype, pre_activations

#: Elements of the pre-activations of the steps whose factors are computed at once: some MB, which a cache may hold.
CHUNK = 1 << 18


def loop_forward(inputs: RnnInputs, *, save_gates: bool) -> ForwardOutputs:
    """Run over time; see `RnnBackend.forward`."""
    wx, kind = inputs.wx, inputs.kind
    batch, time, gates, heads, dim = wx.shape
    dtype = accumulation_dtype(wx.dtype)
    weights = _weights(inputs, dtype).transpose(1, 2)
    x = _working(wx, dtype)
    candidate = None
    if kind.keeps_parts_apart:
        candidate = x[:, :, :, -1].clone()
        x[:, :, :, -1] = 0
    if inputs.b is not None:
        # A candidate's bias belongs to the product with r; every other one may join the input as well.
        x += inputs.b.to(dtype).transpose(0, 1)[:, None]
    out = wx.new_empty((kind.num_states, batch, time, heads, dim))
    by_time = out.permute(0, 2, 3, 1, 4)  # (S, T, N, B, D), a view
    rows = by_time if wx.dtype == dtype else x.new_empty(by_time.shape)
    definition = kind.definition
    if definition is None:
        step = FORWARD[inputs.cell](x, candidate, rows, wx.dtype)
    else:
        step = GeneratedForward(definition, x, candidate, rows, wx.dtype, inputs.params)
    products = x.view(time, heads, batch, gates * dim).unbind(0)
    states = tuple(zero_states(inputs).to(dtype).transpose(1, 2).unbind(0))
    fresh = _fresh(inputs)
    for t in range(time):
        anew = fresh[t]
        if anew is not None:
            states = tuple(state.masked_fill(anew, 0) for state in states)
        products[t].baddbmm_(states[0], weights)
        states = step(t, states, may_be_empty=t == 0 or anew is not None)
    padding = _padding(inputs)
    if padding is not None:
        rows.masked_fill_(padding, 0)
    if rows is not by_time:
        by_time.copy_(rows)
    return ForwardOutputs(out, x.permute(2, 0, 3, 1, 4).to(wx.dtype).contiguous() if save_gates else None)


def loop_backward(inputs: RnnInputs, saved: ForwardOutputs, upstream: RnnUpstream, *, clip: float) -> RnnGradients:
    """Gradients backwards over time; see `RnnBackend.backward`."""
    wx = inputs.wx
    batch, time, gates, heads, dim = wx.shape
    dtype = accumulation_dtype(wx.dtype)
    weights = _weights(inputs, dtype)
    before = previous_states(inputs, saved.states)  # (S, B, T, N, D)
    # Pre-activations, their factors, and at last their gradients on the recurrent side, in one place (T, N, B, G, D).
    p = _working(recompute_gates(inputs, before) if saved.gates is None else saved.gates, dtype)
    candidate = _working(wx[:, :, -1:], dtype)[:, :, :, 0] if inputs.kind.keeps_parts_apart else None
    padding = _padding(inputs)
    if padding is not None:
        p.masked_fill_(padding[..., None], 0)
        if candidate is not None:
            candidate.masked_fill_(padding, 0)
    from_above, d = _upstream(inputs, upstream, padding)
    products, fresh = p.view(time, heads, batch, gates * dim).unbind(0), _fresh(inputs)
    nothing = (None,) * len(d)
    size = max(1, CHUNK // (batch * gates * heads * dim))
    definition, of_params = inputs.kind.definition, None
    if inputs.params is not None:
        of_params = inputs.params.new_zeros((len(inputs.params), heads, batch, dim), dtype=dtype)
    for start in reversed(range(0, time, size)):
        steps = slice(start, start + size)
        operands = (
            p[steps],
            None if candidate is None else candidate[steps],
            partial(_read, before[:, :, steps], dtype),
            partial(_read, saved.states[:, :, steps], dtype),
        )
        if definition is None:
            step = BACKWARD[inputs.cell](*operands, _least(inputs))
        else:
            ended = None if padding is None else padding[steps]
            step = GeneratedBackward(definition, *operands, inputs.params, of_params, ended)
        for t in reversed(range(start, min(time, start + size))):
            base = tuple(None if grads is None else grads[t - 1] for grads in from_above) if t else nothing
            anew = fresh[t]
            if anew is None and not clip:
                h, others = step(t - start, d, base)
                d = (_product(h, products[t], weights), *others)
                continue
            direct, others = step(t - start, d, nothing)
            through = torch.bmm(products[t], weights)
            through = through.clamp_(-clip, clip) if clip > 0 else through
            sums = (through if direct is None else through.add_(direct), *others)
            if anew is not None:
                sums = tuple(grad.masked_fill(anew, 0) for grad in sums)
            d = tuple(grad if more is None else grad + more for grad, more in zip(sums, base, strict=True))
    found = _gradients(inputs, before, p, candidate, _initial(inputs, upstream, d))
    return found if of_params is None else replace(found, params=of_params.sum(2))


def _product(base: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
    """The sum of `base` and left @ right."""
    return torch.bmm(left, right) if base is None else torch.baddbmm(base, left, right)


def _upstream(
    inputs: RnnInputs, upstream: RnnUpstream, padding: Tensor | None
) -> tuple[list[tuple[Tensor, ...] | None], tuple[Tensor, ...]]:
    """Gradients that each step adds to those of each state after it (None: nothing), and the sums after the last step.

    Where sequences have lengths, the gradients of their last states are added at their last steps.
    """
    batch, time, _, heads, dim = inputs.wx.shape
    dtype = accumulation_dtype(inputs.wx.dtype)
    per_state: list[tuple[Tensor, ...] | None] = []
    sums = []
    for every, last in zip(upstream.states, upstream.last, strict=True):
        grads = None if every is None else _working(every[:, :, None], dtype)[:, :, :, 0]
        of_last = None if last is None else last.to(dtype).transpose(0, 1)
        if padding is not None and grads is not None:
            grads.masked_fill_(padding, 0)
        if inputs.lengths is not None and last is not None:
            grads = inputs.wx.new_zeros((time, heads, batch, dim), dtype=dtype) if grads is None else grads
            ends = (inputs.lengths.long() - 1).clamp(min=0)
            runs = (inputs.lengths > 0)[:, None, None]
            grads[ends, :, torch.arange(batch, device=ends.device)] += torch.where(runs, last.to(dtype), 0.0)
            of_last = None
        if grads is None:
            sums.append(inputs.wx.new_zeros((heads, batch, dim), dtype=dtype) if of_last is None else of_last)
        else:
            sums.append(grads[-1] if of_last is None else grads[-1] + of_last)
        per_state.append(None if grads is None else grads.unbind(0))
    return per_state, tuple(sums)


def _initial(inputs: RnnInputs, upstream: RnnUpstream, d: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Gradients of the initial states (N, B, D): those that came back, or of the last ones where no step ran."""
    if inputs.lengths is None:
        return d
    empty = (inputs.lengths == 0)[None, :, None]
    return tuple(
        grad if last is None else torch.where(empty, last.to(grad.dtype).transpose(0, 1), grad)
        for grad, last in zip(d, upstream.last, strict=True)
    )


def _least(inputs: RnnInputs) -> float:
    """The sLSTM's n is taken as clamped to 1 below this."""
    is_rounded = inputs.wx.dtype != accumulation_dtype(inputs.wx.dtype)
    # Stored pre-activations are off by half a unit in the last place: for |p| up to 8 exp(p - m) by this much.
    return 1 - 4 * torch.finfo(inputs.wx.dtype).eps if is_rounded else 1.0


def _gradients(
    inputs: RnnInputs, before: Tensor, d_p: Tensor, d_candidate: Tensor | None, carry: tuple[Tensor, ...]
) -> RnnGradients:
    """The gradients of everything that went in, from those of the pre-activations."""
    d_wx = torch.empty_like(inputs.wx, memory_format=torch.contiguous_format)
    d_wx.copy_(d_p.permute(2, 0, 3, 1, 4))
    if d_candidate is not None:
        d_wx[:, :, -1] = d_candidate.permute(2, 0, 1, 3)
    heads, dim = inputs.wx.shape[3:]
    # Over all T * B rows at once: (N, T * B, G * D)^T @ (N, T * B, D).
    left = d_p.transpose(0, 1).reshape(heads, d_p.shape[0] * d_p.shape[2], -1)
    right = before[0].to(d_p.dtype).permute(2, 1, 0, 3).reshape(heads, -1, dim)
    d_r = torch.bmm(left.transpose(1, 2), right).view(heads, -1, dim, dim).transpose(0, 1)
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


def _read(states: Tensor, dtype: torch.dtype, number: int) -> Tensor:
    """State `number` of (S, B, K, N, D) as (K, N, B, D), contiguous; perhaps a view."""
    return states[number].to(dtype).permute(1, 2, 0, 3).contiguous()


def _padding(inputs: RnnInputs) -> Tensor | None:
    """Where no sequence is any more, (T, 1, B, 1)."""
    if inputs.lengths is None:
        return None
    batch, time = inputs.wx.shape[:2]
    return torch.arange(time, device=inputs.wx.device)[:, None, None, None] >= inputs.lengths.view(1, 1, batch, 1)


def _fresh(inputs: RnnInputs) -> list[Tensor | None]:
    """Per step where sequences start anew (1, B, 1), None for nowhere; does not synchronise with the device."""
    time = inputs.wx.shape[1]
    if inputs.reset is None:
        return [None] * time
    is_any = [True] * time if inputs.reset.is_cuda else inputs.reset.any(0).tolist()
    rows = inputs.reset.t()[:, None, :, None].unbind(0)
    return [row if there else None for row, there in zip(rows, is_any, strict=True)]
