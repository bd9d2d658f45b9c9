"""The library operators `constrint::rnn_forward` and `constrint::rnn_backward`, with their fake kernels.

They hand the work to a back-end by name, so that torch.compile and autograd see one operator whatever runs it.
Back-ends register here; which one `auto` is comes from the chooser that is registered beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from constrint.errors import UnknownNameError
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.reference import accumulation_dtype

AUTO = "auto"


@dataclass(frozen=True)
class RnnInputs:
    """What a recurrence runs on; all on one device.

    Args:
        cell: A key of `CELLS`.
        wx: (B, T, G, N, D) projected inputs; the last three dimensions are contiguous.
        r: (G, N, D out, D in) recurrent weights, contiguous.
        b: (G, N, D) recurrent bias, or None.
        initial: (S, B, N, D) states before the first step in the accumulation dtype, or None for zeros.
        lengths: (B,) int32 within 0..T, or None for all T.
        reset: (B, T) bool, or None for nowhere.
    """

    cell: str
    wx: Tensor
    r: Tensor
    b: Tensor | None
    initial: Tensor | None
    lengths: Tensor | None
    reset: Tensor | None


@dataclass(frozen=True)
class RnnSaved:
    """What the forward pass left: states (S, B, T, N, D), pre-activations (B, T, G, N, D) or None to recompute them.

    The GRU's slot n holds r_n h + b_n alone, since wx has the other part.
    """

    states: Tensor
    gates: Tensor | None


@dataclass(frozen=True)
class RnnUpstream:
    """Gradients of the results, one for each state; None is zero.

    Args:
        states: (B, T, N, D) each; what stands past a sequence's end does not count.
        last: (B, N, D) each; they belong to a sequence's last step, or to the initial states where its length is 0.
    """

    states: tuple[Tensor | None, ...]
    last: tuple[Tensor | None, ...]


@dataclass(frozen=True)
class RnnGradients:
    """Gradients of the inputs of the same names; None where there was no such input."""

    wx: Tensor
    r: Tensor
    b: Tensor | None
    initial: Tensor | None


class RnnBackend(Protocol):
    """A way to run recurrences; stateless but for caches."""

    name: str

    def forward(self, inputs: RnnInputs, *, save_gates: bool) -> RnnSaved:
        """Run over time; states past a sequence's length are zero. B and T are at least 1."""

    def backward(
        self,
        inputs: RnnInputs,
        saved: RnnSaved,
        upstream: RnnUpstream,
        *,
        clip: float,
    ) -> RnnGradients:
        """Gradients of the inputs; `clip` > 0 clamps what reaches h_{t-1} through r."""


_BACKENDS: dict[str, RnnBackend] = {}
_CHOOSERS: list[Callable[[RnnInputs], str]] = []


def register_backend(backend: RnnBackend) -> None:
    """Make a back-end available under its name."""
    _BACKENDS[backend.name] = backend


def register_chooser(chooser: Callable[[RnnInputs], str]) -> None:
    """Make `chooser` say which back-end `auto` is; the latest one counts."""
    _CHOOSERS.append(chooser)


def list_backends() -> tuple[str, ...]:
    """Names of the registered back-ends."""
    return tuple(_BACKENDS)


def get_backend(name: str, inputs: RnnInputs) -> RnnBackend:
    """The back-end of that name; `auto` asks the chooser.

    Raises:
        UnknownNameError: When there is no such back-end.
    """
    if name == AUTO:
        name = _CHOOSERS[-1](inputs) if _CHOOSERS else next(iter(_BACKENDS))
    if name not in _BACKENDS:
        raise UnknownNameError("backend", name, [*_BACKENDS, AUTO])
    return _BACKENDS[name]


@torch.library.custom_op(
    "constrint::rnn_forward",
    mutates_args=(),
    schema="(Tensor wx, Tensor r, Tensor? b, Tensor? initial, Tensor? lengths, Tensor? reset, "
    "str cell, str backend, bool save_gates, bool hidden_only, float clip) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def rnn_forward(
    wx: Tensor,
    r: Tensor,
    b: Tensor | None,
    initial: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
    cell: str,
    backend: str,
    save_gates: bool,
    hidden_only: bool,
    clip: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """All states, a copy of h if `hidden_only`, the last h, the other last states, and the saved pre-activations.

    What is not asked for is empty. Results are apart so that autograd tells which of them have gradients: with
    `hidden_only` all states are not differentiable, and the others cost the backward pass nothing. `clip` only matters
    to the gradient.
    """
    inputs = _prepare(RnnInputs(cell, wx, r, b, initial, lengths, reset))
    if wx.shape[0] == 0 or wx.shape[1] == 0:
        sizes = (wx, r, b, initial, lengths, reset, cell, backend, save_gates, hidden_only, clip)
        states, hidden, last_h, last_rest, gates = _fake_forward(*sizes)
        last = zero_states(inputs)
        return states, hidden, last_h.copy_(last[0]), last_rest.copy_(last[1:]), gates
    saved = get_backend(backend, inputs).forward(inputs, save_gates=save_gates)
    last = last_states(inputs, saved.states)
    return (
        saved.states,
        saved.states[0].clone() if hidden_only else wx.new_empty(0),
        last[0].clone(),
        last[1:].clone(),
        wx.new_empty(0) if saved.gates is None else saved.gates,
    )


@rnn_forward.register_fake
def _fake_forward(
    wx: Tensor,
    r: Tensor,
    b: Tensor | None,
    initial: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
    cell: str,
    backend: str,
    save_gates: bool,
    hidden_only: bool,
    clip: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch, time, gates, heads, dim = wx.shape
    num_states = CELLS[cell].num_states
    return (
        wx.new_empty((num_states, batch, time, heads, dim)),
        wx.new_empty((batch, time, heads, dim) if hidden_only else (0,)),
        wx.new_empty((batch, heads, dim)),
        wx.new_empty((num_states - 1, batch, heads, dim)),
        wx.new_empty((batch, time, gates, heads, dim) if save_gates else (0,)),
    )


@torch.library.custom_op(
    "constrint::rnn_backward",
    mutates_args=(),
    schema="(Tensor? grad_states, Tensor? grad_hidden, Tensor? grad_last_h, Tensor? grad_last_rest, Tensor wx, "
    "Tensor r, Tensor? b, Tensor? initial, Tensor? lengths, Tensor? reset, Tensor states, Tensor gates, str cell, "
    "str backend, float clip) -> (Tensor, Tensor, Tensor, Tensor)",
)
def rnn_backward(
    grad_states: Tensor | None,
    grad_hidden: Tensor | None,
    grad_last_h: Tensor | None,
    grad_last_rest: Tensor | None,
    wx: Tensor,
    r: Tensor,
    b: Tensor | None,
    initial: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
    states: Tensor,
    gates: Tensor,
    cell: str,
    backend: str,
    clip: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of wx, r, b and initial; empty tensors stand for the absent ones."""
    inputs = _prepare(RnnInputs(cell, wx, r, b, initial, lengths, reset))
    number = CELLS[cell].num_states
    every = (grad_hidden, *(None,) * (number - 1)) if grad_states is None else grad_states.unbind(0)
    rest = (None,) * (number - 1) if grad_last_rest is None else grad_last_rest.unbind(0)
    upstream = RnnUpstream(every, (grad_last_h, *rest))
    if wx.shape[0] == 0 or wx.shape[1] == 0:
        return _no_steps(inputs, upstream)
    saved = RnnSaved(states, gates if gates.numel() else None)
    found = get_backend(backend, inputs).backward(inputs, saved, upstream, clip=clip)
    return (
        found.wx,
        found.r,
        wx.new_empty(0) if found.b is None else found.b,
        wx.new_empty(0) if found.initial is None else found.initial,
    )


@rnn_backward.register_fake
def _fake_backward(
    grad_states: Tensor | None,
    grad_hidden: Tensor | None,
    grad_last_h: Tensor | None,
    grad_last_rest: Tensor | None,
    wx: Tensor,
    r: Tensor,
    b: Tensor | None,
    initial: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
    states: Tensor,
    gates: Tensor,
    cell: str,
    backend: str,
    clip: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        wx.new_empty(wx.shape),
        r.new_empty(r.shape),
        wx.new_empty(0) if b is None else b.new_empty(b.shape),
        wx.new_empty(0) if initial is None else initial.new_empty(initial.shape),
    )


def _prepare(inputs: RnnInputs) -> RnnInputs:
    """Bring strides and integer types to what back-ends count on; lengths beyond 0..T cannot reach memory."""
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
        grad_initial = torch.zeros_like(initial)
        for found, given in zip(grad_initial, upstream.last, strict=True):
            if given is not None:
                found.copy_(given)
    return (
        wx.new_zeros(wx.shape),
        torch.zeros_like(inputs.r),
        wx.new_empty(0) if inputs.b is None else torch.zeros_like(inputs.b),
        grad_initial,
    )


def zero_states(inputs: RnnInputs) -> Tensor:
    """Initial states (S, B, N, D) in the accumulation dtype, zeros if none were given."""
    if inputs.initial is not None:
        return inputs.initial
    batch, _, _, heads, dim = inputs.wx.shape
    shape = (CELLS[inputs.cell].num_states, batch, heads, dim)
    return inputs.wx.new_zeros(shape, dtype=accumulation_dtype(inputs.wx.dtype))
