"""The `alternating` back-end: per step one matrix product and one pointwise step; any head dimension, any device."""

from __future__ import annotations

from constrint.flashrnn.backends.loop import loop_backward, loop_forward
from constrint.kernels.rnn.op import RnnGradients, RnnInputs, RnnSaved, RnnUpstream


class AlternatingBackend:
    """A loop of PyTorch calls; on a GPU with Triton a CUDA graph of products and fused pointwise kernels."""

    name = "alternating"

    def forward(self, inputs: RnnInputs, *, save_gates: bool) -> RnnSaved:
        """See `RnnBackend.forward`."""
        return loop_forward(inputs, save_gates=save_gates)

    def backward(
        self,
        inputs: RnnInputs,
        saved: RnnSaved,
        upstream: RnnUpstream,
        *,
        clip: float,
    ) -> RnnGradients:
        """See `RnnBackend.backward`."""
        return loop_backward(inputs, saved, upstream, clip=clip)
