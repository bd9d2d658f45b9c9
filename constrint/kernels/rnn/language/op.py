"""The operators `constrint::cell_forward` and `constrint::cell_backward`: any cell over time, with gradients.

A cell is an argument by its name and text, so that torch.compile, and a process that loads what another one compiled,
know all of it. Which back-end runs a call, `dispatch.py` says. A call that nothing observes goes past the operators,
whose gradient costs the host a millisecond: through a node of autograd with the same functions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from constrint.kernels.launch.plan.nodes import apply_of
from constrint.kernels.launch.plan.table import listeners
from constrint.kernels.rnn.language.backends import CellCall, CellResults
from constrint.kernels.rnn.language.dispatch import backend_of
from constrint.kernels.rnn.language.parse import definition_of
from constrint.kernels.rnn.language.torch_code import first_states, recurrent_gates, reference
from constrint.kernels.rnn.reference import accumulation_dtype

_OPERANDS = (
    "Tensor wx, Tensor? r, Tensor? b, Tensor? initial, Tensor[] parameters, Tensor[] inputs, Tensor? lengths, "
    "Tensor? reset, str cell, str backend, float clip"
)
#: Operands that have gradients: wx, r, b, initial, parameters, inputs. Results: hidden, rest, last, saved.
_NUM_OPERANDS, _NUM_TRAINED, _NUM_RESULTS = 11, 6, 4

# Defined by hand: torch.library.custom_op imports Dynamo at its first call, which takes seconds.
torch.library.define("constrint::cell_forward", f"({_OPERANDS}, bool saves) -> (Tensor, Tensor, Tensor, Tensor)")
torch.library.define(
    "constrint::cell_backward",
    f"(Tensor? d_hidden, Tensor? d_rest, Tensor? d_last, Tensor hidden, Tensor rest, Tensor saved, {_OPERANDS}, "
    "bool needs_inputs) -> (Tensor, Tensor, Tensor, Tensor, Tensor[], Tensor[])",
)


def call_of(operands: tuple[Any, ...], *, needs_inputs: bool = False) -> CellCall:
    """A call from the operators' operands, its tensors as back-ends take them."""
    wx, r, b, initial, parameters, inputs, lengths, reset, text, _, clip = operands
    kind = accumulation_dtype(wx.dtype)
    return CellCall(
        definition_of(text),
        wx if wx.stride()[2:] == (wx.shape[3] * wx.shape[4], wx.shape[4], 1) else wx.contiguous(),
        None if r is None else r.contiguous(),
        None if b is None else b.contiguous(),
        None if initial is None else initial.to(kind).contiguous(),
        tuple(each.to(kind).contiguous() for each in parameters),
        tuple(each.to(kind) for each in inputs),
        None if lengths is None else lengths.to(torch.int32).clamp(0, wx.shape[1]),
        reset,
        clip,
        needs_inputs,
    )


def _forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *operands, saves = arguments
    call = call_of(tuple(operands))
    if call.wx.shape[0] == 0 or call.wx.shape[1] == 0:
        hidden, rest, last, saved = _fake_forward(*arguments)
        start = torch.stack(first_states(call)) if call.initial is None else call.initial
        return hidden, rest, last.copy_(start), saved
    results = backend_of(call, operands[9]).forward(call, saves=saves)
    saved = call.wx.new_empty(0) if results.saved is None else results.saved
    return results.hidden, results.rest, results.last, saved


@torch.library.register_fake("constrint::cell_forward")  # type: ignore[untyped-decorator]
def _fake_forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    wx, text, saves = arguments[0], arguments[8], arguments[11]
    batch, time, _, heads, dim = wx.shape
    cell = definition_of(text)
    states = len(cell.states)
    return (
        wx.new_empty((batch, time, heads, dim)),
        wx.new_empty((states - 1, batch, time, heads, dim)),
        wx.new_empty((states, batch, heads, dim)),
        wx.new_empty((batch, time, len(recurrent_gates(cell)), heads, dim) if saves else (0,)),
    )


def _backward(*arguments: Any) -> tuple[Any, ...]:
    """Gradients of wx, r, b, initial, parameters and inputs; empty tensors and lists stand for absent ones."""
    d_hidden, d_rest, d_last, hidden, rest, saved = arguments[:6]
    operands, needs_inputs = arguments[6 : 6 + _NUM_OPERANDS], arguments[-1]
    call = call_of(operands, needs_inputs=needs_inputs)
    if call.wx.shape[0] == 0 or call.wx.shape[1] == 0:
        return _no_steps(call, d_last)
    results = CellResults(hidden, rest, hidden, saved)
    upstream = [None if d is None else d.contiguous() for d in (d_hidden, d_rest, d_last)]
    gradients = backend_of(call, operands[9]).backward(call, results, *upstream)
    r, b, initial, parameters, inputs = operands[1:_NUM_TRAINED]
    return (
        gradients.wx,
        *(
            call.wx.new_empty(0) if there is None or given is None else given.to(there.dtype)
            for there, given in zip((r, b, initial), (gradients.r, gradients.b, gradients.initial), strict=True)
        ),
        [given.to(there.dtype) for there, given in zip(parameters, gradients.parameters, strict=True)],
        [given.to(there.dtype) for there, given in zip(inputs, gradients.inputs, strict=False)],
    )


@torch.library.register_fake("constrint::cell_backward")  # type: ignore[untyped-decorator]
def _fake_backward(*arguments: Any) -> tuple[Any, ...]:
    wx, r, b, initial, parameters, inputs = arguments[6 : 6 + _NUM_TRAINED]
    return (
        *(wx.new_empty(0) if each is None else each.new_empty(each.shape) for each in (wx, r, b, initial)),
        [each.new_empty(each.shape) for each in parameters],
        [each.new_empty(each.shape) for each in inputs] if arguments[-1] else [],
    )


def _no_steps(call: CellCall, d_last: Tensor | None) -> tuple[Any, ...]:
    """Gradients when no step ran: only the initial states can have one."""
    nothing = call.wx.new_empty(0)
    d_initial = nothing
    if call.initial is not None:
        d_initial = torch.zeros_like(call.initial) if d_last is None else d_last.to(call.initial.dtype).clone()
    return (
        torch.zeros_like(call.wx),
        nothing if call.r is None else torch.zeros_like(call.r),
        nothing if call.b is None else torch.zeros_like(call.b),
        d_initial,
        [torch.zeros_like(each) for each in call.parameters],
        [torch.zeros_like(each) for each in call.inputs] if call.needs_inputs else [],
    )


torch.library.impl("constrint::cell_forward", "default", _forward)
torch.library.impl("constrint::cell_backward", "default", _backward)
cell_forward = torch.ops.constrint.cell_forward.default
cell_backward = torch.ops.constrint.cell_backward.default


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *operands, _ = inputs
    hidden, rest, _, saved = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(saved)
    wx, r, b, initial, parameters, step_inputs, lengths, reset, *ctx.options = operands
    ctx.counts = len(parameters), len(step_inputs)
    ctx.needs_inputs = any(each.requires_grad for each in step_inputs)
    ctx.save_for_backward(wx, r, b, initial, lengths, reset, hidden, rest, saved, *parameters, *step_inputs)


def _gradients(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    wx, r, b, initial, lengths, reset, hidden, rest, saved, *others = ctx.saved_tensors
    count, count_inputs = ctx.counts
    parameters, inputs = others[:count], others[count:]
    none = (None,) * (_NUM_OPERANDS + 1)
    if all(grad is None for grad in grads[:3]):
        return (*none[:4], [None] * count, [None] * count_inputs, *none[6:])
    # With create_graph=True the gradients are differentiated again, which the operator can be.
    backward = cell_backward if torch.is_grad_enabled() or is_observed() else _backward
    d_wx, d_r, d_b, d_initial, d_parameters, d_inputs = backward(
        *grads[:3], hidden, rest, saved, wx, r, b, initial, parameters, inputs, lengths, reset, *ctx.options,
        ctx.needs_inputs,
    )  # fmt: skip
    return (
        d_wx,
        None if r is None else d_r,
        None if b is None else d_b,
        None if initial is None else d_initial,
        list(d_parameters),
        list(d_inputs) if ctx.needs_inputs else [None] * count_inputs,
        *none[6:],
    )


def _save_for_second(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    *upstream, _, _, _, wx, r, b, initial, parameters, step_inputs, lengths, reset, text, _, clip, needs = inputs
    ctx.set_materialize_grads(False)
    ctx.options, ctx.needs_inputs, ctx.counts = (text, clip), needs, (len(parameters), len(step_inputs))
    ctx.save_for_backward(*upstream, wx, r, b, initial, lengths, reset, *parameters, *step_inputs)


def _second(ctx: Any, *grads: Any) -> tuple[Any, ...]:
    """The gradient of `constrint::cell_backward`: the reference differentiated twice by autograd.

    Derivatives of the second order are those of a step's operations, a surrogate's that of its second argument.
    """
    tensors: tuple[Any, ...] = ctx.saved_tensors
    plain, (lengths, reset), others = tensors[:7], tensors[7:9], tensors[9:]
    count, _ = ctx.counts
    text, clip = ctx.options
    with torch.enable_grad():
        # One tensor may be computed from another, and both count as inputs here: each is taken as an alias.
        taken = [None if t is None else _alias(t) for t in (*plain, *others)]
        (d_hidden, d_rest, d_last), (wx, r, b, initial, *rest) = taken[:3], taken[3:]
        operands = wx, r, b, initial, rest[:count], rest[count:], lengths, reset, text, "", clip
        results = reference(call_of(operands))
        outs = [
            (out, grad)
            for out, grad in zip((results.hidden, results.rest, results.last), (d_hidden, d_rest, d_last), strict=True)
            if grad is not None
        ]
        trained = [t for t in taken[3:] if t is not None]
        first = torch.autograd.grad(
            [out for out, _ in outs], trained, [grad for _, grad in outs], create_graph=True, allow_unused=True
        )
        of_operands = iter(first)
        mine = [None if t is None else next(of_operands) for t in taken[3:]]
        d_wx, d_r, d_b, d_initial, d_parameters, d_inputs = grads
        upstream = [d_wx, d_r, d_b, d_initial, *(d_parameters or [None] * count)]
        upstream += list(d_inputs) if d_inputs else [None] * (len(mine) - len(upstream))
        pairs = [
            (value, grad)
            for value, grad in zip(mine, upstream, strict=True)
            if value is not None and grad is not None and value.requires_grad
        ]
        wanted = [t for t in taken if t is not None]
        found = torch.autograd.grad(
            [value for value, _ in pairs], wanted, [grad for _, grad in pairs],
            create_graph=torch.is_grad_enabled(), allow_unused=True,
        ) if pairs else [None] * len(wanted)  # fmt: skip
    each = iter(found)
    second = [None if t is None else next(each) for t in taken]
    return (*second[:3], None, None, None, *second[3:7], second[7 : 7 + count], second[7 + count :], *(None,) * 6)


def _alias(tensor: Tensor) -> Tensor:
    """The same elements as a tensor that requires a gradient, and passes it on where the tensor has one."""
    return tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()


torch.library.register_autograd("constrint::cell_forward", _gradients, setup_context=_save)
torch.library.register_autograd("constrint::cell_backward", _second, setup_context=_save_for_second)


class _Cell(torch.autograd.Function):
    """A call that goes past the operators; its gradients of parameters and inputs stand one by one."""

    @staticmethod
    def forward(
        ctx: Any,
        counts: tuple[int, int],
        options: tuple[Any, ...],
        wx: Tensor,
        r: Tensor | None,
        b: Tensor | None,
        initial: Tensor | None,
        *others: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        operands = wx, r, b, initial, list(others[: counts[0]]), list(others[counts[0] :]), *options, True
        results = _forward(*operands)
        _save(ctx, operands, results)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        *first, of_parameters, of_inputs = _gradients(ctx, *grads)[:_NUM_TRAINED]
        return None, None, *first, *of_parameters, *of_inputs


_apply = apply_of(_Cell)


def is_observed() -> bool:
    """Whether torch compiles, traces, transforms or profiles the call, so that it has to be an operator's."""
    return is_compiling() or any(listens() for listens in listeners())


def run_cell(call: CellCall, backend: str, *, trains: bool) -> CellResults:
    """Run a call; `trains` asks for what a backward pass needs."""
    operands = call.wx, call.r, call.b, call.initial
    options = call.lengths, call.reset, call.cell.named_text, backend, call.clip
    if is_observed():
        results = cell_forward(*operands, list(call.parameters), list(call.inputs), *options, trains)
    elif trains:
        counts = len(call.parameters), len(call.inputs)
        results = _apply(counts, options, *operands, *call.parameters, *call.inputs)
    else:
        with torch.no_grad():
            results = _forward(*operands, call.parameters, call.inputs, *options, False)
    hidden, rest, last, saved = results
    return replace(CellResults(hidden, rest, last, None), saved=saved if trains else None)
