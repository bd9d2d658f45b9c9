"""Which operands are gathered: those whose rows start at addresses from which the TMA unit does not load.

Rows whose numbers differ by eight lie a multiple of 16 bytes apart where rows are an even number of bytes apart. So the
TMA unit loads such an operand through eight maps, each of every eighth row; idle warps of the producer put lines of a
slice in order (`source/gather.cuh`). Nothing is copied in memory. No torch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from constrint.kernels.gemm.product import ROW_ALIGNMENT_BYTES, Operand, Product
from constrint.kernels.gemm.units import LINE_BYTES, needs_k_major

#: Maps of an operand that is gathered, one for each remainder of a row's number.
MAPS = 8
#: Lines of 128 bytes that are loaded as one box of each map, and put in order.
GROUP_LINES = 64
#: Rows an even number of bytes apart are a multiple of 16 apart after eight.
STEP_BYTES = ROW_ALIGNMENT_BYTES // MAPS


class Gathered(NamedTuple):
    """Which of the operands are gathered, and how both lie.

    Args:
        a, b: Whether it is loaded through eight maps.
        a_is_k_major, b_is_k_major: Whether it is contiguous along K.
    """

    a: bool
    b: bool
    a_is_k_major: bool
    b_is_k_major: bool

    @staticmethod
    def of_needs(a: bool, b: bool, a_is_k_major: bool, b_is_k_major: bool) -> Gathered:
        """Of which has to be gathered: where lines of both are rows of K, both are, and none is put in order."""
        both = (a or b) and not a_is_k_major and not b_is_k_major
        return Gathered(a or both, b or both, a_is_k_major, b_is_k_major)

    @staticmethod
    def of(product: Product) -> Gathered:
        """Of a product that the kernel computes."""
        needs = needs_gather(product.a, product.dtype), needs_gather(product.b, product.dtype)
        return Gathered.of_needs(*needs, product.a.is_k_major, product.b.is_k_major)

    @property
    def swaps(self) -> tuple[bool, bool]:
        """Whether lines of A, and of B, are put in order: not where rows of K of both are in the same other order."""
        is_reordered = self.a and self.b and not self.a_is_k_major and not self.b_is_k_major
        return self.a and not is_reordered, self.b and not is_reordered


def needs_gather(operand: Operand, dtype: str) -> bool:
    """Whether an operand that others would copy for the TMA unit is gathered."""
    lies = operand.is_k_major or not needs_k_major(dtype)
    starts = operand.step_bytes % ROW_ALIGNMENT_BYTES != 0 and operand.step_bytes % STEP_BYTES == 0
    return operand.is_copied and lies and starts and not operand.is_scattered


def operand_refusal(product: Product) -> str:
    """Why an operand cannot be loaded as it lies; empty if both can."""
    if any(one.is_copied and not needs_gather(one, product.dtype) for one in (product.a, product.b)):
        return (
            "it copies no operand: elements of a row follow each other, along K unless they have 16 bits; rows are an "
            f"even number of bytes apart, and across K no shorter than a line of {LINE_BYTES} bytes where they start "
            f"at multiples of {ROW_ALIGNMENT_BYTES}"
        )
    return ""


def starts_of(address: int, stride_bytes: int) -> list[int]:
    """Where the first row of each map begins in the 16 bytes that the map starts with, in bytes."""
    return [(address + row * stride_bytes) % ROW_ALIGNMENT_BYTES for row in range(MAPS)]


def packed(starts: list[int]) -> int:
    """The same as the kernel takes it: four bits for each map."""
    return sum(start << 4 * place for place, start in enumerate(starts))


def whole_groups(width: Any) -> Any:
    """Lines of a slice of so many rows along K: whole groups."""
    return (width + GROUP_LINES - 1) // GROUP_LINES * GROUP_LINES
