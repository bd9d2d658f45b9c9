"""What runs a cell over time: the operands of a call, its results, and the protocol of a back-end.

Letters of shapes: B batch, T time, N heads, D units of a head, S states, X gates with an input's part, G gates with a
recurrent part (of the definition's gates, in their order).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Protocol

from torch import Tensor

from constrint.errors import UnknownNameError, UnsupportedError
from constrint.kernels.rnn.language.graph import CellDefinition

#: Back-end names beside those of back-ends: the first one that can run a call, and plain PyTorch under autograd.
AUTO, TORCH = "auto", "torch"
#: Modules that have `BACKENDS`, a sequence of back-ends; those ahead are asked first. They are loaded for GPUs.
PROVIDERS = ("constrint.kernels.rnn.generated.backend",)


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
    """What a forward pass gives, in the dtype of wx.

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


@cache
def provided() -> tuple[CellBackend, ...]:
    """Back-ends with kernels, those asked first ahead."""
    found: list[CellBackend] = []
    for name in PROVIDERS:
        try:
            module = import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            continue
        found.extend(module.BACKENDS)
    return tuple(found)


def backend_of(call: CellCall, name: str) -> CellBackend:
    """The back-end that runs a call.

    Raises:
        UnknownNameError: When no back-end has this name.
        UnsupportedError: When the named one cannot run the call; says why.
    """
    from constrint.kernels.rnn.language.looped import TORCH_BACKEND

    if name == TORCH or (name == AUTO and not call.wx.is_cuda):
        return TORCH_BACKEND
    if name == AUTO:
        return next((each for each in provided() if not each.refusal(call)), TORCH_BACKEND)
    known = {each.name: each for each in provided()}
    if name not in known:
        raise UnknownNameError("backend", name, (AUTO, TORCH, *known))
    refusal = known[name].refusal(call)
    if refusal:
        raise UnsupportedError(f"backend {name!r} cannot run cell {call.cell.name!r}: {refusal}.")
    return known[name]
