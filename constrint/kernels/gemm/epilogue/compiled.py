"""The epilogue of the kernels in CUDA C++ as compile-time macros; `epilogue.cuh` reads them. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from constrint.kernels.gemm.epilogue.activations import NUMBERS

if TYPE_CHECKING:
    from constrint.kernels.gemm.traced.text import TracedEnd

#: Numbers of types in `epilogue.cuh`.
OUTPUTS = {"fp16": 0, "bf16": 1, "fp32": 2, "int32": 3}
ADDED = {"": 0, "fp16": 1, "bf16": 2, "fp32": 3, "fp64": 4, "int32": 5}
#: Sums of a thread of gemm.cuda beside which elements of the source matrix find registers in every variant.
SUMS_BESIDE_SOURCE = 128


@dataclass(frozen=True)
class CompiledEpilogue:
    """The epilogue that a kernel is compiled with, as names of types.

    Args:
        output: Type of C.
        bias, source: Types of the bias row and the source matrix; empty where there is none.
        activation: Its name, or None.
        in_boxes: Whether the TMA unit stores results: those of 16 bits, to aligned rows.
        buffers: Staging buffers of a consumer.
        traced: A user's epilogue in place of the activation, where there is one.
    """

    output: str
    bias: str = ""
    source: str = ""
    activation: str | None = None
    in_boxes: bool = False
    buffers: int = 1
    traced: TracedEnd | None = None

    @property
    def macros(self) -> dict[str, int]:
        """The macros of `epilogue.cuh`."""
        numbers = {"OUT": OUTPUTS[self.output], "ACTIVATION": NUMBERS[self.activation]}
        return numbers | {"BIAS": ADDED[self.bias], "SOURCE": ADDED[self.source]}
