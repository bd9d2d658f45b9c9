"""An implementation of a whole layer: it takes inputs as a module gets them, and projects them itself.

`rnn` starts from projected inputs, so such an implementation is none of its own; the modules are what runs it. Its
predicted time is that of the recurrence: what the projection takes is the same for every implementation, and left out.
"""

from __future__ import annotations

from constrint.kernels.rnn.spec import RnnSpec


class LayerSpec(RnnSpec):
    """One direction (forward or backward) of a layer that projects its inputs itself."""

    @property
    def modules_alone(self) -> str:
        """What is said to who asks for it with projected inputs."""
        return (
            f"backend {self.name!r} projects its inputs itself, so it runs in the modules LSTM, GRU and RNN alone. Use "
            "'auto' with projected inputs."
        )
