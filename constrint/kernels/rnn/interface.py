"""Tensors that recurrent back-ends read and write, and the protocol of a back-end.

Letters of shapes: B batch, T time, G gates, N heads, D units of a head, S states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from constrint.choose import Decision
from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.rnn.cells import CELLS, RecurrentCell
from constrint.kernels.rnn.reference import accumulation_dtype
from constrint.select.spec import Launch


@dataclass(frozen=True)
class RnnInputs:
    """Operands of a recurrence, all on one device.

    Args:
        cell: A key of `CELLS`.
        wx: (B, T, G, N, D) projected inputs; the last three dimensions are contiguous.
        r: (G, N, D out, D in) recurrent weights, contiguous.
        b: (G, N, D) recurrent bias, or None.
        initial: (S, B, N, D) states before the first step in the accumulation dtype, or None for zeros.
        lengths: (B,) int32 within 0..T, or None for all T.
        reset: (B, T) bool, true where a sequence starts anew, or None.
        params: (P, N, D) fp32 elementwise parameters of the cell, contiguous; None for a cell without any.
    """

    cell: str
    wx: Tensor
    r: Tensor
    b: Tensor | None
    initial: Tensor | None
    lengths: Tensor | None
    reset: Tensor | None
    params: Tensor | None = None

    @property
    def kind(self) -> RecurrentCell:
        """The cell's gates, states and slots."""
        return CELLS[self.cell]


@dataclass(frozen=True)
class ForwardOutputs:
    """Tensors that a forward pass writes.

    Where a cell keeps the two parts of its last gate apart, `gates` holds the recurrent part: wx holds the other one.

    Args:
        states: (S, B, T, N, D).
        gates: (B, T, G, N, D) pre-activations; None where the backward pass recomputes them.
        end_h: (B, N, D), the last h; plans alone write it.
        end_rest: (S - 1, B, N, D), the other last states; plans alone write it.
    """

    states: Tensor
    gates: Tensor | None
    end_h: Tensor | None = None
    end_rest: Tensor | None = None


@dataclass(frozen=True)
class RnnUpstream:
    """Gradients of the results, one per state; None is zero.

    Args:
        states: (B, T, N, D) each; values past a sequence's end do not count.
        last: (B, N, D) each, for a sequence's last step, or for the initial states where its length is 0.
    """

    states: tuple[Tensor | None, ...]
    last: tuple[Tensor | None, ...]

    def stacked_last(self, like: Tensor) -> Tensor:
        """`last` as one tensor (S, B, N, D)."""
        stacked = torch.zeros_like(like)
        for into, grad in zip(stacked, self.last, strict=True):
            if grad is not None:
                into.copy_(grad)
        return stacked


@dataclass(frozen=True)
class RnnGradients:
    """Gradients of the inputs of the same names; None where there was no such input."""

    wx: Tensor
    r: Tensor
    b: Tensor | None
    initial: Tensor | None
    params: Tensor | None = None


@dataclass(frozen=True)
class BackwardTensors:
    """Tensors that the launches of a backward pass read besides its inputs, and write.

    Args:
        states: (S, B, T, N, D), read.
        gates: (B, T, G, N, D), read; as in `ForwardOutputs`.
        grad_states: (B, T, N, D), the gradient of each state, read; None is zero.
        grad_last: (S, B, N, D) in fp32, the gradient of the last states, read; None is zero.
        slots: (B, T, slots, N, D), written: gradients of the slots.
        initial: (S, B, N, D) in fp32, written: the gradient of the initial states.
        before: (B, T, N, D), written: the h that enters each step; None to leave it out.
        params: (P, B, N, D) in fp32, written: the gradient of the elementwise parameters by sequence.
    """

    states: Tensor
    gates: Tensor
    grad_states: tuple[Tensor | None, ...]
    grad_last: Tensor | None
    slots: Tensor
    initial: Tensor
    before: Tensor | None = None
    params: Tensor | None = None


class RnnBackend(Protocol):
    """Runs recurrences with the configuration of a choice; B and T are at least 1. It keeps no state but caches."""

    def forward(self, inputs: RnnInputs, choice: Decision, *, save_gates: bool) -> ForwardOutputs:
        """Run all steps at once; states past a sequence's length are zero. `end_h` and `end_rest` stay None."""

    def backward(
        self, inputs: RnnInputs, saved: ForwardOutputs, upstream: RnnUpstream, choice: Decision, *, clip: float
    ) -> RnnGradients:
        """Compute the gradients of the inputs; `clip` > 0 clamps the gradient that reaches h_{t-1} through r."""

    def plan_forward(
        self, inputs: RnnInputs, start: Tensor | None, outputs: ForwardOutputs, choice: Decision, scratch: Scratch
    ) -> Sequence[Launch]:
        """List the launches of a forward pass without lengths and resets.

        Args:
            inputs: The operands.
            start: The initial h in the dtype of wx; None without initial states.
            outputs: Written by the launches.
            choice: The configuration.
            scratch: Provides temporary memory.

        Raises:
            NotPlannedError: When the pass is more than launches on these tensors.
        """

    def plan_backward(
        self,
        inputs: RnnInputs,
        tensors: BackwardTensors,
        choice: Decision,
        scratch: Scratch,
        *,
        clip: float,
        only_h: bool,
    ) -> Sequence[Launch]:
        """List the launches of a backward pass without lengths and resets.

        `only_h` says that no other state than h has a gradient from outside. Raises NotPlannedError as `plan_forward`.
        """


def zero_states(inputs: RnnInputs) -> Tensor:
    """Initial states (S, B, N, D) in the accumulation dtype; zeros without any."""
    if inputs.initial is not None:
        return inputs.initial
    batch, _, _, heads, dim = inputs.wx.shape
    shape = (inputs.kind.num_states, batch, heads, dim)
    return inputs.wx.new_zeros(shape, dtype=accumulation_dtype(inputs.wx.dtype))
