"""What the operators hand to an implementation of a recurrence, and what they get back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from constrint.kernels.rnn.cells import CELLS, Cell
from constrint.kernels.rnn.reference import accumulation_dtype
from constrint.select.first_choice import Choice
from constrint.select.spec import Launch


@dataclass(frozen=True)
class RnnInputs:
    """What a recurrence runs on; all on one device.

    Args:
        cell: A key of `CELLS`.
        wx: (B, T, G, N, D) projected inputs; the last three dimensions are contiguous.
        r: (G, N, D out, D in) recurrent weights, contiguous.
        b: (G, N, D) recurrent bias, or None.
        initial: (S, B, N, D) states before the first step in the accumulation dtype, or None for zeros.
        lengths: (B,) int32 within 0..T, or None for all T.
        reset: (B, T) bool, or None for nowhere.
    """

    cell: str
    wx: Tensor
    r: Tensor
    b: Tensor | None
    initial: Tensor | None
    lengths: Tensor | None
    reset: Tensor | None

    @property
    def kind(self) -> Cell:
        """The cell's gates, states and slots."""
        return CELLS[self.cell]


@dataclass(frozen=True)
class RnnSaved:
    """What the forward pass left: states (S, B, T, N, D), pre-activations (B, T, G, N, D) or None to recompute them.

    Where a cell keeps the parts of its last gate apart, the recurrent part is saved, since wx has the other one.
    """

    states: Tensor
    gates: Tensor | None


@dataclass(frozen=True)
class RnnUpstream:
    """Gradients of the results, one for each state; None is zero.

    Args:
        states: (B, T, N, D) each; what stands past a sequence's end does not count.
        last: (B, N, D) each; they belong to a sequence's last step, or to the initial states where its length is 0.
    """

    states: tuple[Tensor | None, ...]
    last: tuple[Tensor | None, ...]

    def stacked_last(self, like: Tensor) -> Tensor:
        """`last` as one tensor (S, B, N, D)."""
        whole = torch.zeros_like(like)
        for into, grad in zip(whole, self.last, strict=True):
            if grad is not None:
                into.copy_(grad)
        return whole


@dataclass(frozen=True)
class RnnGradients:
    """Gradients of the inputs of the same names; None where there was no such input."""

    wx: Tensor
    r: Tensor
    b: Tensor | None
    initial: Tensor | None


@dataclass(frozen=True)
class PlannedForward:
    """What a planned forward call writes.

    Args:
        states: (S, B, T, N, D).
        end_h: (B, N, D), the last h.
        end_rest: (S - 1, B, N, D), the other last states.
        gates: As in `RnnSaved`.
    """

    states: Tensor
    end_h: Tensor
    end_rest: Tensor
    gates: Tensor | None


@dataclass(frozen=True)
class PlannedBackward:
    """What a planned backward call reads besides its inputs, and writes.

    Args:
        states: (S, B, T, N, D).
        gates: (B, T, G, N, D), as in `RnnSaved`.
        grad_states: (B, T, N, D), the gradient of each state; None is zero.
        grad_last: (S, B, N, D) in fp32, the gradient of the last states; None is zero.
        slots: (B, T, slots, N, D), written: gradients of the slots.
        initial: (S, B, N, D) in fp32, written: the gradient of the initial states.
        before: (B, T, N, D), written: the h that enters each step; None where nobody asks for it.
    """

    states: Tensor
    gates: Tensor
    grad_states: tuple[Tensor | None, ...]
    grad_last: Tensor | None
    slots: Tensor
    initial: Tensor
    before: Tensor | None


class RnnBackend(Protocol):
    """A way to run recurrences as they were chosen; stateless but for caches."""

    def forward(self, inputs: RnnInputs, choice: Choice, *, save_gates: bool) -> RnnSaved:
        """Run over time; states past a sequence's length are zero. B and T are at least 1."""

    def backward(
        self, inputs: RnnInputs, saved: RnnSaved, upstream: RnnUpstream, choice: Choice, *, clip: float
    ) -> RnnGradients:
        """Gradients of the inputs; `clip` > 0 clamps what reaches h_{t-1} through r."""

    def plan_forward(
        self, inputs: RnnInputs, start: Tensor | None, made: PlannedForward, choice: Choice, scratch: Any
    ) -> Sequence[Launch]:
        """The launches of `forward` without lengths and resets; raises NotPlannedError where it is more than those.

        `start` is the initial h in the dtype of wx.
        """

    def plan_backward(
        self, inputs: RnnInputs, made: PlannedBackward, choice: Choice, scratch: Any, *, clip: float, only_h: bool
    ) -> Sequence[Launch]:
        """The launches that write what `PlannedBackward` says; raises NotPlannedError as above.

        `only_h` says that no other state has a gradient from outside.
        """


def zero_states(inputs: RnnInputs) -> Tensor:
    """Initial states (S, B, N, D) in the accumulation dtype, zeros if none were given."""
    if inputs.initial is not None:
        return inputs.initial
    batch, _, _, heads, dim = inputs.wx.shape
    shape = (inputs.kind.num_states, batch, heads, dim)
    return inputs.wx.new_zeros(shape, dtype=accumulation_dtype(inputs.wx.dtype))
