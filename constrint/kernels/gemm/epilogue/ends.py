"""What the kernels in CUDA C++ are compiled to do with sums: types as `epilogue.cuh` numbers them. No torch."""

from __future__ import annotations

from dataclasses import dataclass

#: Numbers of types in `epilogue.cuh`.
OUTPUTS = {"fp16": 0, "bf16": 1, "fp32": 2, "int32": 3}
ADDED = {"": 0, "fp16": 1, "bf16": 2, "fp32": 3, "fp64": 4, "int32": 5}
ACTIVATIONS = {None: 0, "relu": 1, "gelu": 2, "silu": 3}


@dataclass(frozen=True)
class Ends:
    """What a kernel is compiled to do with sums, as names of types.

    Args:
        output: Type of C.
        bias, source: Types of what is added; empty for nothing.
        activation: Its name, or None.
        in_boxes: Whether results leave through the TMA unit: sums as they are, in 16 bits, to rows of 16 bytes.
        buffers: Boxes of results that a consumer has room for.
    """

    output: str
    bias: str = ""
    source: str = ""
    activation: str | None = None
    in_boxes: bool = False
    buffers: int = 1

    @property
    def macros(self) -> dict[str, int]:
        """What `epilogue.cuh` is told."""
        numbers = {"OUT": OUTPUTS[self.output], "ACTIVATION": ACTIVATIONS[self.activation]}
        return numbers | {"BIAS": ADDED[self.bias], "SOURCE": ADDED[self.source]}
