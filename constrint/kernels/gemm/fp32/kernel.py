"""Write the operand of wgmma's columns as three segments of bf16 along K, whose sum it is.

Needs triton; nothing imports it until a kernel is compiled.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def in_three(x):
    """The three parts of fp32 numbers, which hold 24 bits together.

    Numbers that round to infinity are cut off instead. Infinities and NaN have no other parts.
    """
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    cut = (bits & -65536).to(tl.float32, bitcast=True)
    is_finite = magnitude < 0x7F800000
    rounded = x.to(tl.bfloat16)
    high = tl.where(magnitude >= 0x7F7F8000, cut.to(tl.bfloat16), rounded)
    high = tl.where(magnitude > 0x7F800000, rounded, high)
    rest = tl.where(is_finite, x - high.to(tl.float32), 0.0)
    middle = rest.to(tl.bfloat16)
    low = (rest - middle.to(tl.float32)).to(tl.bfloat16)
    return high, middle, low


@triton.jit
def split_columns_kernel(
    source_ptr,  # (columns, K) fp32, any strides
    target_ptr,  # (columns, 3 * padded) bf16: first, second and third parts
    columns, depth, stride_column, stride_k, padded,
    in_fours: tl.constexpr, tile_columns: tl.constexpr, tile_k: tl.constexpr,
):  # fmt: skip
    """Write the three parts; grid (tiles of columns and depth,).

    With `in_fours` the places 2 j, 2 j + 1, 2 j + 8 and 2 j + 9 of sixteen have the numbers 4 j to 4 j + 3: that is how
    the GEMM has read the rows.
    """
    blocks_deep = tl.cdiv(padded, tile_k)
    block = tl.program_id(0)
    column = ((block // blocks_deep) * tile_columns + tl.arange(0, tile_columns)).to(tl.int64)
    place = (block % blocks_deep) * tile_k + tl.arange(0, tile_k)
    k = place
    if in_fours:
        within = place % 16
        # Not `within % 2`: Triton 3.6 takes its sum with others for even numbers, and reads two where one is aligned.
        k = place - within + within % 8 // 2 * 4 + (within & 1) + within // 8 * 2
    place, k = place.to(tl.int64), k.to(tl.int64)
    is_column = column[:, None] < columns
    offsets = column[:, None] * stride_column + k[None, :] * stride_k
    x = tl.load(source_ptr + offsets, mask=is_column & (k[None, :] < depth), other=0.0)
    high, middle, low = in_three(x)
    to = target_ptr + column[:, None] * (3 * padded) + place[None, :]
    is_inside = is_column & (place[None, :] < padded)
    tl.store(to, high, mask=is_inside)
    tl.store(to + padded, middle, mask=is_inside)
    tl.store(to + 2 * padded, low, mask=is_inside)
