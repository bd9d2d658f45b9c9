"""Which operands warps of the producer gather, line by line, and what that takes. No torch.

A line is 128 bytes of a slice. It lies in nine aligned units of 16 bytes of memory, which are copied to shared memory
as they are; `source/lines.cuh` says how they become the line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from constrint.kernels.gemm.cuda.shape import LINE_BYTES, slice_bytes
from constrint.kernels.gemm.product import Operand, Product
from constrint.kernels.gemm.units import needs_k_major

#: Lines that a warp copies and moves at a time, one for each lane, and the bytes around a line.
BLOCK_LINES, RAW_LINE_BYTES = 32, 144
#: Warps of the producer, all of which gather.
WARPS = 4


class Gathered(NamedTuple):
    """Which operands are gathered: the TMA unit loads the other one, where there is one.

    Args:
        a, b: Whether it is.
    """

    a: bool
    b: bool

    @staticmethod
    def of(product: Product) -> Gathered:
        """Of a product: whatever others copy first."""
        return Gathered(product.a.is_copied, product.b.is_copied)

    @property
    def any(self) -> bool:
        """Whether either is."""
        return self.a or self.b


def can_gather(operand: Operand, dtype: str) -> bool:
    """Whether lines of an operand can be gathered: its elements follow each other, as wgmma takes them."""
    return not operand.is_scattered and not operand.is_expanded and (operand.is_k_major or not needs_k_major(dtype))


def line_blocks(v: Mapping[str, Any], product: Product) -> Any:
    """Blocks of lines that are gathered for a slice, of both operands."""
    return block_counts(v, product.dtype, Gathered.of(product), product.a.is_k_major, product.b.is_k_major)


def block_counts(v: Mapping[str, Any], dtype: str, gathered: Gathered, a_is_k_major: bool, b_is_k_major: bool) -> Any:
    """The same of operands that are gathered and lie so."""
    number: Any = 0
    sides = (("tile_m", gathered.a, a_is_k_major), ("tile_n", gathered.b, b_is_k_major))
    for name, is_gathered, is_k_major in sides:
        if is_gathered:
            lines = slice_bytes(v[name], dtype, is_k_major=is_k_major) // LINE_BYTES
            number = number + (lines + BLOCK_LINES - 1) // BLOCK_LINES
    return number


def raw_bytes(v: Mapping[str, Any], blocks: Any) -> Any:
    """Shared memory of lines as they lie in memory, of all slices that are under way."""
    return v["raw_stages"] * blocks * (BLOCK_LINES * RAW_LINE_BYTES)
