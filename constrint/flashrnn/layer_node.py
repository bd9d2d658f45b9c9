"""A layer of a dense batch in one call: the projection and the recurrence; in training as one node of autograd.

By themselves the projection, the sum of both biases, the recurrence and the views between them are a dozen nodes, which
take the host longer than a GPU takes for a small layer. As one node the gradients of the projection read those of the
recurrence where they lie, and both biases' gradients are one sum.

Layers with initial states, lengths, resets, projections of h or two directions, and calls that torch traces,
transforms or runs in another dtype have the steps by themselves (`layers.py`), as a gradient that is differentiated
again does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

from constrint.flashrnn import checks
from constrint.flashrnn.observers import may_train, needs_plain_torch
from constrint.flashrnn.recurrence import RnnOptions, backward_by_operator, recur, trained
from constrint.flashrnn.sequences import DenseRows, contiguous
from constrint.kernels.gemm.backward.run import planned
from constrint.kernels.gemm.implementations import AUTO
from constrint.kernels.gemm.linear import recurs
from constrint.kernels.launch.plan.table import IS_NEW
from constrint.kernels.rnn.cells import CELLS, RecurrentCell
from constrint.kernels.rnn.gradients import fused_weight_gradient, input_gradient, recurrent_rows, stacked_ends
from constrint.kernels.rnn.plans import BACKWARD, FORWARD, Forward, backward_of
from constrint.kernels.rnn.products import is_exact
from constrint.kernels.rnn.reference import accumulation_dtype

#: Arguments of the node that have gradients: the input, weight_ih, weight_hh, bias_ih, bias_hh.
NUM_OPERANDS = 5


class LayerShape(NamedTuple):
    """All that a layer's node depends on beside its tensors.

    Args:
        options: Those of its recurrence.
        kind: The cell.
        gates: (G, N, D).
        head_dim: D.
        batch_first: Whether the input is (B, T, features) rather than (T, B, features).
        extra: Key of the recurrence's plans without gradients.
    """

    options: RnnOptions
    kind: RecurrentCell
    gates: tuple[int, int, int]
    head_dim: int
    batch_first: bool
    extra: Forward


def takes(x: Tensor) -> bool:
    """Whether a call may be one: nothing of torch's looks into it."""
    if not x.is_cuda or is_compiling() or torch._C._get_tracing_state() is not None:
        return False
    return not (needs_plain_torch() or torch._C._is_any_autocast_enabled())


def run(
    shape: LayerShape, x: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor | None,
    bias_hh: Tensor | None, *, is_unseen: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """All h (B, T, H), the last h (B, N, D) and the other last states (S - 1, B, N, D) of a call that `takes` takes.

    Args:
        shape: The layer.
        x: The input.
        weight_ih, weight_hh, bias_ih, bias_hh: As `torch.nn` has them; None for a layer without biases.
        is_unseen: Whether a table has found that nothing listens, so that its plan is looked up without another look.
    """
    if may_train(x, weight_ih, weight_hh, bias_ih, bias_hh):
        hidden, end_h, end_rest = _apply(x, weight_ih, weight_hh, bias_ih, bias_hh, shape)
        return hidden, end_h, end_rest
    # Each bias where it is added anyway.
    b = None if bias_hh is None else bias_hh.view(shape.gates)
    wx = DenseRows(x, shape.batch_first).project(weight_ih, bias_ih, is_reverse=False)
    wx, r = wx.view(*wx.shape[:2], *shape.gates), weight_hh.view(*shape.gates, shape.head_dim)
    results: Any = FORWARD.call(True, shape.extra, wx, r, b, None, None) if is_unseen else None
    if type(results) is tuple:
        return results[0][0].flatten(2), results[1], results[2] if len(results) > 2 else None
    hidden, end_h, end_rest = recur(shape.options, wx, r, b, is_own=True)
    return hidden.flatten(2), end_h, end_rest


@lru_cache(maxsize=256)
def shape_of(options: RnnOptions, num_heads: int, head_dim: int, batch_first: bool) -> LayerShape:
    """The shape of a layer, made once."""
    kind = CELLS[options.cell]
    extra = Forward(options.cell, options.backend, False, None, options.configs)
    return LayerShape(options, kind, (kind.num_gates, num_heads, head_dim), head_dim, batch_first, extra)


def ends_of(end_h: Tensor, end_rest: Tensor | None) -> tuple[Tensor, ...]:
    """The last states as (1, B, H) each."""
    batch, heads, dim = end_h.shape
    shape = (1, batch, heads * dim)
    h = end_h.reshape(shape)
    if end_rest is None:
        return (h,)
    if end_rest.shape[0] == 1:
        return h, end_rest.reshape(shape)
    return h, *(state.reshape(shape) for state in end_rest.unbind(0))


class _LayerNode(torch.autograd.Function):
    """A layer's node."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias_ih: Tensor | None,
        bias_hh: Tensor | None,
        shape: LayerShape,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        kind, gates, options = shape.kind, shape.gates, shape.options
        bias, b = _biases(kind, gates, bias_ih, bias_hh)
        wx = DenseRows(x, shape.batch_first).project(weight_ih, bias, is_reverse=False)
        wx = wx.view(*wx.shape[:2], *gates)
        r = weight_hh.view(*gates, shape.head_dim)
        check = _check_of(options, wx, r, b)
        if r.dtype != wx.dtype:
            check()
        states, end_h, end_rest, saved = trained(options, wx, r, b, None, None, check)
        reads = wx if kind.keeps_parts_apart or saved is None else None
        ctx.save_for_backward(x, weight_ih, weight_hh, bias_ih, bias_hh, reads, states, saved)
        ctx.shape = shape
        ctx.set_materialize_grads(False)
        return states[0].flatten(2), end_h, end_rest

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if all(grad is None for grad in grads):
            return (None,) * (NUM_OPERANDS + 1)
        if torch.is_grad_enabled():  # create_graph=True: gradients that can be differentiated again
            return *_differentiable(ctx, grads), None
        return *_gradients(ctx, *grads), None


#: `apply` without its look at functorch, which `takes` has had.
_apply: Any = torch._C._FunctionBase.__dict__["apply"].__get__(None, _LayerNode)


def _biases(
    kind: RecurrentCell, gates: tuple[int, int, int], bias_ih: Tensor | None, bias_hh: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """The bias of the projection and that of the recurrence: the first has both where parts are not kept apart."""
    if bias_ih is None or bias_hh is None:
        return None, None
    return (bias_ih, bias_hh.view(gates)) if kind.keeps_parts_apart else (bias_ih + bias_hh, None)


def _check_of(options: RnnOptions, wx: Tensor, r: Tensor, b: Tensor | None) -> Callable[[], object]:
    def check() -> object:
        return checks.check_operands(options.cell, options.backend, wx, r, b, None, None, None, is_own=True)

    return check


def _gradients(ctx: Any, of_hidden: Tensor | None, of_end_h: Tensor | None, of_end_rest: Tensor | None) -> Any:
    """Gradients of the input, weight_ih, weight_hh, bias_ih and bias_hh."""
    x, weight_ih, weight_hh, bias_ih, bias_hh, wx, states, saved = ctx.saved_tensors
    shape: LayerShape = ctx.shape
    kind, options, needs = shape.kind, shape.options, ctx.needs_input_grad
    r = weight_hh.view(*shape.gates, shape.head_dim)
    of_h = None if of_hidden is None else contiguous(of_hidden).view(states.shape[1:])
    slots = None
    if saved is not None:
        only_h = of_end_rest is None
        extra = backward_of(options.cell, options.backend, options.clip, only_h, r, needs[2], None, options.configs)
        ends = stacked_ends(of_end_h, of_end_rest, states)
        operands = of_h, None, ends, saved if wx is None else wx, r, None, states, saved
        results: Any = BACKWARD.call(True, extra, *operands)
        if results is IS_NEW:
            results = BACKWARD.learn(extra, *operands)
        if results is not None:
            slots, _, *others = results
            of_r = others[0] if extra.sums else None
            if needs[2] and of_r is None:
                of_r = fused_weight_gradient(kind, slots, others[0]).to(r.dtype)
    if slots is None:
        _, b = _biases(kind, shape.gates, bias_ih, bias_hh)
        read = saved if wx is None else wx
        of_wx, of_r, of_b, _ = backward_by_operator(
            options, of_h, of_end_h, of_end_rest, read, r, b, None, states, saved
        )
        of_inputs = of_recurrence = None
        if needs[3] or needs[4]:
            of_inputs = of_wx.sum((0, 1), dtype=accumulation_dtype(of_wx.dtype))
            of_recurrence = of_inputs if b is None else of_b
    else:
        of_wx, of_inputs, of_recurrence = slots, None, None
        if needs[3] or needs[4]:
            sums = slots.sum((0, 1), dtype=accumulation_dtype(slots.dtype))
            of_inputs, of_recurrence = sums[: kind.num_gates], recurrent_rows(kind, sums)
    # Batch first, as the recurrence's gradients are: a copy of the input, which is smaller than they are.
    rows = x if shape.batch_first else x.transpose(0, 1)
    of_x, of_weight = _of_projection(kind, of_wx, rows, weight_ih, needs[0], needs[1])
    if of_x is not None:
        of_x = of_x.view(rows.shape)
        of_x = of_x if shape.batch_first else of_x.transpose(0, 1)
    return (
        of_x,
        of_weight,
        None if of_r is None or not needs[2] else of_r.view(weight_hh.shape),
        of_inputs.flatten().to(bias_ih.dtype) if needs[3] and of_inputs is not None else None,
        of_recurrence.flatten().to(bias_hh.dtype) if needs[4] and of_recurrence is not None else None,
    )


def _of_projection(
    kind: RecurrentCell,
    slots: Tensor,  # (B, T, slots, N, D), or (B, T, G, N, D)
    x: Tensor,  # (B, T, features)
    weight: Tensor,  # (G * N * D, features)
    needs_x: bool,
    needs_weight: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the rows of x, (B * T, features), and of the weight of a projection."""
    if not (needs_x or needs_weight):
        return None, None
    number, rows = weight.shape[0], contiguous(x).view(-1, x.shape[-1])
    if is_exact(slots):
        gradient = (slots if slots.shape[2] == kind.num_gates else input_gradient(kind, slots)).reshape(-1, number)
        if recurs(rows, weight, "gradients of a layer"):
            options = 1.0, None, None, AUTO
            found = planned(
                gradient, rows, weight, None, options, (needs_x, needs_weight, False, False), is_linear=True
            )
            if found is not None:
                return found[0], found[1]
    else:
        # The slots of the input's part come first: a product reads them where they lie.
        gradient = slots.reshape(len(rows), -1)[:, :number]
    return gradient @ weight if needs_x else None, gradient.t() @ rows if needs_weight else None


def _differentiable(ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
    """Gradients by the nodes by themselves, which run once more and can be differentiated again."""
    wanted = ctx.needs_input_grad[:NUM_OPERANDS]
    with torch.enable_grad():
        # One may be computed from another: each is taken as an alias.
        operands = zip(ctx.saved_tensors[:NUM_OPERANDS], wanted, strict=True)
        taken: list[Any] = [t.view_as(t) if is_wanted else t for t, is_wanted in operands]
        results = by_themselves(ctx.shape, *taken)
        by = [t for t, is_wanted in zip(taken, wanted, strict=True) if is_wanted]
        pairs = [(t, g) for t, g in zip(results, grads, strict=True) if t is not None and g is not None]
        outs, of_outs = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(outs, by, of_outs, create_graph=True, allow_unused=True))
    return tuple(next(found) if is_wanted else None for is_wanted in wanted)


def by_themselves(
    shape: LayerShape, x: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor | None, bias_hh: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The same results by a node for each operation."""
    bias, b = _biases(shape.kind, shape.gates, bias_ih, bias_hh)
    wx = DenseRows(x, shape.batch_first).project(weight_ih, bias, is_reverse=False)
    wx, r = wx.view(*wx.shape[:2], *shape.gates), weight_hh.view(*shape.gates, shape.head_dim)
    hidden, end_h, end_rest = recur(shape.options, wx, r, b, is_own=True)
    return hidden.flatten(2), end_h, end_rest
