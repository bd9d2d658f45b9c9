"""Launch plans of recurrences without lengths and resets: one table per direction.

A forward call returns all states (S, B, T, N, D), the last h (B, N, D), the other last states (S - 1, B, N, D) where
there are any, and the pre-activations (B, T, G, N, D) where they are stored for the gradient. A backward call returns
the gradients of the slots and of the initial states; then those of r and b where launches of the call sum them, or else
the h that entered each step. `gradients_of_call` derives the gradients of the inputs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from constrint.kernels.launch.device import gpu_of
from constrint.kernels.launch.plan.recipe import RecordedCall, compile_all, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch, Scratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import PlanTable
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.dispatch import Configs
from constrint.kernels.rnn.gradients import gradients_of_slots, input_gradient
from constrint.kernels.rnn.weights.launch import is_one_product

if TYPE_CHECKING:
    from constrint.choose import Decision
    from constrint.kernels.rnn.dispatch import Dispatch
    from constrint.kernels.rnn.interface import RnnInputs
    from constrint.select.spec import Launch


class Forward(NamedTuple):
    """Everything but its tensors that a forward call depends on.

    Args:
        cell: A key of `CELLS`.
        backend: An implementation's name, or `auto`.
        trains: Whether a gradient will be computed.
        recompute: Whether pre-activations are recomputed for the gradient; None leaves that to the decision.
        configs: Configurations that the caller forces.
    """

    cell: str
    backend: str
    trains: bool
    recompute: bool | None
    configs: Configs = ()


class Backward(NamedTuple):
    """Everything but its tensors that a backward call depends on.

    Args:
        cell: A key of `CELLS`.
        backend: An implementation's name, or `auto`.
        clip: Limit of the gradient that reaches h through r; 0 for none.
        only_h: Whether h alone has gradients from outside.
        sums: Whether launches of the call sum the gradient of r (`weights/shape.py`), not a product after the call.
        bias: Then the dtype of b, where its gradient is needed.
        configs: Configurations that the caller forces.
    """

    cell: str
    backend: str
    clip: float
    only_h: bool
    sums: bool = False
    bias: torch.dtype | None = None
    configs: Configs = ()


def _build_forward(tensors: tuple[Tensor | None, ...], extra: Forward) -> RecordedCall:
    """The recipe of a forward call on (wx, r, b, initial, start), and elementwise parameters where the cell has any."""
    from constrint.kernels.rnn.dispatch import saves_gates
    from constrint.kernels.rnn.interface import ForwardOutputs, RnnInputs

    wx, r, b, initial, start, *params = tensors
    assert wx is not None
    assert r is not None
    if not wx.numel():
        raise NotPlannedError("no step runs")
    kind = CELLS[extra.cell]
    batch, time, _, heads, dim = wx.shape
    stores = extra.trains and not extra.recompute
    if extra.trains and extra.recompute is None:
        stores = saves_gates(extra.cell, wx, extra.backend)
    states = wx.new_empty((kind.num_states, batch, time, heads, dim))
    end_h, end_rest = wx.new_empty((batch, heads, dim)), wx.new_empty((kind.num_states - 1, batch, heads, dim))
    gates = torch.empty(wx.shape, dtype=wx.dtype, device=wx.device) if stores else None
    outputs = ForwardOutputs(states, gates, end_h, end_rest)
    results = [tensor for tensor in (states, end_h, end_rest, gates) if tensor is not None and tensor.numel()]
    inputs = RnnInputs(extra.cell, wx, r, b, initial, None, None, *params)
    optional = {"bias": b, "initial": initial, "saved": gates}

    def launches(dispatch: Dispatch, choice: Decision, scratch: Scratch) -> Sequence[Launch]:
        return dispatch.backend.plan_forward(inputs, start, outputs, choice, scratch)

    # While a graph is captured no other thread may allocate.
    if stores and not torch.cuda.is_current_stream_capturing():
        _compile_backward(inputs, extra)
    return _record("forward", extra, tensors, results, launches, optional, recompute=not stores)


def _build_backward(tensors: tuple[Tensor | None, ...], extra: Backward) -> RecordedCall:
    """The recipe of a backward call on (grads of h, of all states, of the last states, wx, r, initial, states, gates).

    At least one of the first two is None. Elementwise parameters follow where the cell has any; their gradients by
    sequence are the last result then.
    """
    from constrint.kernels.rnn.interface import BackwardTensors, RnnInputs
    from constrint.kernels.rnn.weights.launch import weight_launches

    grad_h, grad_states, grad_last, wx, r, initial, states, gates, *params = tensors
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
    of_params = wx.new_empty((kind.num_params, batch, heads, dim), dtype=torch.float32) if params else None
    call = BackwardTensors(states, gates, tuple(every), grad_last, slots, grad_initial, before, of_params)
    inputs = RnnInputs(extra.cell, wx, r, None, initial, None, None, *params)
    results = [tensor for tensor in (slots, grad_initial, before, of_r, of_b, of_params) if tensor is not None]
    optional = {"initial": initial, "grad_last": grad_last, "clip": extra.clip or None, "only_h": extra.only_h or None}
    optional |= {f"grad{state}": grad for state, grad in enumerate(every)}

    def launches(dispatch: Dispatch, choice: Decision, scratch: Scratch) -> Sequence[Launch]:
        options = {"clip": extra.clip, "only_h": extra.only_h}
        loop = dispatch.backend.plan_backward(inputs, call, choice, scratch, **options)  # type: ignore[arg-type]
        if of_r is None:
            return loop
        return [*loop, *weight_launches(kind, slots, states[0], initial, of_r, of_b, choice.gpu, scratch)]

    return _record("backward", extra, tensors, results, launches, optional, recompute=False)


def _record(
    direction: str,
    extra: Forward | Backward,
    tensors: tuple[Tensor | None, ...],
    results: list[Tensor],
    launches_of: Callable[[Dispatch, Decision, Scratch], Sequence[Launch]],
    optional: dict[str, Any],
    *,
    recompute: bool,
) -> RecordedCall:
    """Decide, list the launches and record them; where the choice spills or does not fit, take the next one."""
    from constrint.kernels.launch.policy import launch_what_fits
    from constrint.kernels.rnn.dispatch import refuse, run_decided

    names = [name for name, value in optional.items() if value is not None]
    recipes: list[RecordedCall] = []

    def run(dispatch: Dispatch) -> None:
        def record(choice: Decision, /, *, may_spill: bool) -> None:
            scratch = NotedScratch()
            launches = launches_of(dispatch, choice, scratch)
            note = f"{choice.kernel} {dict(choice.config)}"
            recipes[:] = [recipe_of(launches, tensors, results, scratch, note, may_spill=may_spill)]

        launch_what_fits(dispatch.choice, record, refuse, names)

    wx = tensors[0 if direction == "forward" else 3]
    assert wx is not None
    run_decided(extra.cell, wx, extra.backend, direction, run, recompute=recompute, configs=extra.configs)
    return recipes[0]


#: Threads that compile the kernels of backward passes, while their forward passes are compiled and run.
_AHEAD: list[threading.Thread] = []


def _compile_backward(inputs: RnnInputs, extra: Forward) -> None:
    """Begin to compile the kernels of the backward pass that most often follows: with a gradient of h alone."""
    from constrint.kernels.rnn.dispatch import decide_for
    from constrint.kernels.rnn.interface import BackwardTensors
    from constrint.kernels.rnn.weights.launch import weight_launches

    kind, wx, r, b = CELLS[extra.cell], inputs.wx, inputs.r, inputs.b
    sums = backward_of(extra.cell, extra.backend, 0.0, True, r, True, b).sums
    batch, time, gates, heads, dim = wx.shape
    every = batch, time, heads, dim

    def stand_in(*shape: int, dtype: torch.dtype = wx.dtype) -> Tensor:
        """A tensor of that shape whose elements are one: a compiler reads its dtype and alignment alone."""
        return torch.empty(1, dtype=dtype, device=wx.device).expand(shape)

    def compile_ahead() -> None:
        # The same error is raised when the backward pass is planned.
        with suppress(Exception), torch.cuda.device(wx.device):
            grads = batch, heads, dim
            call = BackwardTensors(
                states=stand_in(kind.num_states, *every),
                gates=stand_in(batch, time, gates, heads, dim),
                grad_states=(stand_in(*every), *(None,) * (kind.num_states - 1)),
                grad_last=None,
                slots=stand_in(batch, time, kind.num_slots, heads, dim),
                initial=stand_in(kind.num_states, batch, heads, dim, dtype=torch.float32),
                before=None if sums else stand_in(*every),
                params=None if inputs.params is None else stand_in(kind.num_params, *grads, dtype=torch.float32),
            )
            dispatch = decide_for(extra.cell, wx, extra.backend, "backward", recompute=False, configs=extra.configs)
            choice, scratch = dispatch.choice, NotedScratch()
            launches = dispatch.backend.plan_backward(inputs, call, choice, scratch, clip=0.0, only_h=True)
            if sums:
                of_b = None if b is None else stand_in(*b.shape, dtype=b.dtype)
                operands = kind, call.slots, call.states[0], inputs.initial, stand_in(*r.shape), of_b
                launches = [*launches, *weight_launches(*operands, choice.gpu, scratch)]
            compile_all(launches)

    thread = threading.Thread(target=compile_ahead, name="constrint-compile")
    thread.start()
    _AHEAD.append(thread)


def backward_of(
    cell: str,
    backend: str,
    clip: float,
    only_h: bool,
    r: Tensor,
    needs_r: bool,
    b: Tensor | None,
    configs: Configs = (),
) -> Backward:
    """Everything but its tensors that a backward call depends on; `b` is None where its gradient is not needed."""
    sums = needs_r and _are_summed(r.shape[1], r.shape[3], r.element_size(), r.device)
    return Backward(cell, backend, clip, only_h, sums, b.dtype if sums and b is not None else None, configs)


@lru_cache(maxsize=256)
def _are_summed(heads: int, dim: int, element_bytes: int, device: torch.device) -> bool:
    return is_one_product(heads, dim, element_bytes, gpu_of(device) if device.type == "cuda" else None)


def gradients_of_call(
    extra: Backward, results: Sequence[Tensor], r: Tensor, needs_r: bool, b: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """Gradients of wx, r, b and the initial states; None for r and b where they are not needed.

    Args:
        extra: The return value of `backward_of` for these arguments.
        results: The results of the call.
        r: The weights.
        needs_r: Whether their gradient is needed.
        b: The bias, where its gradient is needed.
    """
    kind, (slots, initial, *others) = CELLS[extra.cell], results
    if extra.sums:
        return input_gradient(kind, slots), others[0], others[1] if len(others) > 1 else None, initial
    return *gradients_of_slots(kind, slots, others[0], r.dtype, needs_r, b), initial


def _precision() -> bool:
    return bool(torch._C._get_cublas_allow_tf32())


FORWARD = PlanTable("rnn-forward", _build_forward, _precision)
BACKWARD = PlanTable("rnn-backward", _build_backward, _precision)
