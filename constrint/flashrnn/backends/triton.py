"""The `triton` back-end: fused over time, with configurations from the solver; see `kernels/rnn/launch.py`.

The kernels take head dimensions that are multiples of 16; others are padded with units that stay at zero, and cropped.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from constrint.kernels.rnn.op import RnnGradients, RnnInputs, RnnSaved, RnnUpstream

#: Head dimensions are multiples of this, the depth of one matrix instruction.
MULTIPLE = 16


def padded_head_dim(head_dim: int) -> int:
    """The head dimension that the kernels run."""
    return -(-head_dim // MULTIPLE) * MULTIPLE


class TritonBackend:
    """Calls the fused kernels; imports triton when it runs."""

    name = "triton"

    def forward(self, inputs: RnnInputs, *, save_gates: bool) -> RnnSaved:
        """See `RnnBackend.forward`."""
        from constrint.kernels.rnn import launch

        dim = inputs.wx.shape[-1]
        x = _pad_inputs(inputs)
        with _on(x.wx.device):
            states, gates = launch.forward(
                x.cell, x.wx, x.r, x.b, x.initial, lengths=x.lengths, reset=x.reset, save_gates=save_gates
            )
        return RnnSaved(_crop(states, dim), None if gates is None else _crop(gates, dim))

    def backward(self, inputs: RnnInputs, saved: RnnSaved, upstream: RnnUpstream, *, clip: float) -> RnnGradients:
        """See `RnnBackend.backward`."""
        from constrint.kernels.rnn import launch

        dim = inputs.wx.shape[-1]
        x, kept = _pad_inputs(inputs), _pad_saved(inputs.cell, saved)
        more = padded_head_dim(dim) - dim
        with _on(x.wx.device):
            wx, r, b, initial = launch.backward(
                x.cell,
                tuple(_pad(grad, more) for grad in upstream.states),
                tuple(_pad(grad, more) for grad in upstream.last),
                x.wx,
                x.r,
                x.b,
                x.initial,
                kept.states,
                kept.gates,
                lengths=x.lengths,
                reset=x.reset,
                clip=clip or None,
            )
        return RnnGradients(
            wx=_crop(wx, dim),
            r=_crop(r[:, :, :dim], dim),
            b=None if b is None else _crop(b, dim),
            initial=None if inputs.initial is None else _crop(initial, dim),
        )


def _on(device: torch.device) -> AbstractContextManager[Any]:
    """Makes the device the current one, on which Triton launches; the CPU (the interpreter) needs nothing."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _pad(x: Tensor | None, more: int, value: float = 0.0) -> Tensor | None:
    return x if x is None or not more else pad(x, (0, more), value=value)


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


def _pad_saved(cell: str, saved: RnnSaved) -> RnnSaved:
    """The same units in what was saved; an sLSTM divides by n, which is 1 in a unit that has seen nothing but zeros."""
    dim = saved.states.shape[-1]
    more = padded_head_dim(dim) - dim
    if not more:
        return saved
    states = pad(saved.states, (0, more))
    if cell == "slstm":
        states[2, ..., dim:] = 1.0
    return RnnSaved(states, _pad(saved.gates, more))
