"""The back-end of the recurrent CUDA kernels: heads are padded to multiples of 32, or of 16 in fp32.

`launch.py` has the launches.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.rnn.cuda import launch, planned
from constrint.kernels.rnn.cuda.shape import padded_head_dim
from constrint.kernels.rnn.interface import (
    PlannedBackward,
    PlannedForward,
    RnnGradients,
    RnnInputs,
    RnnSaved,
    RnnUpstream,
)
from constrint.kernels.rnn.padding import PaddedBackend
from constrint.select.first_choice import Choice
from constrint.select.spec import Launch


class CudaBackend(PaddedBackend):
    """Calls the CUDA kernels."""

    def padded(self, head_dim: int, dtype: torch.dtype) -> int:
        """The next multiple of a pair of matrix instructions."""
        return padded_head_dim(head_dim, dtype.itemsize)

    def run_forward(self, inputs: RnnInputs, choice: Choice, *, save_gates: bool) -> RnnSaved:
        """See `PaddedBackend`."""
        return launch.forward(inputs, choice, save_gates=save_gates)

    def run_backward(
        self, inputs: RnnInputs, saved: RnnSaved, upstream: RnnUpstream, choice: Choice, *, clip: float
    ) -> RnnGradients:
        """See `PaddedBackend`."""
        return launch.backward(inputs, saved, upstream, choice, clip=clip)

    def loop_forward(
        self, inputs: RnnInputs, start: Tensor | None, made: PlannedForward, choice: Choice, scratch: Scratch
    ) -> Sequence[Launch]:
        """See `PaddedBackend`; the kernels round the initial h themselves."""
        return planned.forward_launches(inputs, made, choice, scratch)

    def loop_backward(
        self, inputs: RnnInputs, made: PlannedBackward, choice: Choice, scratch: Scratch, *, clip: float, only_h: bool
    ) -> Sequence[Launch]:
        """See `PaddedBackend`."""
        return planned.backward_launches(inputs, made, choice, scratch, clip=clip, only_h=only_h)
