"""The back-end of cells that fused kernels do not take: late products, sums over heads, inputs of a step."""

from __future__ import annotations

import torch
from torch import Tensor

from constrint.kernels.rnn.language.backends import CellCall, CellGradients, CellResults
from constrint.kernels.rnn.staged.graphs import staged_backward, staged_forward
from constrint.kernels.rnn.staged.stages import StagedStep

#: Units of a head that a program holds at most, where it adds over them.
MOST_UNITS = 8192


class StagedBackend:
    """Runs any cell on a GPU by a graph of products and of one generated kernel per stage."""

    name = "staged"

    def refusal(self, call: CellCall) -> str:
        """Why it cannot run the call; empty where it does."""
        if not call.wx.is_cuda:
            return f"its kernels need a GPU, wx is on {call.wx.device}"
        if call.wx.dtype == torch.float64:
            return "its kernels take float32, bfloat16 and float16"
        if call.wx.shape[-1] > MOST_UNITS and any(StagedStep(call.cell, way).has_reductions for way in (False, True)):
            return f"a program adds over at most {MOST_UNITS} units of a head, this one has {call.wx.shape[-1]}"
        return ""

    def forward(self, call: CellCall, *, saves: bool) -> CellResults:
        """Run all steps; see `CellBackend`."""
        with torch.cuda.device(call.wx.device):
            return staged_forward(call, saves=saves)

    def backward(
        self,
        call: CellCall,
        results: CellResults,
        d_hidden: Tensor | None,
        d_rest: Tensor | None,
        d_last: Tensor | None,
    ) -> CellGradients:
        """Gradients of the operands; see `CellBackend`."""
        with torch.cuda.device(call.wx.device):
            return staged_backward(call, results, d_hidden, d_rest, d_last)


BACKENDS = (StagedBackend(),)
