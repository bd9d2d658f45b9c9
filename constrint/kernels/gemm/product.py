"""One matrix product for the kernels' rules and costs: sizes, layouts of the operands in memory, the epilogue.

No torch: `operands.py` derives a `Product` from tensors, `Product.of` from a workload.

The cost of an activation, which every kernel's model adds where it counts, is the clocks in which an SM's units apply
it. A partition of an SM issues one instruction of 32 lanes a clock; its unit for special functions (ex2, rcp, tanh) has
4 lanes, so that an instruction occupies it for 8 clocks. Instructions of an element are counted in the machine code
(`epilogue/activations.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd
from typing import Any, NamedTuple

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.epilogue.activations import ACTIVATIONS
from constrint.kernels.gemm.traced.expression import Expression
from constrint.kernels.gemm.units import (
    ELEMENT_BYTES,
    LINE_BYTES,
    OUTPUT_BYTES,
    SECTOR_BYTES,
    WIDEST_BYTES,
    Aligned,
    needs_k_major,
    width_bytes,
)
from constrint.select.workload import Size, Workload

#: The TMA unit reads and stores rows that start at multiples of this many bytes.
ROW_ALIGNMENT_BYTES = 16
#: Lanes of a partition that apply an instruction in a clock, and those of its unit for special functions.
LANES, SPECIAL_LANES = 32, 4
#: Instructions of an element of 16 bits that a bias and a source matrix take where sums are finished in registers,
#: loads and conversions among them.
BIAS_INSTRUCTIONS, SOURCE_INSTRUCTIONS = 2, 4
#: Results of so many bytes are computed to the accuracy of fp32.
WIDE_BYTES = 4

SIZES = (
    Size("m", 4096, "rows of A and C"),
    Size("n", 4096, "columns of B and C"),
    Size("k", 4096, "columns of A, rows of B"),
)
OPTIONS = (
    Size("batch", 1, "products in one launch"),
    Size("transpose_a", 0, "1: A lies in memory by columns (contiguous along M)", 0, 1),
    Size("transpose_b", 0, "1: B lies in memory by columns (contiguous along K)", 0, 1),
    Size("bias", 0, "1: a row of N elements is added", 0, 1),
    Size("source", 0, "1: a matrix of M x N elements is added", 0, 1),
    Size("wide_output", 0, "1: C has 32 bits an element, whatever A and B have", 0, 1),
    Size("three_pass", 0, "1: fp32 operands (dtype tf32) are multiplied in three passes", 0, 1),
)


class Copying(NamedTuple):
    """Whether an operand is copied, and whether the copy is contiguous along K; else it keeps its order of axes."""

    is_copied: bool
    is_k_major: bool


def copying_of(row_bytes: int, *, is_k_major: bool, needs_k_major: bool, is_loadable: bool) -> Copying:
    """Whether an operand is copied, and the order of axes of the copy.

    Args:
        row_bytes: Bytes of one of its rows in memory, without the gap behind it.
        is_k_major: Whether it is contiguous along K.
        needs_k_major: Whether matrix instructions take its type along K alone.
        is_loadable: Whether the TMA unit can load it as it lies.
    """
    along_k = is_k_major or needs_k_major or _is_short(row_bytes)
    return Copying(not is_loadable or along_k != is_k_major, along_k)


def _is_short(row_bytes: int) -> bool:
    """Whether rows across K are copied along K, if need be.

    The TMA unit takes as long for a short row as for a line, and longer where rows straddle lines: on an H200 copying
    8, 24 or 48 elements of 16 bits along K first was faster, copying 16 or 32 was not.
    """
    return row_bytes < LINE_BYTES and row_bytes not in (SECTOR_BYTES, 2 * SECTOR_BYTES)


#: Why a kernel in CUDA C++ does not compute a product without `has_nvrtc`.
NEEDS_NVRTC = "it is compiled by NVRTC, which is not installed here: pip install 'constrint[cuda]'"


@dataclass(frozen=True)
class MatrixLayout:
    """Layout of A or B in memory.

    Args:
        width_bytes: Bytes of the widest aligned access to its rows: 16, 8, 4, 2 or 1.
        step_bytes: The largest number, up to a line of the L2 (128), that divides the address of every row. Example:
            rows of 2,000 bytes without gaps have a step of 16.
        is_k_major: Whether it is contiguous along K.
        is_copied: Whether it is copied for the TMA unit, which cannot load it as it is, or only slowly.
        is_copied_k_major: Whether that copy is contiguous along K, whatever the operand is.
        is_expanded: Whether elements are repeated by a stride of 0, so that a copy would be larger than the operand.
        is_scattered: Whether elements are next to each other along no axis.
        is_shared: Whether all products of a batch read this one matrix (a batch stride of 0), which the TMA unit loads
            as it lies. Kernels that do not know of it see an operand that is expanded and copied.
    """

    width_bytes: int = WIDEST_BYTES
    step_bytes: int = LINE_BYTES
    is_k_major: bool = True
    is_copied: bool = False
    is_copied_k_major: bool = False
    is_expanded: bool = False
    is_scattered: bool = False
    is_shared: bool = False

    @property
    def alone(self) -> MatrixLayout:
        """One matrix of a batch, which a kernel that knows of shared operands loads without a copy."""
        if not self.is_shared:
            return self
        return replace(self, is_copied=False, is_copied_k_major=False, is_expanded=False)

    @property
    def tma_step_bytes(self) -> int:
        """`step_bytes` of the tensor that the TMA unit loads: the rows of a copy start at whole lines."""
        return LINE_BYTES if self.is_copied else self.step_bytes

    @property
    def is_tma_k_major(self) -> bool:
        """Whether the tensor that the TMA unit loads is contiguous along K."""
        return self.is_k_major or self.is_copied_k_major


@dataclass(frozen=True)
class Product:
    """C[M, N] = activation(alpha * A[M, K] @ B[K, N] + bias + beta * source), once or in a batch.

    Args:
        m, n, k: The sizes of one product.
        dtype: Type of A and B, a key of `ELEMENT_BYTES`.
        a, b: Their layouts in memory.
        output_bytes: Bytes of one element of C.
        batch: Products in one launch.
        has_bias, has_source: Whether the end reads a row, a matrix.
        is_three_pass: Whether fp32 operands are multiplied in three tf32 passes.
        has_nvrtc: Whether there is a compiler for kernels in CUDA C++.
        no_library: Reason why torch's operators may not run it, besides sizes and layouts; empty where they may.
        no_library_end: Reason why the library does not take its epilogue without the activation, besides sizes and
            layouts; likewise.
        activation: Name of the activation of its epilogue, or the tape of a user's epilogue (`traced/expression.py`);
            empty for none.
        any_rows: Whether the kernel has to serve any number of rows; `m` is then the number to choose for.
    """

    m: int
    n: int
    k: int
    dtype: str
    a: MatrixLayout
    b: MatrixLayout
    output_bytes: int
    batch: int = 1
    has_bias: bool = False
    has_source: bool = False
    is_three_pass: bool = False
    has_nvrtc: bool = True
    no_library: str = ""
    no_library_end: str = ""
    activation: str = ""
    any_rows: bool = False

    @staticmethod
    def of(workload: Workload) -> Product:
        """The product that a workload asks for: contiguous operands, in the order of axes that its options say."""
        m, n, k = (workload.sizes[size.name] for size in SIZES)
        return _contiguous_product(m, n, k, workload.dtype, tuple(workload.options.items()))

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes by name."""
        return {"m": self.m, "n": self.n, "k": self.k}

    @property
    def aligned(self) -> Aligned:
        """The widest accesses that the rows of A, B and C allow."""
        return Aligned(self.a.width_bytes, self.b.width_bytes, width_bytes(self.n, self.output_bytes))

    @property
    def copied_bytes(self) -> int:
        """Bytes of the operands of one product that are copied before the TMA unit loads them."""
        elements = self.m * self.k * self.a.is_copied + self.k * self.n * self.b.is_copied
        return ELEMENT_BYTES[self.dtype] * elements

    @property
    def alone(self) -> Product:
        """One product of the batch."""
        return replace(self, batch=1)

    @property
    def with_shared(self) -> Product:
        """The product as a kernel sees it that loads an operand which all products share without a copy."""
        if not (self.a.is_shared or self.b.is_shared):
            return self
        return replace(self, a=self.a.alone, b=self.b.alone)

    @property
    def workload(self) -> Workload:
        """The product as a workload, which has no field for strides other than contiguous ones."""
        values = {
            "batch": self.batch,
            "transpose_a": int(not self.a.is_k_major),
            "transpose_b": int(self.b.is_k_major),
            "bias": int(self.has_bias),
            "source": int(self.has_source),
            "wide_output": int(self.output_bytes > OUTPUT_BYTES[self.dtype]),
            "three_pass": int(self.is_three_pass),
        }
        options = {option.name: values[option.name] for option in OPTIONS if values[option.name] != option.default}
        return Workload("gemm", self.sizes, self.dtype, options)


@lru_cache(maxsize=4096)
def _contiguous_product(m: int, n: int, k: int, dtype: str, options: tuple[tuple[str, int], ...]) -> Product:
    chosen = {option.name: option.default for option in OPTIONS} | dict(options)
    return Product(
        m=m,
        n=n,
        k=k,
        dtype=dtype,
        a=_contiguous(m if chosen["transpose_a"] else k, dtype, is_k_major=not chosen["transpose_a"]),
        b=_contiguous(k if chosen["transpose_b"] else n, dtype, is_k_major=bool(chosen["transpose_b"])),
        output_bytes=4 if chosen["wide_output"] else OUTPUT_BYTES[dtype],
        batch=chosen["batch"],
        has_bias=bool(chosen["bias"]),
        has_source=bool(chosen["source"]),
        is_three_pass=bool(chosen["three_pass"]),
    )


def _contiguous(row_length: int, dtype: str, *, is_k_major: bool) -> MatrixLayout:
    """An operand whose rows in memory follow each other without gaps."""
    element = ELEMENT_BYTES[dtype]
    copying = copying_of(
        row_length * element,
        is_k_major=is_k_major,
        needs_k_major=needs_k_major(dtype),
        is_loadable=row_length * element % ROW_ALIGNMENT_BYTES == 0,
    )
    return MatrixLayout(
        width_bytes=width_bytes(row_length, element),
        step_bytes=gcd(LINE_BYTES, element * row_length),
        is_k_major=is_k_major,
        is_copied=copying.is_copied,
        is_copied_k_major=copying.is_copied and copying.is_k_major,
    )


#: Widths of output tiles that are computed in two parts, since Triton's blocks are powers of two: 192 is 128 and 64.
TWO_PART_COLUMNS = (192, 384, 96)


def has_tma(gpu: GpuModel) -> bool:
    """Whether the GPU has a TMA unit that Triton's tensor descriptors use."""
    return gpu.traits.has_tensor_descriptors


def tma_refusal(gpu: GpuModel, product: Product) -> str:
    """Return why no kernel can load a product's operands through the TMA unit; empty if one can."""
    if not has_tma(gpu):
        return f"{gpu.arch.target} has no TMA unit"
    if product.a.is_expanded or product.b.is_expanded:
        return "the TMA unit would load a copy of an operand that is repeated in memory, larger than the operand"
    return ""


def rest_columns(tile_n: Any) -> Any:
    """Return the columns of a tile beyond the largest power of two in its width; 0 for a power of two.

    Triton's blocks are powers of two, so that a tile of 192 columns is computed as 128 and 64 columns, which share A's
    slices.

    Args:
        tile_n: The width: a power of two, or three times one; a number, an expression or a column of numbers.
    """
    is_threefold = (3 - tile_n % 3) // 3
    return is_threefold * (tile_n // 3)


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
