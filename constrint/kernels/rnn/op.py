"""The library operators `constrint::rnn_forward` and `constrint::rnn_backward`, with their fake kernels.

They hand the work to an implementation, so that torch.compile and autograd see one operator, whatever runs it.
`dispatch.py` decides which implementation runs, and with which configuration.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.dispatch import Dispatch, parse_backend, run_decided
from constrint.kernels.rnn.gradients import stacked_ends
from constrint.kernels.rnn.interface import ForwardOutputs, RnnGradients, RnnInputs, RnnUpstream, zero_states
from constrint.kernels.rnn.plans import BACKWARD, FORWARD, Forward, backward_of, gradients_of_call

# Defined by hand: torch.library.custom_op imports Dynamo at its first call, which takes seconds.
torch.library.define(
    "constrint::rnn_forward",
    "(Tensor wx, Tensor r, Tensor? b, Tensor? initial, Tensor? lengths, Tensor? reset, "
    "str cell, str backend, bool save_gates, bool hidden_only, float clip) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)


@torch.library.impl("constrint::rnn_forward", "default")
def _forward(
    wx: Tensor, r: Tensor, b: Tensor | None, initial: Tensor | None, lengths: Tensor | None, reset: Tensor | None,
    cell: str, backend: str, save_gates: bool, hidden_only: bool, clip: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """All states, a copy of h if `hidden_only`, the last h, the other last states, and the saved pre-activations.

    Gradients that are not needed are empty. Results are apart so that autograd tells which of them have gradients: with
    `hidden_only` all states are not differentiable, and the others cost the backward pass nothing. `clip` only matters
    to the gradient.
    """
    planned = _planned_forward(wx, r, b, initial, cell, backend, save_gates, lengths, reset)
    if planned is not None:
        states, end_h, *others = planned
        return (
            states,
            states[0].clone() if hidden_only else wx.new_empty(0),
            end_h,
            others[0] if CELLS[cell].num_states > 1 else wx.new_empty((0, *end_h.shape)),
            others[-1] if save_gates else wx.new_empty(0),
        )
    inputs = _prepare(RnnInputs(cell, wx, r, b, initial, lengths, reset))
    if wx.shape[0] == 0 or wx.shape[1] == 0:
        states, hidden, last_h, last_rest, gates = _fake_forward(wx, cell, backend, save_gates, hidden_only, clip)
        last = zero_states(inputs)
        return states, hidden, last_h.copy_(last[0]), last_rest.copy_(last[1:]), gates

    def run(dispatch: Dispatch) -> ForwardOutputs:
        return dispatch.backend.forward(inputs, dispatch.choice, save_gates=save_gates)

    name, configs = parse_backend(backend)
    saved = run_decided(cell, wx, name, "forward", run, recompute=not save_gates, configs=configs)
    last = last_states(inputs, saved.states)
    return (
        saved.states,
        saved.states[0].clone() if hidden_only else wx.new_empty(0),
        last[0].clone(),
        last[1:].clone(),
        wx.new_empty(0) if saved.gates is None else saved.gates,
    )


@torch.library.register_fake("constrint::rnn_forward")  # type: ignore[untyped-decorator]
def _fake_forward(wx: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    *_, cell, _, save_gates, hidden_only, _ = others
    batch, time, gates, heads, dim = wx.shape
    num_states = CELLS[cell].num_states
    return (
        wx.new_empty((num_states, batch, time, heads, dim)),
        wx.new_empty((batch, time, heads, dim) if hidden_only else (0,)),
        wx.new_empty((batch, heads, dim)),
        wx.new_empty((num_states - 1, batch, heads, dim)),
        wx.new_empty((batch, time, gates, heads, dim) if save_gates else (0,)),
    )


torch.library.define(
    "constrint::rnn_backward",
    "(Tensor? grad_states, Tensor? grad_hidden, Tensor? grad_last_h, Tensor? grad_last_rest, Tensor wx, "
    "Tensor r, Tensor? b, Tensor? initial, Tensor? lengths, Tensor? reset, Tensor states, Tensor gates, str cell, "
    "str backend, float clip) -> (Tensor, Tensor, Tensor, Tensor)",
)


@torch.library.impl("constrint::rnn_backward", "default")
def _backward(
    grad_states: Tensor | None, grad_hidden: Tensor | None, grad_last_h: Tensor | None, grad_last_rest: Tensor | None,
    wx: Tensor, r: Tensor, b: Tensor | None, initial: Tensor | None, lengths: Tensor | None, reset: Tensor | None,
    states: Tensor, gates: Tensor, cell: str, backend: str, clip: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of wx, r, b and initial; empty tensors stand for the absent ones."""
    inputs = _prepare(RnnInputs(cell, wx, r, b, initial, lengths, reset))
    number = CELLS[cell].num_states
    every = (grad_hidden, *(None,) * (number - 1)) if grad_states is None else grad_states.unbind(0)
    rest = (None,) * (number - 1) if grad_last_rest is None else grad_last_rest.unbind(0)
    upstream = RnnUpstream(every, (grad_last_h, *rest))
    if wx.shape[0] == 0 or wx.shape[1] == 0:
        return _no_steps(inputs, upstream)
    saved = ForwardOutputs(states, gates if gates.numel() else None)
    if saved.gates is not None and lengths is None and reset is None and wx.is_cuda:
        planned = _planned_backward(inputs, saved, grad_states, grad_hidden, grad_last_h, grad_last_rest, backend, clip)
        if planned is not None:
            gradients: tuple[Tensor, Tensor, Tensor, Tensor] = planned
            return gradients

    def run(dispatch: Dispatch) -> RnnGradients:
        return dispatch.backend.backward(inputs, saved, upstream, dispatch.choice, clip=clip)

    name, configs = parse_backend(backend)
    grads = run_decided(cell, wx, name, "backward", run, recompute=saved.gates is None, configs=configs)
    return (
        grads.wx,
        grads.r,
        wx.new_empty(0) if grads.b is None else grads.b,
        wx.new_empty(0) if grads.initial is None else grads.initial,
    )


@torch.library.register_fake("constrint::rnn_backward")  # type: ignore[untyped-decorator]
def _fake_backward(*arguments: Any) -> tuple[Tensor, ...]:
    wx = arguments[4]
    return tuple(wx.new_empty(0) if x is None else x.new_empty(x.shape) for x in arguments[4:8])


def _planned_forward(
    wx: Tensor, r: Tensor, b: Tensor | None, initial: Tensor | None, cell: str, backend: str, save_gates: bool,
    lengths: Tensor | None, reset: Tensor | None,
) -> Any:  # fmt: skip
    """The results of a forward call by its plan; None where it has none."""
    if lengths is not None or reset is not None or not wx.is_cuda:
        return None
    operands = wx, r, b, initial, None if initial is None else initial[0].to(wx.dtype)
    name, configs = parse_backend(backend)
    extra = Forward(cell, name, save_gates, False if save_gates else None, configs)
    return FORWARD.run(extra, *operands)


def _planned_backward(
    inputs: RnnInputs, saved: ForwardOutputs, grad_states: Tensor | None, grad_hidden: Tensor | None,
    grad_last_h: Tensor | None, grad_last_rest: Tensor | None, backend: str, clip: float,
) -> Any:  # fmt: skip
    """The gradients of a call by its plan; None where it has none."""
    kind = inputs.kind
    last = stacked_ends(grad_last_h, grad_last_rest, saved.states)
    only_h = grad_last_rest is None and (grad_states is None or kind.num_states == 1)
    b = inputs.b
    name, configs = parse_backend(backend)
    extra = backward_of(inputs.cell, name, clip, only_h, inputs.r, True, b, configs)
    of_h, of_all = (None if grad is None else grad.contiguous() for grad in (grad_hidden, grad_states))
    operands = of_h, of_all, last, inputs.wx, inputs.r, inputs.initial, saved.states, saved.gates
    results = BACKWARD.run(extra, *operands)
    if results is None:
        return None
    d_wx, d_r, d_b, initial = gradients_of_call(extra, results, inputs.r, True, b)
    nothing = inputs.wx.new_empty(0)
    return d_wx, d_r, nothing if d_b is None else d_b, nothing if inputs.initial is None else initial


rnn_forward = torch.ops.constrint.rnn_forward.default
rnn_backward = torch.ops.constrint.rnn_backward.default


def _prepare(inputs: RnnInputs) -> RnnInputs:
    """Convert strides and integer types to those that back-ends expect; clamp lengths to 0..T."""
    wx, lengths = inputs.wx, inputs.lengths
    heads, dim = wx.shape[3:]
    if wx.stride()[2:] != (heads * dim, dim, 1):
        wx = wx.contiguous()
    if lengths is not None:
        lengths = lengths.to(torch.int32).clamp(0, wx.shape[1]).contiguous()
    return replace(
        inputs,
        wx=wx,
        r=inputs.r.contiguous(),
        b=None if inputs.b is None else inputs.b.contiguous(),
        initial=None if inputs.initial is None else inputs.initial.contiguous(),
        lengths=lengths,
        reset=None if inputs.reset is None else inputs.reset.contiguous(),
    )


def last_states(inputs: RnnInputs, states: Tensor) -> Tensor:
    """States (S, B, N, D) at each sequence's last step, a view perhaps; the initial ones (or zeros) for length 0."""
    if inputs.lengths is None:
        return states[:, :, -1]
    rows = torch.arange(states.shape[1], device=states.device)
    last = states[:, rows, (inputs.lengths.long() - 1).clamp(min=0)]
    none = (inputs.lengths == 0)[None, :, None, None]
    return torch.where(none, 0.0 if inputs.initial is None else inputs.initial, last).to(states.dtype)


def _no_steps(inputs: RnnInputs, upstream: RnnUpstream) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients when no step ran: only the initial states can have one."""
    wx, initial = inputs.wx, inputs.initial
    if initial is None:
        grad_initial = wx.new_empty(0)
    else:
        grad_initial = upstream.stacked_last(initial)
    return (
        wx.new_zeros(wx.shape),
        torch.zeros_like(inputs.r),
        wx.new_empty(0) if inputs.b is None else torch.zeros_like(inputs.b),
        grad_initial,
    )
