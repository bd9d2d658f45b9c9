"""A recurrence on checked operands: by its launch plan, or else through the operators `constrint::rnn_*`.

A plan serves calls that no one looks at (see `kernels/launch/plan/table.py`), on a GPU, without lengths and resets. A
gradient is one node of autograd, whose backward pass goes by a plan too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

import constrint.flashrnn.autograd  # noqa: F401  registers the gradient of the operator
from constrint.flashrnn.observers import may_train
from constrint.kernels.launch.plan.table import IS_NEW, WANTS_GRAD
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.gradients import recompute_gates, stacked_ends, states_before
from constrint.kernels.rnn.plans import BACKWARD, FORWARD, Forward, backward_of, gradients_of_call

#: All states (S, B, T, N, D) or h alone (B, T, N, D); the last h (B, N, D); the other last states (S - 1, B, N, D).
Results = tuple[Tensor, Tensor, Tensor | None]


class Way(NamedTuple):
    """How a recurrence is run; see `rnn` for the words.

    Args:
        cell: A key of `CELLS`.
        backend: An implementation's name, or `auto`.
        clip: Limit of the gradient that reaches h through r; 0 for none.
        recompute: Whether pre-activations are computed again; None lets the plan say.
        hidden_only: Whether h alone is wanted of all states.
    """

    cell: str
    backend: str
    clip: float = 0.0
    recompute: bool | None = None
    hidden_only: bool = True


class NewSignatureError(Exception):
    """The call has not been seen: its arguments are still to be checked."""


def by_plan(
    way: Way,
    wx: Tensor,
    r: Tensor,
    b: Tensor | None,
    initial: Tensor | None = None,
    start: Tensor | None = None,
    *,
    is_checked: bool,
) -> Results | None:
    """Run a call by its plan; None where there is none, and where it is new unless its arguments are checked.

    Args:
        way: How.
        wx: (B, T, G, N, D).
        r: (G, N, D, D).
        b: (G, N, D), or None.
        initial: (S, B, N, D) in fp32, or None.
        start: (B, N, D), the initial h in the dtype of wx, where it is at hand.
        is_checked: Whether a new call may be learnt.
    """
    if is_compiling():
        return None
    extra = _extra(way.cell, way.backend, False, None)
    made: Any = FORWARD.call(False, extra, wx, r, b, initial, start)
    if made is None:
        return None
    if made is WANTS_GRAD:
        try:
            every, end_h, end_rest = _apply(wx, r, b, initial, start, way, is_checked)
        except NewSignatureError:
            return None
        return every, end_h, end_rest
    if made is IS_NEW:
        if not is_checked:
            return None
        made = FORWARD.learn(extra, wx, r, b, initial, start)
        if made is None:
            return None
    return made[0][0] if way.hidden_only else made[0], made[1], made[2] if len(made) > 2 else None


def through_operator(
    way: Way,
    wx: Tensor,
    r: Tensor,
    b: Tensor | None,
    initial: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
) -> Results:
    """Run a call through the operator; the arguments are those of `by_plan`, and checked lengths and resets."""
    trains = may_train(wx, r, b, initial)
    recompute = way.recompute
    if trains and recompute is None:
        from constrint.kernels.rnn.first_choice import saves_gates

        recompute = not (is_compiling() or saves_gates(way.cell, wx, way.backend))
    is_split = way.hidden_only and trains
    every, hidden, end_h, end_rest, _ = torch.ops.constrint.rnn_forward(
        wx, r, b, initial, lengths, reset, way.cell, way.backend, trains and not recompute, is_split, way.clip
    )
    if way.hidden_only:
        every = hidden if trains else every[0]
    return every, end_h, end_rest if CELLS[way.cell].num_states > 1 else None


@lru_cache(maxsize=256)
def _extra(cell: str, backend: str, trains: bool, recompute: bool | None) -> Forward:
    return Forward(cell, backend, trains, recompute)


class _Recurrence(torch.autograd.Function):
    """A recurrence that goes by its plan, with a gradient that does."""

    @staticmethod
    def forward(
        ctx: Any,
        wx: Tensor,
        r: Tensor,
        b: Tensor | None,
        initial: Tensor | None,
        start: Tensor | None,
        way: Way,
        is_checked: bool,
    ) -> Results:
        extra = _extra(way.cell, way.backend, True, way.recompute)
        kind = CELLS[way.cell]
        made: Any = FORWARD.call(True, extra, wx, r, b, initial, start)
        if made is IS_NEW:
            if not is_checked:
                raise NewSignatureError
            made = FORWARD.learn(extra, wx, r, b, initial, start)
        if made is None:
            states, end_h, end_rest, gates = _forward_long(way, wx, r, b, initial)
        else:
            states, end_h, *others = made
            end_rest = others.pop(0) if kind.num_states > 1 else None
            gates = others.pop() if others else None
        # The inputs are read again where parts are kept apart, and where pre-activations are computed again.
        reads = wx if kind.keeps_parts_apart or gates is None else None
        ctx.save_for_backward(reads, r, b, initial, states, gates)
        if reads is None:
            with torch.enable_grad():
                ctx.trace = _trace(wx)
        ctx.way = way
        ctx.set_materialize_grads(False)
        return states[0] if way.hidden_only else states, end_h, end_rest

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if torch.is_grad_enabled():  # create_graph=True: the operator's gradients can be differentiated again
            return _differentiable_gradients(ctx, grads)
        return _gradients(ctx, grads)


class _Trace(torch.autograd.Function):
    """Stands for a tensor in the graph of autograd without keeping its elements: one element that nobody reads."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _element(x.dtype, x.device).expand(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0]


class _Rejoin(torch.autograd.Function):
    """Elements at the place in the graph that a trace has kept."""

    @staticmethod
    def forward(ctx: Any, elements: Tensor, trace: Tensor) -> Tensor:
        return elements.view_as(elements)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, grads[0]


@lru_cache(maxsize=64)
def _element(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty((), dtype=dtype, device=device)


def _differentiable_gradients(ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
    """Gradients as results of the operator, which has a gradient itself."""
    wx, r, b, initial, states, gates = ctx.saved_tensors
    every, end_h, end_rest = grads
    way: Way = ctx.way
    if every is None and end_h is None and end_rest is None:
        return (None,) * 7
    if wx is None:
        with torch.no_grad():
            # What the recurrence adds to the input, taken off the pre-activations.
            wx = -recompute_gates(CELLS[way.cell], -gates, r, b, states_before(states[0], initial, None))
        wx = _Rejoin.apply(wx, ctx.trace)  # type: ignore[no-untyped-call]
    found = _backward_long(way, every, end_h, end_rest, wx, r, b, initial, states, gates)
    return _wanted(found, b, initial, ctx.needs_input_grad)


def _gradients(ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
    wx, r, b, initial, states, gates = ctx.saved_tensors
    every, end_h, end_rest = grads
    if every is None and end_h is None and end_rest is None:
        return (None,) * 7
    way: Way = ctx.way
    needs = ctx.needs_input_grad
    every = None if every is None else every.contiguous()
    wants = bool(needs[1]), b if needs[2] else None
    made: Any = None
    if gates is not None:
        wx = gates if wx is None else wx
        only_h = end_rest is None and (way.hidden_only or CELLS[way.cell].num_states == 1)
        extra = backward_of(way.cell, way.backend, way.clip, only_h, r, *wants)
        of_h, of_all = (every, None) if way.hidden_only else (None, every)
        operands = of_h, of_all, stacked_ends(end_h, end_rest, states), wx, r, initial, states, gates
        made = BACKWARD.call(True, extra, *operands)
        if made is IS_NEW:
            made = BACKWARD.learn(extra, *operands)
    if made is None:
        d_wx, d_r, d_b, d_initial = _backward_long(way, every, end_h, end_rest, wx, r, b, initial, states, gates)
    else:
        d_wx, d_r, d_b, d_initial = gradients_of_call(extra, made, r, *wants)
    return _wanted((d_wx, d_r, d_b, d_initial), b, initial, needs)


def _wanted(
    found: tuple[Any, ...], b: Tensor | None, initial: Tensor | None, needs: tuple[bool, ...]
) -> tuple[Any, ...]:
    """What autograd gets for every argument of the recurrence, from the gradients of wx, r, b and initial."""
    d_wx, d_r, d_b, d_initial = found
    return (
        d_wx if needs[0] else None,
        d_r if needs[1] else None,
        d_b if b is not None and needs[2] else None,
        d_initial if initial is not None and needs[3] else None,
        None,
        None,
        None,
    )


def _forward_long(
    way: Way, wx: Tensor, r: Tensor, b: Tensor | None, initial: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    from constrint.kernels.rnn.first_choice import saves_gates

    keeps = saves_gates(way.cell, wx, way.backend) if way.recompute is None else not way.recompute
    states, _, end_h, end_rest, gates = torch.ops.constrint.rnn_forward(
        wx, r, b, initial, None, None, way.cell, way.backend, keeps, False, way.clip
    )
    return states, end_h, end_rest if states.shape[0] > 1 else None, gates if keeps else None


def _backward_long(
    way: Way,
    every: Tensor | None,
    end_h: Tensor | None,
    end_rest: Tensor | None,
    wx: Tensor,
    r: Tensor,
    b: Tensor | None,
    initial: Tensor | None,
    states: Tensor,
    gates: Tensor | None,
) -> Any:
    of_h, of_all = (every, None) if way.hidden_only else (None, every)
    gates = wx.new_empty(0) if gates is None else gates
    return torch.ops.constrint.rnn_backward(
        of_all, of_h, end_h, end_rest, wx, r, b, initial, None, None, states, gates, way.cell, way.backend, way.clip
    )


#: `apply` of both without its look at functorch, which the table's listeners have taken.
_apply: Any = torch._C._FunctionBase.__dict__["apply"].__get__(None, _Recurrence)
_trace: Any = torch._C._FunctionBase.__dict__["apply"].__get__(None, _Trace)
