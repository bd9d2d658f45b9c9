"""The cost of an activation: clocks in which an SM's units apply it. Every kernel's model adds it where it counts.

A partition of an SM issues one instruction of 32 lanes a clock; its unit for special functions (ex2, rcp, tanh) has 4
lanes, so that an instruction occupies it for 8 clocks. Instructions of an element
are counted in the machine code (`activations.py`).
"""

from __future__ import annotations

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.epilogue.activations import ACTIVATIONS
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.traced.expression import Expression

#: Lanes of a partition that apply an instruction in a clock, and those of its unit for special functions.
LANES, SPECIAL_LANES = 32, 4
#: Instructions of an element of 16 bits that a bias and a source matrix take where sums are finished in registers,
#: loads and conversions among them.
BIAS_INSTRUCTIONS, SOURCE_INSTRUCTIONS = 2, 4
#: Results of so many bytes are computed to the accuracy of fp32.
WIDE_BYTES = 4


def activation_clk(gpu: GpuModel, product: Product) -> float:
    """Clocks in which an SM applies the product's activation, or a user's epilogue, to one element; 0 without one.

    Whether a kernel hides them behind matrix instructions is for its model to say.
    """
    if not product.activation:
        return 0.0
    activation = ACTIVATIONS.get(product.activation)
    is_wide = product.output_bytes >= WIDE_BYTES
    if activation is None:
        expression = Expression.of_text(product.activation)
        instructions, special = expression.instructions, expression.special
    else:
        instructions = activation.wide_instructions if is_wide else activation.instructions
        special = activation.wide_special if is_wide else activation.special
    return max(instructions / LANES, special / SPECIAL_LANES) / gpu.sm.num_partitions


def end_clk(gpu: GpuModel, product: Product) -> float:
    """Clocks in which an SM finishes one 16-bit result in registers: its activation, its bias, its source element."""
    added = BIAS_INSTRUCTIONS * product.has_bias + SOURCE_INSTRUCTIONS * product.has_source
    return activation_clk(gpu, product) + added / LANES / gpu.sm.num_partitions
