"""The launches of one direction of a layer as a plan takes them: kernels alone, on tensors as they are.

What the long way does with PyTorch calls between the kernels (`launch.py`: other dtypes, strides, lengths, resets) has
no plan. Needs torch and triton.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.triton import TritonLaunch
from constrint.kernels.rnn.interface import PlannedBackward, PlannedForward, RnnInputs
from constrint.kernels.rnn.triton.launch import launches_of
from constrint.kernels.rnn.triton.layer import Layer
from constrint.select.first_choice import Choice


def forward_launches(
    inputs: RnnInputs, start: Tensor | None, made: PlannedForward, choice: Choice, scratch: Scratch
) -> Sequence[TritonLaunch]:
    """The time loop, on heads that the kernels take.

    Args:
        inputs: What goes in, without lengths and resets.
        start: (B, N, D) initial h in the dtype of wx, where there are initial states.
        made: What comes out.
        choice: The configuration.
        scratch: Gives the memory that programs meet in.

    Raises:
        NotPlannedError: Where tensors have to be converted first.
    """
    _check(inputs)
    wx, b = inputs.wx, inputs.b
    if b is not None and (b.dtype.itemsize < wx.dtype.itemsize or not b.is_contiguous()):
        raise NotPlannedError("the bias has to be converted")
    tensors = _common(inputs) | {"bias": b, "states": made.states, "saved": made.gates, "start": start}
    config = {**choice.config, "recompute": int(made.gates is None)}
    return launches_of(_layer(inputs, choice, "forward"), config, tensors, choice.gpu, scratch=scratch)


def backward_launches(
    inputs: RnnInputs, made: PlannedBackward, choice: Choice, scratch: Scratch, *, clip: float, only_h: bool
) -> Sequence[TritonLaunch]:
    """The time loop backwards, on heads that the kernels take.

    Raises:
        NotPlannedError: Where tensors have to be converted first, or pre-activations to be computed again.
    """
    _check(inputs)
    tensors = _common(inputs) | {"states": made.states, "saved": made.gates}
    tensors |= {"grad_slots": made.slots, "grad_initial": made.initial, "grad_last": made.grad_last}
    tensors |= {f"grad{state}": grad for state, grad in enumerate(made.grad_states)}
    config = {**choice.config, "recompute": 0}
    layer = _layer(inputs, choice, "backward")
    return launches_of(layer, config, tensors, choice.gpu, clip=clip, only_h=only_h, scratch=scratch)


def _check(inputs: RnnInputs) -> None:
    wx, initial = inputs.wx, inputs.initial
    heads, dim = wx.shape[3:]
    if not wx.numel():
        raise NotPlannedError("no step runs")
    if wx.stride()[2:] != (heads * dim, dim, 1) or not inputs.r.is_contiguous() or inputs.r.dtype != wx.dtype:
        raise NotPlannedError("the inputs or the weights have to be converted")
    if initial is not None and (initial.dtype != torch.float32 or not initial.is_contiguous()):
        raise NotPlannedError("the initial states have to be converted")


def _common(inputs: RnnInputs) -> dict[str, Tensor | None]:
    return {"wx": inputs.wx, "r": inputs.r, "initial": inputs.initial}


def _layer(inputs: RnnInputs, choice: Choice, direction: str) -> Layer:
    assert choice.workload is not None
    return Layer.of(inputs.kind, direction, choice.workload)
