"""One recurrence: by its launch plan, or through the operators `constrint::rnn_*`, or by the reference.

`recur` looks the plan of a call up once. A call of a known signature runs; a new one is checked, planned and run; a
call without a plan (lengths, resets, CPU, observed calls: see `kernels/launch/plan/table.py`) goes through the
operator. A gradient is one node of autograd, whose backward pass has a plan, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

import constrint.flashrnn.autograd  # noqa: F401  registers the gradient of the operator
from constrint.flashrnn import checks
from constrint.flashrnn.observers import autocast_dtype, may_train, needs_plain_torch
from constrint.kernels.launch.plan.nodes import apply_of
from constrint.kernels.launch.plan.table import IS_NEW, WANTS_GRAD
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.dispatch import Configs, backend_text
from constrint.kernels.rnn.gradients import recompute_gates, stacked_ends, states_before
from constrint.kernels.rnn.plans import BACKWARD, FORWARD, Forward, backward_of, gradients_of_call
from constrint.kernels.rnn.reference import accumulation_dtype, rnn_reference

#: All states (S, B, T, N, D) or h alone (B, T, N, D); the last h (B, N, D); the other last states (S - 1, B, N, D).
Results = tuple[Tensor, Tensor, Tensor | None]


class RnnOptions(NamedTuple):
    """Options of a recurrence; `rnn` describes them.

    Args:
        cell: A key of `CELLS`.
        backend: An implementation's name, `auto` or `reference`.
        clip: Limit of the gradient that reaches h through r; 0 for none.
        recompute: Whether pre-activations are recomputed; None leaves that to the decision.
        hidden_only: Whether h is returned instead of all states.
        configs: Configurations that the caller forces, as in `LayerDetail`.
    """

    cell: str
    backend: str
    clip: float = 0.0
    recompute: bool | None = None
    hidden_only: bool = True
    configs: Configs = ()

    @property
    def named_backend(self) -> str:
        """The back-end and forced configurations as the operators take them."""
        return backend_text(self.backend, self.configs)


def recur(
    options: RnnOptions,
    wx: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    states: Tensor | None = None,
    lengths: Any = None,
    reset: Tensor | None = None,
    *,
    is_own: bool = False,
) -> Results:
    """Run a recurrence.

    Args:
        options: The options.
        wx: (B, T, G, N, D).
        r: (G, N, D, D).
        b: (G, N, D), or None.
        states: (S, B, N, D), or None.
        lengths: (B,), or None.
        reset: (B, T), or None.
        is_own: Whether the operands come from a module, so that only calls of a new signature are checked.

    Raises:
        UsageError: For a shape, dtype, device or value that does not fit.
    """
    is_apart = needs_plain_torch()
    has_plan = not is_apart and options.backend != checks.REFERENCE and lengths is None and reset is None
    has_plan = has_plan and not is_compiling()
    operands: Any = wx, r, b, states, lengths, reset

    def check() -> Any:
        return checks.check_operands(options.cell, options.backend, *operands, is_own=is_own)

    if has_plan and is_own:
        initial, start = _start(states, wx)
        if r.dtype != wx.dtype and autocast_dtype(wx.device) is not None:
            r = r.to(wx.dtype)  # autocast has converted the product alone
        results = by_plan(options, wx, r, b, initial, start, check)
        has_plan = False
    elif has_plan and states is None and not torch._C._is_any_autocast_enabled():
        results = by_plan(options, wx, r, b, None, None, check)
        has_plan = False
    else:
        results = None
    if results is not None:
        return results
    wx, r, b, states, lengths, reset = check()
    if is_apart or options.backend == checks.REFERENCE:
        return _by_reference(options, wx, r, b, states, lengths, reset)
    initial, start = _start(states, wx)
    results = by_plan(options, wx, r, b, initial, start, None) if has_plan else None
    if results is None:
        results = through_operator(options, wx, r, b, initial, lengths, reset)
    return results


def _start(states: Tensor | None, wx: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Initial states in the accumulation dtype, and the initial h if the states have the dtype of wx."""
    if states is None:
        return None, None
    return states.to(accumulation_dtype(wx.dtype)), states[0] if states.dtype == wx.dtype else None


def by_plan(
    options: RnnOptions,
    wx: Tensor,
    r: Tensor,
    b: Tensor | None,
    initial: Tensor | None,
    start: Tensor | None,
    check: Callable[[], object] | None,
) -> Results | None:
    """Run a call by its plan; None where it has none.

    Args:
        options: The options.
        wx: (B, T, G, N, D).
        r: (G, N, D, D).
        b: (G, N, D), or None.
        initial: (S, B, N, D) in fp32, or None.
        start: (B, N, D), the initial h in the dtype of wx, if the caller has it.
        check: Raises where the operands of a new signature are wrong; None where they were checked before.
    """
    extra = _extra(options.cell, options.backend, False, None, options.configs)
    results: Any = FORWARD.call(False, extra, wx, r, b, initial, start)
    if results is None:
        return None
    if results is WANTS_GRAD:
        every, end_h, end_rest = _apply(wx, r, b, initial, start, options, check)
        return every, end_h, end_rest
    if results is IS_NEW:
        if check is not None:
            check()
        results = FORWARD.learn(extra, wx, r, b, initial, start)
        if results is None:
            return None
    every = results[0][0] if options.hidden_only else results[0]
    return every, results[1], results[2] if len(results) > 2 else None


def through_operator(
    options: RnnOptions,
    wx: Tensor,
    r: Tensor,
    b: Tensor | None,
    initial: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
) -> Results:
    """Run a call through the operator: the operands of `by_plan`, and checked lengths and resets."""
    trains = may_train(wx, r, b, initial)
    recompute = options.recompute
    if trains and recompute is None:
        from constrint.kernels.rnn.dispatch import saves_gates

        recompute = not (is_compiling() or saves_gates(options.cell, wx, options.backend))
    is_split = options.hidden_only and trains
    every, hidden, end_h, end_rest, _ = torch.ops.constrint.rnn_forward(
        *(
            wx,
            r,
            b,
            initial,
            lengths,
            reset,
            options.cell,
            options.named_backend,
            trains and not recompute,
            is_split,
        ),
        options.clip,
    )
    if options.hidden_only:
        every = hidden if trains else every[0]
    return every, end_h, end_rest if CELLS[options.cell].num_states > 1 else None


def _by_reference(
    options: RnnOptions,
    wx: Tensor,
    r: Tensor,
    b: Tensor | None,
    states: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
) -> Results:
    checks.check_exported(wx.shape[1])
    initial, _ = _start(states, wx)
    every, last = rnn_reference(options.cell, wx, r, b, initial, lengths=lengths, reset=reset, clip=options.clip)
    return every[0] if options.hidden_only else every, last[0], last[1:] if len(last) > 1 else None


@lru_cache(maxsize=256)
def _extra(cell: str, backend: str, trains: bool, recompute: bool | None, configs: Configs) -> Forward:
    return Forward(cell, backend, trains, recompute, configs)


class _Recurrence(torch.autograd.Function):
    """A recurrence that runs by its plan, with a gradient that does."""

    @staticmethod
    def forward(
        ctx: Any,
        wx: Tensor,
        r: Tensor,
        b: Tensor | None,
        initial: Tensor | None,
        start: Tensor | None,
        options: RnnOptions,
        check: Callable[[], object] | None,
    ) -> Results:
        kind = CELLS[options.cell]
        states, end_h, end_rest, gates = trained(options, wx, r, b, initial, start, check)
        # The inputs are read again where parts are kept apart, and where pre-activations are recomputed.
        reads = wx if kind.keeps_parts_apart or gates is None else None
        ctx.save_for_backward(reads, r, b, initial, states, gates)
        if reads is None:
            with torch.enable_grad():
                ctx.trace = _trace(wx)
        ctx.options = options
        ctx.set_materialize_grads(False)
        return states[0] if options.hidden_only else states, end_h, end_rest

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if torch.is_grad_enabled():  # create_graph=True: the operator's gradients can be differentiated again
            return _differentiable_gradients(ctx, grads)
        return _gradients(ctx, grads)


def trained(
    options: RnnOptions,
    wx: Tensor,
    r: Tensor,
    b: Tensor | None,
    initial: Tensor | None,
    start: Tensor | None,
    check: Callable[[], object] | None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """A forward pass that a gradient follows: all states, the last h, the other last states, and pre-activations.

    The arguments are those of `by_plan`. The last result is None where the backward pass computes it again.
    """
    extra = _extra(options.cell, options.backend, True, options.recompute, options.configs)
    results: Any = FORWARD.call(True, extra, wx, r, b, initial, start)
    if results is IS_NEW:
        if check is not None:
            check()
        results = FORWARD.learn(extra, wx, r, b, initial, start)
    if results is None:
        return _forward_by_operator(options, wx, r, b, initial)
    states, end_h, *others = results
    end_rest = others.pop(0) if CELLS[options.cell].num_states > 1 else None
    return states, end_h, end_rest, others.pop() if others else None


class _Trace(torch.autograd.Function):
    """Stand-in for a tensor in the graph of autograd: one element that nobody reads, so that no memory is held."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _element(x.dtype, x.device).expand(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0]


class _Rejoin(torch.autograd.Function):
    """Puts elements at the place of a trace in the graph of autograd."""

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
    options: RnnOptions = ctx.options
    if every is None and end_h is None and end_rest is None:
        return (None,) * 7
    if wx is None:
        with torch.no_grad():
            # The pre-activations minus the recurrence's part.
            wx = -recompute_gates(CELLS[options.cell], -gates, r, b, states_before(states[0], initial, None))
        wx = _Rejoin.apply(wx, ctx.trace)  # type: ignore[no-untyped-call]
    gradients = backward_by_operator(options, every, end_h, end_rest, wx, r, b, initial, states, gates)
    return _per_argument(gradients, b, initial, ctx.needs_input_grad)


def _gradients(ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
    wx, r, b, initial, states, gates = ctx.saved_tensors
    every, end_h, end_rest = grads
    if every is None and end_h is None and end_rest is None:
        return (None,) * 7
    options: RnnOptions = ctx.options
    needs = ctx.needs_input_grad
    every = None if every is None else every.contiguous()
    of_r, of_b = bool(needs[1]), b if needs[2] else None
    results: Any = None
    if gates is not None:
        wx = gates if wx is None else wx
        only_h = end_rest is None and (options.hidden_only or CELLS[options.cell].num_states == 1)
        extra = backward_of(options.cell, options.backend, options.clip, only_h, r, of_r, of_b, options.configs)
        of_h, of_all = (every, None) if options.hidden_only else (None, every)
        operands = of_h, of_all, stacked_ends(end_h, end_rest, states), wx, r, initial, states, gates
        results = BACKWARD.call(True, extra, *operands)
        if results is IS_NEW:
            results = BACKWARD.learn(extra, *operands)
    if results is None:
        gradients = backward_by_operator(options, every, end_h, end_rest, wx, r, b, initial, states, gates)
    else:
        gradients = gradients_of_call(extra, results, r, of_r, of_b)
    return _per_argument(gradients, b, initial, needs)


def _per_argument(
    gradients: tuple[Any, ...], b: Tensor | None, initial: Tensor | None, needs: tuple[bool, ...]
) -> tuple[Any, ...]:
    """A gradient or None per argument of `_Recurrence`, from the gradients of wx, r, b and initial."""
    d_wx, d_r, d_b, d_initial = gradients
    return (
        d_wx if needs[0] else None,
        d_r if needs[1] else None,
        d_b if b is not None and needs[2] else None,
        d_initial if initial is not None and needs[3] else None,
        None,
        None,
        None,
    )


def _forward_by_operator(
    options: RnnOptions, wx: Tensor, r: Tensor, b: Tensor | None, initial: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    from constrint.kernels.rnn.dispatch import saves_gates

    stores = not options.recompute
    if options.recompute is None:
        stores = saves_gates(options.cell, wx, options.backend)
    states, _, end_h, end_rest, gates = torch.ops.constrint.rnn_forward(
        wx,
        r,
        b,
        initial,
        None,
        None,
        options.cell,
        options.named_backend,
        stores,
        False,
        options.clip,
    )
    return states, end_h, end_rest if states.shape[0] > 1 else None, gates if stores else None


def backward_by_operator(
    options: RnnOptions,
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
    """Gradients of wx, r, b and initial by the operator, empty ones for the absent; gradients of results are given."""
    of_h, of_all = (every, None) if options.hidden_only else (None, every)
    gates = wx.new_empty(0) if gates is None else gates
    return torch.ops.constrint.rnn_backward(
        *(
            of_all,
            of_h,
            end_h,
            end_rest,
            wx,
            r,
            b,
            initial,
            None,
            None,
            states,
            gates,
            options.cell,
            options.named_backend,
        ),
        options.clip,
    )


_apply = apply_of(_Recurrence)
_trace = apply_of(_Trace)
