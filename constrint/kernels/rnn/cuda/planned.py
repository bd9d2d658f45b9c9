"""The launches of one direction of a layer as a plan takes them: kernels alone, on tensors as they are.

What the long way does with PyTorch calls between the kernels (`launch.py`: other dtypes, strides, lengths, resets) has
no plan. Needs torch, cuda-bindings, and triton for the copies at the edges of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.rnn.cuda.launch import is_ready, launches_of, wx_is_ready
from constrint.kernels.rnn.fused import Tensors, workload_of_choice
from constrint.kernels.rnn.interface import PlannedBackward, PlannedForward, RnnInputs
from constrint.select.first_choice import Choice
from constrint.select.spec import Launch


def forward_launches(inputs: RnnInputs, made: PlannedForward, choice: Choice, scratch: Scratch) -> Sequence[Launch]:
    """The time loop, on heads that the kernels take.

    Raises:
        NotPlannedError: Where tensors have to be converted first.
    """
    tensors = _common(inputs) | {"bias": inputs.b, "states": made.states, "saved": made.gates}
    _check(inputs, tensors)
    config = {**choice.config, "recompute": int(made.gates is None)}
    workload = workload_of_choice(choice)
    launches = launches_of("forward", workload, config, tensors, _gpu(choice), scratch=scratch)
    return list(launches)


def backward_launches(
    inputs: RnnInputs, made: PlannedBackward, choice: Choice, scratch: Scratch, *, clip: float, only_h: bool
) -> Sequence[Launch]:
    """The time loop backwards, on heads that the kernels take.

    Raises:
        NotPlannedError: Where tensors have to be converted first, or pre-activations to be computed again.
    """
    tensors = _common(inputs) | {"states": made.states, "saved": made.gates}
    tensors |= {"grad_slots": made.slots, "grad_initial": made.initial, "grad_last": made.grad_last}
    tensors |= {f"grad{state}": grad for state, grad in enumerate(made.grad_states)}
    _check(inputs, tensors)
    config, workload = {**choice.config, "recompute": 0}, workload_of_choice(choice)
    options = {"clip": clip, "only_h": only_h, "scratch": scratch}
    launches = launches_of("backward", workload, config, tensors, _gpu(choice), **options)  # type: ignore[arg-type]
    return list(launches)


def _check(inputs: RnnInputs, tensors: Tensors) -> None:
    wx, initial, bias = inputs.wx, inputs.initial, tensors.get("bias")
    heads, dim = wx.shape[3:]
    if not wx.numel():
        raise NotPlannedError("no step runs")
    if wx.stride()[2:] != (heads * dim, dim, 1) or not inputs.r.is_contiguous() or inputs.r.dtype != wx.dtype:
        raise NotPlannedError("the inputs or the weights have to be converted")
    if bias is not None and (bias.dtype != wx.dtype or not bias.is_contiguous()):
        raise NotPlannedError("the bias has to be converted")
    if initial is not None and (initial.dtype != torch.float32 or not initial.is_contiguous()):
        raise NotPlannedError("the initial states have to be converted")
    if not wx_is_ready(wx) or not all(is_ready(tensor) for tensor in tensors.values() if tensor is not None):
        raise NotPlannedError("a tensor does not begin at a vector of 16 bytes")


def _common(inputs: RnnInputs) -> dict[str, torch.Tensor | None]:
    return {"wx": inputs.wx, "r": inputs.r, "initial": inputs.initial}


def _gpu(choice: Choice) -> GpuModel:
    if choice.gpu is None:
        raise ConstrintError(f"{choice.kernel} needs a model of the device.")
    return choice.gpu
