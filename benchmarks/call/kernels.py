"""Small kernels with few and with many arguments, to launch."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def few_arguments(x, y, out, size, tile: tl.constexpr):
    """Add two rows."""
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    inside = at < size
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def many_arguments(
    x, y, out, p3, p4, p5, p6, p7, p8, n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11, n12, n13, n14, n15, n16, n17,
    n18, n19, n20, n21, n22, n23, n24, n25, n26, n27, n28, n29, size, tile: tl.constexpr,
):  # fmt: skip
    """Add two rows; nothing is done with the other arguments."""
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    inside = at < size
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def with_descriptors(x, y, out, tile: tl.constexpr):
    """Add two tiles through descriptors."""
    row = tl.program_id(0) * tile
    out.store([row, 0], x.load([row, 0]) + y.load([row, 0]))
