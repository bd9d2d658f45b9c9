"""The back-end of the forward kernel for many sequences; the backward pass is another implementation's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from constrint.errors import UnsupportedError
from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.rnn.interface import PlannedForward, RnnInputs, RnnSaved
from constrint.kernels.rnn.padding import PaddedBackend
from constrint.kernels.rnn.wgmma import launch
from constrint.kernels.rnn.wgmma.shape import padded_head_dim
from constrint.select.first_choice import Choice
from constrint.select.spec import Launch


class WgmmaBackend(PaddedBackend):
    """Calls the kernel."""

    def padded(self, head_dim: int, dtype: torch.dtype) -> int:
        """The next multiple of a slice of weights."""
        return padded_head_dim(head_dim)

    def run_forward(self, inputs: RnnInputs, choice: Choice, *, save_gates: bool) -> RnnSaved:
        """See `PaddedBackend`."""
        return launch.forward(inputs, choice, save_gates=save_gates)

    def loop_forward(
        self, inputs: RnnInputs, start: Tensor | None, made: PlannedForward, choice: Choice, scratch: Scratch
    ) -> Sequence[Launch]:
        """See `PaddedBackend`; the kernel rounds the initial h itself."""
        return launch.planned_launches(inputs, made, choice, scratch)

    def run_backward(self, *arguments: Any, **options: Any) -> NoReturn:
        """There is none.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError("the implementation 'wgmma' has no backward pass of its own.")

    def loop_backward(self, *arguments: Any, **options: Any) -> NoReturn:
        """As `run_backward`."""
        self.run_backward()
