"""Heads that a fused kernel cannot take as they are: padded with units that do nothing, and cropped afterwards.

The units that are added have no input and no recurrence, so their h stays zero in every cell.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from constrint.kernels.rnn.cells import Cell
from constrint.kernels.rnn.interface import RnnGradients, RnnInputs, RnnSaved, RnnUpstream
from constrint.select.first_choice import Choice


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

    def forward(self, inputs: RnnInputs, choice: Choice, *, save_gates: bool) -> RnnSaved:
        """See `RnnBackend.forward`."""
        dim = inputs.wx.shape[-1]
        saved = self.run_forward(_pad_inputs(inputs, self.padded(dim, inputs.wx.dtype) - dim), choice, save_gates=save_gates)
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
