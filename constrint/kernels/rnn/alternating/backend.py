"""The `alternating` back-end: per step one matrix product and one pointwise step; any head dimension, any device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch

from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.rnn.alternating.loop import loop_backward, loop_forward
from constrint.kernels.rnn.interface import RnnGradients, RnnInputs, RnnSaved, RnnUpstream
from constrint.select.first_choice import Choice
from constrint.select.spec import Launch


class AlternatingBackend:
    """A loop of PyTorch calls; on a GPU with Triton a CUDA graph of products and fused pointwise kernels."""

    def forward(self, inputs: RnnInputs, choice: Choice, *, save_gates: bool) -> RnnSaved:
        """See `RnnBackend.forward`."""
        if _has_kernels(inputs):
            from constrint.kernels.rnn.alternating.graphs import graph_forward

            with torch.cuda.device(inputs.wx.device):
                return graph_forward(inputs, save_gates=save_gates)
        return loop_forward(inputs, save_gates=save_gates)

    def backward(
        self, inputs: RnnInputs, saved: RnnSaved, upstream: RnnUpstream, choice: Choice, *, clip: float
    ) -> RnnGradients:
        """See `RnnBackend.backward`."""
        if _has_kernels(inputs):
            from constrint.kernels.rnn.alternating.graphs import graph_backward

            with torch.cuda.device(inputs.wx.device):
                return graph_backward(inputs, saved, upstream, clip=clip)
        return loop_backward(inputs, saved, upstream, clip=clip)

    def plan_forward(self, *arguments: Any) -> Sequence[Launch]:
        """There is no plan: a loop of PyTorch calls, or a graph of its own."""
        raise NotPlannedError("the back-end 'alternating' is no list of launches")

    def plan_backward(self, *arguments: Any, **options: Any) -> Sequence[Launch]:
        """As `plan_forward`."""
        raise NotPlannedError("the back-end 'alternating' is no list of launches")


def _has_kernels(inputs: RnnInputs) -> bool:
    """Whether the pointwise steps can be kernels: on a GPU, with Triton, in at most 32 bits."""
    return inputs.wx.is_cuda and inputs.wx.element_size() <= 4 and _has_triton()


@lru_cache(maxsize=1)
def _has_triton() -> bool:
    return find_spec("triton") is not None
