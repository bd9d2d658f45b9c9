"""A call of a cell over time: its operands, its results, and the protocol of a back-end that runs it.

Letters of shapes: B batch, T time, N heads, D units of a head, S states, X gates with an input's part, G gates with a
recurrent part (of the definition's gates, in their order).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from constrint.kernels.rnn.language.graph import CellDefinition

#: Back-end names beside those of back-ends: the first one that can run a call, and plain PyTorch under autograd.
AUTO, TORCH = "auto", "torch"


@dataclass(frozen=True)
class CellCall:
    """Operands of a recurrence of a cell, all on one device.

    Args:
        cell: The definition.
        wx: (B, T, X, N, D) projected inputs.
        r: (G, N, D out, D in) recurrent weights; None where G = 0.
        b: (G, N, D) recurrent bias, or None.
        initial: (S, B, N, D) states before the first step in the accumulation dtype, or None for the cell's own.
        parameters: Elementwise parameters in the accumulation dtype, in the definition's order: (N, D), (N, 1) or
            (N or 1, 1).
        inputs: Inputs of a step besides x in the accumulation dtype, in the definition's order: (B, T, N or 1, D or 1).
        lengths: (B,) int32 within 0..T, or None for all T.
        reset: (B, T) bool, true where a sequence starts anew from the cell's own first states, or None.
        clip: Limit of the gradient that reaches the state before through R; 0 for none.
        needs_inputs: Whether gradients of `inputs` are asked for.
    """

    cell: CellDefinition
    wx: Tensor
    r: Tensor | None
    b: Tensor | None
    initial: Tensor | None
    parameters: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    lengths: Tensor | None
    reset: Tensor | None
    clip: float = 0.0
    needs_inputs: bool = False


@dataclass(frozen=True)
class CellResults:
    """Results of a forward pass, in the dtype of wx.

    Args:
        hidden: (B, T, N, D), the first state after each step; zeros past a sequence's end.
        rest: (S - 1, B, T, N, D), the others likewise.
        last: (S, B, N, D), the states after the last step of each sequence.
        saved: (B, T, G, N, D), by gate its sum or, of a gate whose parts stand apart, its recurrent part; None where it
            was not asked for.
    """

    hidden: Tensor
    rest: Tensor
    last: Tensor
    saved: Tensor | None


@dataclass(frozen=True)
class CellGradients:
    """Gradients of the operands of the same names in `CellCall`; None where there was no such operand.

    `inputs` is empty where the call does not need them.
    """

    wx: Tensor
    r: Tensor | None
    b: Tensor | None
    initial: Tensor | None
    parameters: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]


class CellBackend(Protocol):
    """Runs cells over time; B and T are at least 1."""

    name: str

    def refusal(self, call: CellCall) -> str:
        """Why it cannot run the call, or would be slower than PyTorch; empty where it runs it."""

    def forward(self, call: CellCall, *, saves: bool) -> CellResults:
        """Run all steps; `saves` asks for `saved`."""

    def backward(
        self,
        call: CellCall,
        results: CellResults,
        d_hidden: Tensor | None,
        d_rest: Tensor | None,
        d_last: Tensor | None,
    ) -> CellGradients:
        """Compute the gradients of the operands from those of the results; None is zero."""
