"""The back-end of the fused kernels: pads heads to multiples of 16, runs the kernels, crops the results.

The units that are added have no input and no recurrence, so their states stay zero. `launch.py` has the launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor
from torch.nn.functional import pad

from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.rnn.cells import Cell
from constrint.kernels.rnn.interface import (
    PlannedBackward,
    PlannedForward,
    RnnGradients,
    RnnInputs,
    RnnSaved,
    RnnUpstream,
)
from constrint.kernels.rnn.triton import launch, planned
from constrint.kernels.rnn.triton.layer import padded_head_dim
from constrint.select.first_choice import Choice
from constrint.select.spec import Launch


class TritonBackend:
    """Calls the fused kernels."""

    def forward(self, inputs: RnnInputs, choice: Choice, *, save_gates: bool) -> RnnSaved:
        """See `RnnBackend.forward`."""
        dim = inputs.wx.shape[-1]
        saved = launch.forward(_pad_inputs(inputs), choice, save_gates=save_gates)
        return RnnSaved(_crop(saved.states, dim), None if saved.gates is None else _crop(saved.gates, dim))

    def backward(
        self, inputs: RnnInputs, saved: RnnSaved, upstream: RnnUpstream, choice: Choice, *, clip: float
    ) -> RnnGradients:
        """See `RnnBackend.backward`."""
        dim = inputs.wx.shape[-1]
        more = padded_head_dim(dim) - dim
        padded = RnnUpstream(
            tuple(_pad(grad, more) for grad in upstream.states), tuple(_pad(grad, more) for grad in upstream.last)
        )
        kept = _pad_saved(inputs.kind, saved)
        grads = launch.backward(_pad_inputs(inputs), kept, padded, choice, clip=clip)
        return RnnGradients(
            wx=_crop(grads.wx, dim),
            r=_crop(grads.r[:, :, :dim], dim),
            b=None if grads.b is None else _crop(grads.b, dim),
            initial=None if grads.initial is None else _crop(grads.initial, dim),
        )

    def plan_forward(
        self, inputs: RnnInputs, start: Tensor | None, made: PlannedForward, choice: Choice, scratch: Scratch
    ) -> Sequence[Launch]:
        """See `RnnBackend.plan_forward`."""
        return planned.forward_launches(inputs, start, made, choice, scratch)

    def plan_backward(
        self, inputs: RnnInputs, made: PlannedBackward, choice: Choice, scratch: Scratch, *, clip: float, only_h: bool
    ) -> Sequence[Launch]:
        """See `RnnBackend.plan_backward`."""
        return planned.backward_launches(inputs, made, choice, scratch, clip=clip, only_h=only_h)


def _pad(x: Tensor | None, more: int) -> Tensor | None:
    return x if x is None or not more else pad(x, (0, more))


def _crop(x: Tensor, dim: int) -> Tensor:
    return x[..., :dim].contiguous()


def _pad_inputs(inputs: RnnInputs) -> RnnInputs:
    """Units that get no input and no recurrence: their h stays zero in every cell."""
    dim = inputs.wx.shape[-1]
    more = padded_head_dim(dim) - dim
    if not more:
        return inputs
    return replace(
        inputs,
        wx=pad(inputs.wx, (0, more)),
        r=pad(inputs.r, (0, more, 0, more)),
        b=_pad(inputs.b, more),
        initial=_pad(inputs.initial, more),
    )


def _pad_saved(kind: Cell, saved: RnnSaved) -> RnnSaved:
    """The same units in what was saved."""
    dim = saved.states.shape[-1]
    more = padded_head_dim(dim) - dim
    if not more:
        return saved
    states = pad(saved.states, (0, more))
    for state, value in enumerate(kind.idle_states):
        states[state, ..., dim:] = value
    return RnnSaved(states, _pad(saved.gates, more))
