"""One step of a cell on a GPU: one plan forward, one plan back, and weight gradients once for all steps.

`step` looks the plan of a step up once. A loop over steps has one node of autograd per step, and one for the weights of
all steps: a step's backward pass notes the gradients of its gates, and the node of the weights, which autograd runs
after all steps, multiplies them with the inputs and states of all steps at once.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from constrint.kernels.launch.plan.nodes import apply_of
from constrint.kernels.launch.plan.table import IS_NEW, WANTS_GRAD
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.onestep.plans import BACKWARD, FORWARD, StepBackward, StepForward
from constrint.kernels.rnn.reference import STEPS

#: Weights of the input and of the recurrence, and their biases or None.
Weights = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
#: Cells of torch.
STEP_CELLS = ("lstm", "gru", "elman", "elman_relu")
#: Gradients of gates that are noted before they are multiplied with inputs and states.
NOTED_BYTES = 32 << 20

_FORWARD = {(cell, trains): StepForward(cell, trains) for cell in STEP_CELLS for trains in (False, True)}
_BACKWARD = {
    (cell, *needs): StepBackward(cell, *needs) for cell in STEP_CELLS for needs in product((False, True), repeat=3)
}


def step(
    cell: str, gradients: WeightGradients, x: Tensor, h: Tensor | None, c: Tensor | None, weights: Weights
) -> tuple[Tensor, ...] | None:
    """New states (B, H) of a cell, h first; None where there is no plan of the call, and torch's cell is to run.

    Args:
        cell: One of `STEP_CELLS`.
        gradients: Those of the module that has the weights.
        x: (B, I).
        h, c: (B, H); None for zeros. c is the LSTM's.
        weights: (G * H, I), (G * H, H), and (G * H,) or None twice.
    """
    results: Any = FORWARD.call(False, _FORWARD[cell, False], x, h, c, *weights)
    if results is WANTS_GRAD:
        extra = _FORWARD[cell, True]
        results = FORWARD.call(True, extra, x, h, c, *weights)
        if results is IS_NEW:
            results = FORWARD.learn(extra, x, h, c, *weights)
        if results is None:
            return None
        token, noted = gradients.of(weights)
        made = _apply(token, x, h, c, (cell, results, weights, noted))
        return made if type(made) is tuple else (made,)
    if results is IS_NEW:
        results = FORWARD.learn(_FORWARD[cell, False], x, h, c, *weights)
    if results is None:
        return None
    return results if type(results) is tuple else (results,)


class WeightGradients:
    """The node of autograd for a module's weights, which all steps share; copies of a module have one of their own."""

    def __init__(self) -> None:
        self._seen: tuple[Any, ...] = ()
        self._stream = 0
        self._node: tuple[Tensor | None, Noted] = (None, Noted())

    def of(self, weights: Weights) -> tuple[Tensor | None, Noted]:
        """An element that stands for the weights in the graph, None where they need no gradient; and their notes."""
        device = weights[0].get_device()
        # Autograd runs a node on the stream that was current when it was made, and nobody waits for notes of another.
        stream = torch._C._cuda_getCurrentRawStream(device) if device >= 0 else 0
        seen = self._seen
        if seen and stream == self._stream and all(map(_is_same, weights, seen)):
            return self._node
        there = [weight for weight in weights if weight is not None]
        noted = Noted()
        token = _gather(noted, *weights) if any(weight.requires_grad for weight in there) else None
        if not all(weight.is_leaf for weight in there):
            return token, noted  # they are computed anew for each call
        self._node, self._stream = (token, noted), stream
        self._seen = tuple((w, w is not None and w.requires_grad, None if w is None else w.dtype) for w in weights)
        return token, noted

    def __deepcopy__(self, memo: Any) -> WeightGradients:
        return WeightGradients()

    def __reduce__(self) -> Any:
        return WeightGradients, ()


def _is_same(weight: Tensor | None, seen: tuple[Tensor | None, bool, torch.dtype | None]) -> bool:
    other, needs, dtype = seen
    return weight is other and (weight is None or (weight.requires_grad is needs and weight.dtype is dtype))


class Noted:
    """Gradients of gates that backward passes noted, by backward pass."""

    def __init__(self) -> None:
        self._sums: dict[int, StepSums] = {}

    def current(self) -> StepSums:
        """The sums of the backward pass that runs; they end with it, whether anybody took them or not."""
        number = torch._C._current_graph_task_id()
        sums = self._sums.get(number)
        if sums is None:
            sums = self._sums[number] = StepSums()
            torch.autograd.Variable._execution_engine.queue_callback(partial(self._drop, number))
        return sums

    def _drop(self, number: int) -> None:
        self._sums.pop(number, None)

    def take(self) -> StepSums | None:
        """The sums of the backward pass that runs, which are taken out; None where no step has noted any."""
        return self._sums.pop(torch._C._current_graph_task_id(), None)


class StepSums:
    """Sums over steps of the gradients of weights and biases: (W, R, bias of W, bias of R), each None until needed."""

    def __init__(self) -> None:
        self._sums: list[Tensor | None] = [None] * 4
        self._steps: list[tuple[Tensor, Tensor, Tensor, Tensor | None]] = []
        self._bytes = 0

    def note(self, of_input: Tensor, of_hidden: Tensor, x: Tensor, h: Tensor | None) -> None:
        """Note a step: gradients of the input's and of the recurrence's parts (B, G * H), x and h."""
        self._steps.append((of_input, of_hidden, x, h))
        self._bytes += of_input.nbytes
        if self._bytes > NOTED_BYTES:
            self._multiply()

    def add(self, gradients: list[Tensor | None]) -> None:
        """Add gradients of W, R and both biases."""
        self._sums = [
            new if old is None else old if new is None else old + new
            for old, new in zip(self._sums, gradients, strict=True)
        ]

    def total(self) -> list[Tensor | None]:
        """The sums of all steps."""
        self._multiply()
        return self._sums

    def _multiply(self) -> None:
        if not self._steps:
            return
        of_input, of_hidden, x, h = zip(*self._steps, strict=True)
        is_apart = of_input[0] is not of_hidden[0]
        self._steps, self._bytes = [], 0
        gates = _joined(of_input)
        others = _joined(of_hidden) if is_apart else gates
        with_h = [state for state in h if state is not None]
        if len(with_h) < len(h):
            before = [gate for gate, state in zip(of_hidden, h, strict=True) if state is not None]
            of_r = _joined(before) if before else None
        else:
            of_r = others
        bias = gates.sum(0)
        self.add(
            [
                gates.t() @ _joined(x),
                None if of_r is None else of_r.t() @ _joined(with_h),
                bias,
                others.sum(0) if is_apart else bias,
            ]
        )


def _joined(tensors: Any) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)


class _Gather(torch.autograd.Function):
    """Weights as one element that nobody reads; its gradient is what the steps noted."""

    @staticmethod
    def forward(ctx: Any, noted: Noted, *weights: Tensor | None) -> Tensor:
        ctx.noted = noted
        ctx.has_weights = [weight is not None for weight in weights]
        first = weights[0]
        assert first is not None
        return first.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        sums = ctx.noted.take()
        if sums is None:
            return (None,) * 5
        total = sums.total()
        needs = ctx.needs_input_grad[1:]
        return None, *(each if is_needed else None for each, is_needed in zip(total, needs, strict=True))


class _Step(torch.autograd.Function):
    """A step that has run by its plan, with a gradient that does."""

    @staticmethod
    def forward(ctx: Any, token: Tensor | None, x: Tensor, h: Tensor | None, c: Tensor | None, call: Any) -> Any:
        cell, results, weights, noted = call
        is_lstm = len(results) > 2
        ctx.save_for_backward(x, h, c, results[1] if is_lstm else None, results[-1], *weights)
        ctx.cell, ctx.noted = cell, noted
        ctx.set_materialize_grads(False)
        return results[:2] if is_lstm else results[0]

    @staticmethod
    def backward(ctx: Any, grad_h: Tensor | None, grad_c: Tensor | None = None) -> Any:
        if grad_h is None and grad_c is None:
            return (None,) * 5
        if torch.is_grad_enabled():  # create_graph=True
            return _by_torch(ctx, grad_h, grad_c)
        x, h, c, new_c, slots, w_ih, w_hh, _, _ = ctx.saved_tensors
        of_weights, of_x, of_h, of_c, _ = ctx.needs_input_grad
        grad_h = grad_h if grad_h is None or grad_h.is_contiguous() else grad_h.contiguous()
        grad_c = grad_c if grad_c is None or grad_c.is_contiguous() else grad_c.contiguous()
        cell = ctx.cell
        is_gru = cell == "gru"
        extra = _BACKWARD[cell, of_x, of_h, of_c]
        operands = grad_h, grad_c, h if is_gru else None, c, new_c, slots, w_ih, w_hh
        results: Any = BACKWARD.call(True, extra, *operands)
        if results is IS_NEW:
            results = BACKWARD.learn(extra, *operands)
        if results is None:
            return _by_torch(ctx, grad_h, grad_c)
        if type(results) is not tuple:
            results = (results,)
        if of_weights:
            ctx.noted.current().note(results[0], results[is_gru], x, h)
        rest = iter(results[1 + is_gru :])
        return (
            None,
            next(rest) if of_x else None,
            next(rest) if of_h else None,
            next(rest) if of_c else None,
            None,
        )


def _by_torch(ctx: Any, grad_h: Tensor | None, grad_c: Tensor | None) -> Any:
    """The gradients by torch's operators, which can be differentiated again where gradients are recorded."""
    x, h, c, _, _, *weights = ctx.saved_tensors
    goes_on = torch.is_grad_enabled()
    with torch.enable_grad():
        inputs = [None if each is None else _alias(each) for each in (x, h, c, *weights)]
        states = step_by_torch(ctx.cell, *inputs)  # type: ignore[arg-type]
        pairs = [(s, g) for s, g in zip(states, (grad_h, grad_c), strict=False) if g is not None]
        by = [each for each in inputs if each is not None]
        found = iter(
            torch.autograd.grad(
                [s for s, _ in pairs], by, [g for _, g in pairs], create_graph=goes_on, allow_unused=True
            )
        )
    gradients = [None if each is None else next(found) for each in inputs]
    of_weights, *needs, _ = ctx.needs_input_grad
    if of_weights:
        ctx.noted.current().add(gradients[3:])
    return None, *(each if is_needed else None for each, is_needed in zip(gradients, needs, strict=False)), None


def _alias(tensor: Tensor) -> Tensor:
    """The same elements as a tensor that requires a gradient, and passes it on where the tensor has one."""
    return tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()


def step_by_torch(
    cell: str,
    x: Tensor,
    h: Tensor | None,
    c: Tensor | None,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
) -> tuple[Tensor, ...]:
    """New states by torch's operators: the operands of `step`, and its results."""
    kind, width = CELLS[cell], w_hh.shape[1]
    states = [x.new_zeros(len(x), width) if state is None else state for state in (h, c)][: kind.num_states]
    parts = linear(x, w_ih, b_ih).chunk(kind.num_gates, 1)
    others = linear(states[0], w_hh, b_hh).chunk(kind.num_gates, 1)
    sums = [one + other for one, other in zip(parts, others, strict=True)]
    if kind.keeps_parts_apart:
        sums = [*sums[:-1], parts[-1], others[-1]]
    return STEPS[cell](sums, tuple(states))


_apply = apply_of(_Step)
_gather = apply_of(_Gather)
