"""Heads that a fused kernel cannot take as they are: padded with units that do nothing, and cropped afterwards.

The units that are added have no input and no recurrence, so their h stays zero in every cell.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.rnn.cells import Cell
from constrint.kernels.rnn.edges import before_launch, ends_launch, resize_launch, resize_weights_launch
from constrint.kernels.rnn.interface import (
    PlannedBackward,
    PlannedForward,
    RnnGradients,
    RnnInputs,
    RnnSaved,
    RnnUpstream,
)
from constrint.select.first_choice import Choice
from constrint.select.spec import Launch


class PaddedBackend(ABC):
    """Pads heads, runs the kernels, crops the results."""

    @abstractmethod
    def padded(self, head_dim: int, dtype: torch.dtype) -> int:
        """The head dimension that the kernels run in the place of one."""

    @abstractmethod
    def run_forward(self, inputs: RnnInputs, choice: Choice, *, save_gates: bool) -> RnnSaved:
        """`forward` with heads that the kernels take."""

    @abstractmethod
    def run_backward(
        self, inputs: RnnInputs, saved: RnnSaved, upstream: RnnUpstream, choice: Choice, *, clip: float
    ) -> RnnGradients:
        """`backward` with heads that the kernels take."""

    @abstractmethod
    def loop_forward(
        self, inputs: RnnInputs, start: Tensor | None, made: PlannedForward, choice: Choice, scratch: Scratch
    ) -> Sequence[Launch]:
        """The launches of the time loop, on heads that the kernels take; they leave the last states to others."""

    @abstractmethod
    def loop_backward(
        self, inputs: RnnInputs, made: PlannedBackward, choice: Choice, scratch: Scratch, *, clip: float, only_h: bool
    ) -> Sequence[Launch]:
        """The launches of the time loop backwards, on heads that the kernels take; they leave `before` to others."""

    def plan_forward(
        self, inputs: RnnInputs, start: Tensor | None, made: PlannedForward, choice: Choice, scratch: Scratch
    ) -> Sequence[Launch]:
        """See `RnnBackend.plan_forward`."""
        padding = _PlannedPadding(self.padded(inputs.wx.shape[-1], inputs.wx.dtype), inputs, scratch)
        states, gates = padding.result(made.states), padding.result(made.gates)
        inner = replace(made, states=states, gates=gates)
        given = padding.inputs(inputs), padding.operand(start)
        loop = self.loop_forward(*given, inner, choice, scratch)
        return [*padding.before, *loop, *padding.after, ends_launch(made)]

    def plan_backward(
        self, inputs: RnnInputs, made: PlannedBackward, choice: Choice, scratch: Scratch, *, clip: float, only_h: bool
    ) -> Sequence[Launch]:
        """See `RnnBackend.plan_backward`."""
        padding = _PlannedPadding(self.padded(inputs.wx.shape[-1], inputs.wx.dtype), inputs, scratch)
        inner = replace(
            made,
            states=padding.saved_states(made.states, inputs.kind),
            gates=padding.operand(made.gates),
            grad_states=tuple(map(padding.operand, made.grad_states)),
            grad_last=padding.operand(made.grad_last),
            slots=padding.result(made.slots),
            initial=padding.result(made.initial),
        )
        loop = self.loop_backward(padding.inputs(inputs), inner, choice, scratch, clip=clip, only_h=only_h)
        shifted = [] if made.before is None else [before_launch(inputs, made)]
        return [*shifted, *padding.before, *loop, *padding.after]

    def forward(self, inputs: RnnInputs, choice: Choice, *, save_gates: bool) -> RnnSaved:
        """See `RnnBackend.forward`."""
        dim = inputs.wx.shape[-1]
        saved = self.run_forward(
            _pad_inputs(inputs, self.padded(dim, inputs.wx.dtype) - dim), choice, save_gates=save_gates
        )
        return RnnSaved(_crop(saved.states, dim), None if saved.gates is None else _crop(saved.gates, dim))

    def backward(
        self, inputs: RnnInputs, saved: RnnSaved, upstream: RnnUpstream, choice: Choice, *, clip: float
    ) -> RnnGradients:
        """See `RnnBackend.backward`."""
        dim = inputs.wx.shape[-1]
        more = self.padded(dim, inputs.wx.dtype) - dim
        padded = RnnUpstream(
            tuple(_pad(grad, more) for grad in upstream.states), tuple(_pad(grad, more) for grad in upstream.last)
        )
        kept = _pad_saved(inputs.kind, saved, more)
        grads = self.run_backward(_pad_inputs(inputs, more), kept, padded, choice, clip=clip)
        return RnnGradients(
            wx=_crop(grads.wx, dim),
            r=_crop(grads.r[:, :, :dim], dim),
            b=None if grads.b is None else _crop(grads.b, dim),
            initial=None if grads.initial is None else _crop(grads.initial, dim),
        )


def _pad(x: Tensor | None, more: int) -> Tensor | None:
    return x if x is None or not more else pad(x, (0, more))


def _crop(x: Tensor, dim: int) -> Tensor:
    return x[..., :dim].contiguous()


def _pad_inputs(inputs: RnnInputs, more: int) -> RnnInputs:
    """Units that get no input and no recurrence."""
    if not more:
        return inputs
    return replace(
        inputs,
        wx=pad(inputs.wx, (0, more)),
        r=pad(inputs.r, (0, more, 0, more)),
        b=_pad(inputs.b, more),
        initial=_pad(inputs.initial, more),
    )


def _pad_saved(kind: Cell, saved: RnnSaved, more: int) -> RnnSaved:
    """The same units in what was saved."""
    if not more:
        return saved
    dim = saved.states.shape[-1]
    states = pad(saved.states, (0, more))
    for state, value in enumerate(kind.idle_states):
        states[state, ..., dim:] = value
    return RnnSaved(states, _pad(saved.gates, more))


class _PlannedPadding:
    """Tensors of a planned call with padded heads, and the launches that fill them and take them apart again.

    Args:
        dim: The head dimension that the kernels run.
        inputs: What goes in.
        scratch: Gives the memory of the padded tensors.

    Raises:
        NotPlannedError: Where heads are padded and a tensor has to be converted, too.
    """

    def __init__(self, dim: int, inputs: RnnInputs, scratch: Scratch) -> None:
        self._dim, self._is_none, self._scratch = dim, dim == inputs.wx.shape[-1], scratch
        self.before: list[Launch] = []
        self.after: list[Launch] = []
        if not self._is_none:
            _check_plain(inputs)

    def inputs(self, inputs: RnnInputs) -> RnnInputs:
        """Units that get no input and no recurrence."""
        if self._is_none:
            return inputs
        r = self._empty((*inputs.r.shape[:-2], self._dim, self._dim), inputs.r)
        self.before.append(resize_weights_launch(inputs.r, r))
        wx = self._filled(inputs.wx)
        return replace(inputs, wx=wx, r=r, b=self.operand(inputs.b), initial=self.operand(inputs.initial))

    def operand(self, tensor: Any) -> Any:
        """A tensor that is read, with zeros for the units that are added; None stays None."""
        return tensor if tensor is None or self._is_none else self._filled(tensor)

    def saved_states(self, states: Tensor, kind: Cell) -> Tensor:
        """All states (S, B, T, N, D), with what each is in a unit that does nothing."""
        if self._is_none:
            return states
        whole = self._empty((*states.shape[:-1], self._dim), states)
        for state, value in enumerate(kind.idle_states):
            self.before.append(resize_launch(states[state], whole[state], value))
        return whole

    def result(self, tensor: Any) -> Any:
        """A tensor that is written: its units are taken out of a padded one afterwards; None stays None."""
        if tensor is None or self._is_none:
            return tensor
        whole = self._empty((*tensor.shape[:-1], self._dim), tensor)
        self.after.append(resize_launch(whole, tensor))
        return whole

    def _filled(self, tensor: Tensor) -> Tensor:
        whole = self._empty((*tensor.shape[:-1], self._dim), tensor)
        self.before.append(resize_launch(tensor, whole))
        return whole

    def _empty(self, shape: Sequence[int], like: Tensor) -> Tensor:
        return self._scratch.empty(tuple(shape), like.dtype, like.device)


def _check_plain(inputs: RnnInputs) -> None:
    wx, heads, dim = inputs.wx, *inputs.wx.shape[3:]
    if not wx.numel():
        raise NotPlannedError("no step runs")
    others = [tensor for tensor in (inputs.r, inputs.b, inputs.initial) if tensor is not None]
    if wx.stride()[2:] != (heads * dim, dim, 1) or not all(tensor.is_contiguous() for tensor in others):
        raise NotPlannedError("heads have to be padded, and the inputs or the weights converted")
