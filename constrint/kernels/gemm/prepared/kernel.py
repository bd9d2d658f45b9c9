"""Write fp32 operands as bf16 segments along K, so that one bf16 product of six times the depth is their product.

Every number is the sum of three of bf16, x = high + middle + low, which hold 24 bits together. Of the nine products
those of the least terms are left out, as 2^-23 of the others: A's segments are low, high, middle, middle, high, high
and B's high, low, middle, high, middle, high, so that small terms are added up first.

Needs triton; nothing imports it until a kernel is compiled.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def in_three(x):
    """The three parts of fp32 numbers, and the first one with zeros for infinities and NaN.

    Numbers that round to infinity are cut off instead. Infinities and NaN have no other parts; only the product of
    both operands' first parts has them, where a zero beside them makes NaN as it should.
    """
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    cut = (bits & -65536).to(tl.float32, bitcast=True)
    is_finite = magnitude < 0x7F800000
    rounded = x.to(tl.bfloat16)
    high = tl.where(magnitude >= 0x7F7F8000, cut.to(tl.bfloat16), rounded)
    high = tl.where(magnitude > 0x7F800000, rounded, high)
    finite = tl.where(is_finite, high.to(tl.float32), 0.0)
    rest = tl.where(is_finite, x - finite, 0.0)
    middle = rest.to(tl.bfloat16)
    low = (rest - middle.to(tl.float32)).to(tl.bfloat16)
    return high, finite.to(tl.bfloat16), middle, low


@triton.jit
def split_tile(
    source_ptr, target_ptr, block, rows, depth, stride_row, stride_k, padded,
    is_b: tl.constexpr, tile_rows: tl.constexpr, tile_k: tl.constexpr,
):  # fmt: skip
    """Write one tile of a (rows, depth) operand into the six segments of its rows, `padded` elements each."""
    blocks_deep = tl.cdiv(padded, tile_k)
    row = ((block // blocks_deep) * tile_rows + tl.arange(0, tile_rows)).to(tl.int64)
    column = ((block % blocks_deep) * tile_k + tl.arange(0, tile_k)).to(tl.int64)
    is_row = row[:, None] < rows
    offsets = row[:, None] * stride_row + column[None, :] * stride_k
    x = tl.load(source_ptr + offsets, mask=is_row & (column[None, :] < depth), other=0.0)
    high, finite, middle, low = in_three(x)
    to = target_ptr + row[:, None] * (6 * padded) + column[None, :]
    is_inside = is_row & (column[None, :] < padded)
    tl.store(to + (padded if is_b else 0), low, mask=is_inside)
    tl.store(to + (0 if is_b else padded), finite, mask=is_inside)
    tl.store(to + 2 * padded, middle, mask=is_inside)
    tl.store(to + (4 * padded if is_b else 3 * padded), middle, mask=is_inside)
    tl.store(to + (3 * padded if is_b else 4 * padded), finite, mask=is_inside)
    tl.store(to + 5 * padded, high, mask=is_inside)


@triton.jit
def split_kernel(
    a_ptr,  # (M, K) fp32, any strides
    split_a_ptr,  # (M, 6 * padded) bf16
    b_ptr,  # (N, K): B transposed
    split_b_ptr,  # (N, 6 * padded)
    blocks_a,  # blocks that write A; the rest write B
    m, n, k, stride_am, stride_ak, stride_bn, stride_bk, padded,
    tile_rows: tl.constexpr, tile_k: tl.constexpr,
):  # fmt: skip
    """Write the segments of A and of B; grid (blocks of A and of B,)."""
    block = tl.program_id(0)
    if block < blocks_a:
        split_tile(a_ptr, split_a_ptr, block, m, k, stride_am, stride_ak, padded, False, tile_rows, tile_k)
    else:
        split_tile(b_ptr, split_b_ptr, block - blocks_a, n, k, stride_bn, stride_bk, padded, True, tile_rows, tile_k)
