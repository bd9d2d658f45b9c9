"""The launch plans of recurrences: one table for each direction, without lengths and resets.

A forward call gives all states (S, B, T, N, D), the last h (B, N, D), the other last states (S - 1, B, N, D) where
there are any, and the pre-activations (B, T, G, N, D) where they are stored for the gradient. A backward call gives the
gradients of the slots and of the initial states; then those of r and b, where they are launches of the call, or else
the h that entered each step. `gradients_of_call` makes gradients of them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from constrint.kernels.launch.device import gpu_of
from constrint.kernels.launch.plan.recipe import RecordedCall, compile_all, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import PlanTable
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.gradients import gradients_of_slots, input_gradient
from constrint.kernels.rnn.weights.shape import is_one_product

if TYPE_CHECKING:
    from constrint.kernels.rnn.first_choice import Decision
    from constrint.kernels.rnn.interface import RnnInputs


class Forward(NamedTuple):
    """What a forward call depends on besides its tensors.

    Args:
        cell: A key of `CELLS`.
        backend: An implementation's name, or `auto`.
        trains: Whether gradients will be asked for.
        recompute: Whether pre-activations are computed again for them; None lets the plan say.
    """

    cell: str
    backend: str
    trains: bool
    recompute: bool | None


class Backward(NamedTuple):
    """What a backward call depends on besides its tensors.

    Args:
        cell: A key of `CELLS`.
        backend: An implementation's name, or `auto`.
        clip: Limit of the gradient that reaches h through r; 0 for none.
        only_h: Whether h alone has gradients from outside.
        sums: Whether the gradient of r is summed by launches of the call (`weights/shape.py`), not by a product after.
        bias: Then the dtype of b, where its gradient is wanted.
    """

    cell: str
    backend: str
    clip: float
    only_h: bool
    sums: bool = False
    bias: torch.dtype | None = None


def _build_forward(tensors: tuple[Tensor | None, ...], extra: Forward) -> RecordedCall:
    """The recipe of a forward call on (wx, r, b, initial, start)."""
    from constrint.kernels.launch.policy import launch_what_fits
    from constrint.kernels.rnn.first_choice import refuse, run_decided, saves_gates
    from constrint.kernels.rnn.interface import PlannedForward, RnnInputs

    wx, r, b, initial, start = tensors
    assert wx is not None
    assert r is not None
    if not wx.numel():
        raise NotPlannedError("no step runs")
    kind = CELLS[extra.cell]
    batch, time, _, heads, dim = wx.shape
    keeps = extra.trains and not extra.recompute
    if extra.trains and extra.recompute is None:
        keeps = saves_gates(extra.cell, wx, extra.backend)
    states = wx.new_empty((kind.num_states, batch, time, heads, dim))
    end_h, end_rest = wx.new_empty((batch, heads, dim)), wx.new_empty((kind.num_states - 1, batch, heads, dim))
    gates = torch.empty(wx.shape, dtype=wx.dtype, device=wx.device) if keeps else None
    made = PlannedForward(states, end_h, end_rest, gates)
    results = [tensor for tensor in (states, end_h, end_rest, gates) if tensor is not None and tensor.numel()]
    inputs = RnnInputs(extra.cell, wx, r, b, initial, None, None)
    given = [name for name, tensor in (("bias", b), ("initial", initial), ("saved", gates)) if tensor is not None]
    found: list[RecordedCall] = []

    def run(decision: Decision) -> None:
        def record(choice: Any, /, *, may_spill: bool) -> None:
            scratch = NotedScratch()
            launches = decision.backend.plan_forward(inputs, start, made, choice, scratch)
            note = f"{choice.kernel} {dict(choice.config)}"
            found[:] = [recipe_of(launches, tensors, results, scratch, note, may_spill=may_spill)]

        launch_what_fits(decision.choice, record, refuse, given)

    # While a graph is captured no other thread may allocate.
    if extra.trains and keeps and not torch.cuda.is_current_stream_capturing():
        _compile_backward(inputs, extra)
    run_decided(extra.cell, wx, extra.backend, "forward", run, recompute=not keeps)
    return found[0]


#: Threads that compile what a backward pass will need, while the forward pass is compiled and run.
_AHEAD: list[threading.Thread] = []


def _compile_backward(inputs: RnnInputs, extra: Forward) -> None:
    """Begin to compile the kernels of the backward pass that most often follows: with a gradient of h alone."""
    from constrint.kernels.rnn.first_choice import decide
    from constrint.kernels.rnn.interface import PlannedBackward
    from constrint.kernels.rnn.weights.launch import weight_launches

    kind, wx, r, b = CELLS[extra.cell], inputs.wx, inputs.r, inputs.b
    sums = backward_of(extra.cell, extra.backend, 0.0, True, r, True, b).sums
    batch, time, gates, heads, dim = wx.shape
    every = batch, time, heads, dim

    def alike(*shape: int, dtype: torch.dtype = wx.dtype) -> Tensor:
        """A tensor of that shape whose elements are one: a compiler asks for its dtype and alignment alone."""
        return torch.empty(1, dtype=dtype, device=wx.device).expand(shape)

    def compile_ahead() -> None:
        # What fails here fails again, and is told of, when the backward pass is learnt.
        with suppress(Exception), torch.cuda.device(wx.device):
            planned = PlannedBackward(
                states=alike(kind.num_states, *every),
                gates=alike(batch, time, gates, heads, dim),
                grad_states=(alike(*every), *(None,) * (kind.num_states - 1)),
                grad_last=None,
                slots=alike(batch, time, kind.num_slots, heads, dim),
                initial=alike(kind.num_states, batch, heads, dim, dtype=torch.float32),
                before=None if sums else alike(*every),
            )
            decision = decide(extra.cell, wx, extra.backend, "backward", recompute=False)
            plan, scratch = decision.backend.plan_backward, NotedScratch()
            launches = plan(inputs, planned, decision.choice, scratch, clip=0.0, only_h=True)
            if sums:
                of_b = None if b is None else alike(*b.shape, dtype=b.dtype)
                given = kind, planned.slots, planned.states[0], inputs.initial, alike(*r.shape), of_b
                launches = [*launches, *weight_launches(*given, decision.choice.gpu, scratch)]
            compile_all(launches)

    thread = threading.Thread(target=compile_ahead, name="constrint-compile")
    thread.start()
    _AHEAD.append(thread)


def backward_of(
    cell: str, backend: str, clip: float, only_h: bool, r: Tensor, wants_r: bool, b: Tensor | None
) -> Backward:
    """What a backward call depends on besides its tensors; `b` is None where its gradient is not wanted."""
    sums = wants_r and _are_summed(r.shape[1], r.shape[3], r.element_size(), r.device)
    return Backward(cell, backend, clip, only_h, sums, b.dtype if sums and b is not None else None)


@lru_cache(maxsize=256)
def _are_summed(heads: int, dim: int, element_bytes: int, device: torch.device) -> bool:
    return is_one_product(heads, dim, element_bytes, gpu_of(device) if device.type == "cuda" else None)


def gradients_of_call(
    extra: Backward, made: Sequence[Tensor], r: Tensor, wants_r: bool, b: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """Gradients of wx, of r where it is wanted, of b where it is given, and of the initial states.

    Args:
        extra: What `backward_of` gave for these arguments.
        made: The results of the call.
        r: The weights.
        wants_r: Whether their gradient is wanted.
        b: The bias, where its gradient is wanted.
    """
    kind, (slots, initial, *others) = CELLS[extra.cell], made
    if extra.sums:
        return input_gradient(kind, slots), others[0], others[1] if len(others) > 1 else None, initial
    return *gradients_of_slots(kind, slots, others[0], r.dtype, wants_r, b), initial


def _build_backward(tensors: tuple[Tensor | None, ...], extra: Backward) -> RecordedCall:
    """The recipe of a backward call on (grads of h, of all states, of the last states, wx, r, initial, states, gates).

    Of the first two one is None at least.
    """
    from constrint.kernels.launch.policy import launch_what_fits
    from constrint.kernels.rnn.first_choice import refuse, run_decided
    from constrint.kernels.rnn.interface import PlannedBackward, RnnInputs
    from constrint.kernels.rnn.weights.launch import weight_launches

    grad_h, grad_states, grad_last, wx, r, initial, states, gates = tensors
    assert wx is not None
    assert r is not None
    assert states is not None
    assert gates is not None
    with suppress(IndexError):  # Backward passes on several devices empty the list at the same time.
        while True:
            _AHEAD.pop().join()
    kind = CELLS[extra.cell]
    batch, time, _, heads, dim = wx.shape
    slots = wx.new_empty((batch, time, kind.num_slots, heads, dim))
    before = None if extra.sums else wx.new_empty((batch, time, heads, dim))
    of_r = torch.empty_like(r) if extra.sums else None
    of_b = None if extra.bias is None else torch.empty(r.shape[:3], dtype=extra.bias, device=r.device)
    grad_initial = torch.empty((kind.num_states, batch, heads, dim), dtype=torch.float32, device=wx.device)
    every = (grad_h, *(None,) * (kind.num_states - 1)) if grad_states is None else grad_states.unbind(0)
    made = PlannedBackward(states, gates, tuple(every), grad_last, slots, grad_initial, before)
    inputs = RnnInputs(extra.cell, wx, r, None, initial, None, None)
    found: list[RecordedCall] = []
    optional = {"initial": initial, "grad_last": grad_last, "clip": extra.clip or None, "only_h": extra.only_h or None}
    optional |= {f"grad{state}": grad for state, grad in enumerate(every)}
    given = [name for name, value in optional.items() if value is not None]

    def run(decision: Decision) -> None:
        plan = partial(decision.backend.plan_backward, clip=extra.clip, only_h=extra.only_h)

        def record(choice: Any, /, *, may_spill: bool) -> None:
            scratch = NotedScratch()
            launches = plan(inputs, made, choice, scratch)
            if of_r is not None:
                after = weight_launches(kind, slots, states[0], initial, of_r, of_b, choice.gpu, scratch)
                launches = [*launches, *after]
            note = f"{choice.kernel} {dict(choice.config)}"
            results = [each for each in (slots, grad_initial, before, of_r, of_b) if each is not None]
            found[:] = [recipe_of(launches, tensors, results, scratch, note, may_spill=may_spill)]

        launch_what_fits(decision.choice, record, refuse, given)

    run_decided(extra.cell, wx, extra.backend, "backward", run, recompute=False)
    return found[0]


def _precision() -> bool:
    return bool(torch._C._get_cublas_allow_tf32())


FORWARD = PlanTable("rnn-forward", _build_forward, _precision)
BACKWARD = PlanTable("rnn-backward", _build_backward, _precision)
