"""The library operators of recurrences, with their fake kernels.

`constrint::rnn_forward` and `constrint::rnn_backward` are what torch traces, observes and differentiates, whatever
implementation runs. `constrint::rnn_forward_loop` and `constrint::rnn_backward_loop` do their work and have no gradient
of their own: the kernels of autograd (`flashrnn/autograd.py`) call them, so that a graph of AOTAutograd calls them
without another pass through autograd, which takes the host longer than the rest of an operator. They return what there
is alone.

`dispatch.py` decides which implementation runs, and with which configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.dispatch import Dispatch, parse_backend, run_decided
from constrint.kernels.rnn.gradients import stacked_ends
from constrint.kernels.rnn.interface import ForwardOutputs, RnnGradients, RnnInputs, RnnUpstream, zero_states
from constrint.kernels.rnn.plans import BACKWARD, FORWARD, Forward, backward_of, gradients_of_call

_INPUTS = "Tensor wx, Tensor r, Tensor? b, Tensor? initial, Tensor? lengths, Tensor? reset"
_BACKWARD = (
    "(Tensor? grad_states, Tensor? grad_hidden, Tensor? grad_last_h, Tensor? grad_last_rest, "
    f"{_INPUTS}, Tensor states, Tensor gates, str cell, str backend, float clip)"
)
#: Arguments of `rnn_forward` that its loop takes: the inputs, the cell, the back-end and whether gates are stored.
NUM_LOOP_ARGUMENTS = 9
# Defined by hand: torch.library.custom_op imports Dynamo at its first call, which takes seconds.
torch.library.define("constrint::rnn_forward_loop", f"({_INPUTS}, str cell, str backend, bool save_gates) -> Tensor[]")
torch.library.define("constrint::rnn_backward_loop", f"{_BACKWARD} -> Tensor[]")
torch.library.define(
    "constrint::rnn_forward",
    f"({_INPUTS}, str cell, str backend, bool save_gates, bool hidden_only, float clip) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define("constrint::rnn_backward", f"{_BACKWARD} -> (Tensor, Tensor, Tensor, Tensor)")


def _forward_loop(
    wx: Tensor, r: Tensor, b: Tensor | None, initial: Tensor | None, lengths: Tensor | None, reset: Tensor | None,
    cell: str, backend: str, save_gates: bool,
) -> list[Tensor]:  # fmt: skip
    """All states, the last h, the other last states if there are any, and pre-activations if they are saved."""
    planned = _planned_forward(wx, r, b, initial, cell, backend, save_gates, lengths, reset)
    if planned is not None:
        return list(planned)
    inputs = _prepare(RnnInputs(cell, wx, r, b, initial, lengths, reset))
    if wx.shape[0] == 0 or wx.shape[1] == 0:
        every = _fake_forward_loop(wx, cell, backend, save_gates)
        last = zero_states(inputs)
        every[1].copy_(last[0])
        if len(last) > 1:
            every[2].copy_(last[1:])
        return list(every)

    def run(dispatch: Dispatch) -> ForwardOutputs:
        return dispatch.backend.forward(inputs, dispatch.choice, save_gates=save_gates)

    name, configs = parse_backend(backend)
    saved = run_decided(cell, wx, name, "forward", run, recompute=not save_gates, configs=configs)
    last = last_states(inputs, saved.states)
    rest = [last[1:].clone()] if len(last) > 1 else []
    gates = [wx.new_empty(0) if saved.gates is None else saved.gates] if save_gates else []
    return [saved.states, last[0].clone(), *rest, *gates]


torch.library.impl("constrint::rnn_forward_loop", "default")(_forward_loop)


@torch.library.register_fake("constrint::rnn_forward_loop")  # type: ignore[untyped-decorator]
def _fake_forward_loop(wx: Tensor, *others: Any) -> list[Tensor]:
    *_, cell, _, save_gates = others
    batch, time, gates, heads, dim = wx.shape
    num_states = CELLS[cell].num_states
    rest = [wx.new_empty((num_states - 1, batch, heads, dim))] if num_states > 1 else []
    saved = [wx.new_empty((batch, time, gates, heads, dim))] if save_gates else []
    return [
        wx.new_empty((num_states, batch, time, heads, dim)),
        wx.new_empty((batch, heads, dim)),
        *rest,
        *saved,
    ]


def unpacked(wx: Tensor, cell: str, results: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All states, the last h, the other last states and pre-activations; those that a loop has not are empty."""
    states, end_h, *others = results
    rest = others.pop(0) if CELLS[cell].num_states > 1 else wx.new_empty((0, *end_h.shape))
    return states, end_h, rest, others[0] if others else wx.new_empty(0)


@torch.library.impl("constrint::rnn_forward", "default")
def _forward(
    wx: Tensor, r: Tensor, b: Tensor | None, initial: Tensor | None, lengths: Tensor | None, reset: Tensor | None,
    cell: str, backend: str, save_gates: bool, hidden_only: bool, clip: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """All states, a copy of h if `hidden_only`, the last h, the other last states, and the saved pre-activations.

    Those that are not needed are empty. Results are apart so that autograd tells which of them have gradients. `clip`
    only matters to the gradient.
    """
    results = _forward_loop(wx, r, b, initial, lengths, reset, cell, backend, save_gates)
    states, end_h, end_rest, gates = unpacked(wx, cell, results)
    return states, states[0].clone() if hidden_only else wx.new_empty(0), end_h, end_rest, gates


@torch.library.register_fake("constrint::rnn_forward")  # type: ignore[untyped-decorator]
def _fake_forward(wx: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    *_, cell, backend, save_gates, hidden_only, _ = others
    states, end_h, end_rest, gates = unpacked(wx, cell, _fake_forward_loop(wx, cell, backend, save_gates))
    return states, wx.new_empty(states.shape[1:] if hidden_only else (0,)), end_h, end_rest, gates


def _backward_loop(
    grad_states: Tensor | None, grad_hidden: Tensor | None, grad_last_h: Tensor | None, grad_last_rest: Tensor | None,
    wx: Tensor, r: Tensor, b: Tensor | None, initial: Tensor | None, lengths: Tensor | None, reset: Tensor | None,
    states: Tensor, gates: Tensor, cell: str, backend: str, clip: float,
) -> list[Tensor]:  # fmt: skip
    """Gradients of wx, r, and of those of b and initial that there are."""
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
            return list(planned)

    def run(dispatch: Dispatch) -> RnnGradients:
        return dispatch.backend.backward(inputs, saved, upstream, dispatch.choice, clip=clip)

    name, configs = parse_backend(backend)
    grads = run_decided(cell, wx, name, "backward", run, recompute=saved.gates is None, configs=configs)
    return [grad for grad in (grads.wx, grads.r, grads.b, grads.initial) if grad is not None]


torch.library.impl("constrint::rnn_backward_loop", "default")(_backward_loop)


@torch.library.register_fake("constrint::rnn_backward_loop")  # type: ignore[untyped-decorator]
def _fake_backward_loop(*arguments: Any) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in arguments[4:8] if x is not None]


def every_gradient(arguments: Sequence[Any], results: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of wx, r, b and initial from the results of a loop; empty tensors stand for the absent ones."""
    wx, _, b, initial = arguments[4:8]
    of_wx, of_r, *others = results
    of_b = wx.new_empty(0) if b is None else others.pop(0)
    return of_wx, of_r, of_b, wx.new_empty(0) if initial is None else others[0]


@torch.library.impl("constrint::rnn_backward", "default")
def _backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of wx, r, b and initial; empty tensors stand for the absent ones."""
    return every_gradient(arguments, _backward_loop(*arguments))


@torch.library.register_fake("constrint::rnn_backward")  # type: ignore[untyped-decorator]
def _fake_backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return every_gradient(arguments, _fake_backward_loop(*arguments))


def _planned_forward(
    wx: Tensor, r: Tensor, b: Tensor | None, initial: Tensor | None, cell: str, backend: str, save_gates: bool,
    lengths: Tensor | None, reset: Tensor | None,
) -> Any:  # fmt: skip
    """The results of a forward call by its plan; None where it has none."""
    if lengths is not None or reset is not None or not wx.is_cuda:
        return None
    start = None if initial is None else initial[0].to(wx.dtype)
    return FORWARD.run(_forward_of(cell, backend, save_gates), wx, r, b, initial, start)


@lru_cache(maxsize=256)
def _forward_of(cell: str, backend: str, save_gates: bool) -> Forward:
    name, configs = parse_backend(backend)
    return Forward(cell, name, save_gates, False if save_gates else None, configs)


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
    every = d_wx, d_r, d_b, None if inputs.initial is None else initial
    return [grad for grad in every if grad is not None]


rnn_forward = torch.ops.constrint.rnn_forward.default
rnn_backward = torch.ops.constrint.rnn_backward.default
rnn_forward_loop = torch.ops.constrint.rnn_forward_loop.default
rnn_backward_loop = torch.ops.constrint.rnn_backward_loop.default


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


def _no_steps(inputs: RnnInputs, upstream: RnnUpstream) -> list[Tensor]:
    """Gradients when no step ran: only the initial states can have one."""
    wx, b, initial = inputs.wx, inputs.b, inputs.initial
    of_b = [] if b is None else [torch.zeros_like(b)]
    of_initial = [] if initial is None else [upstream.stacked_last(initial)]
    return [wx.new_zeros(wx.shape), torch.zeros_like(inputs.r), *of_b, *of_initial]
