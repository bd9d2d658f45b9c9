"""An implementation of the forward pass alone: the backward pass of another one goes with it.

What a forward pass leaves (`RnnSaved`) is the same whatever computed it, so any backward pass can follow. A layer that
asks for such an implementation by its name is launched forward by it and backward by the one that it names.
"""

from __future__ import annotations

from constrint.kernels.rnn.spec import RnnSpec


class ForwardSpec(RnnSpec):
    """The forward direction of a layer.

    Attributes:
        backward_by: Name of the implementation whose backward pass follows.
    """

    backward_by: str

    def uncalibrated(self) -> str:
        """Why no layer is left to it unless it is named, where its times rest on nothing measured; "" if they do."""
        return ""
