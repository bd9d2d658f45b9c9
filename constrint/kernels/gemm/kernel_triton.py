"""The tiled GEMM in Triton with pointer loads: one kernel for plain, split-K and persistent grids.

Its parameters are the ones of `spec.py`; the resources that spec predicts are those of this kernel. It needs
triton; nothing imports it until a kernel is compiled.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile_coordinates(
    block,
    num_tiles_m,
    num_tiles_n,
    group_m: tl.constexpr,
    num_xcds: tl.constexpr,
    xcd_remap: tl.constexpr,
):
    """Map a linear block index to (tile row, tile column).

    With `xcd_remap`, blocks that the hardware deals to one XCD (round robin) work on neighbouring tiles; `group_m`
    rows of tiles are then walked column by column, so that concurrent blocks share operands in the L2.
    """
    num_tiles = num_tiles_m * num_tiles_n
    if xcd_remap:
        per_xcd = num_tiles // num_xcds
        extra = num_tiles % num_xcds
        xcd = block % num_xcds
        # The first `extra` XCDs get one tile more than the others.
        block = xcd * per_xcd + tl.minimum(xcd, extra) + block // num_xcds
    tiles_per_group = group_m * num_tiles_n
    group = block // tiles_per_group
    first = group * group_m
    rows = tl.minimum(num_tiles_m - first, group_m)
    within = block % tiles_per_group
    return first + within % rows, within // rows


@triton.jit
def gemm_tile(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cs,
    stride_cm,
    stride_cn,
    tile_row,
    tile_column,
    split,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    tile_k: tl.constexpr,
    split_k: tl.constexpr,
    even_k: tl.constexpr,
    input_precision: tl.constexpr,
    acc_dtype: tl.constexpr,
):
    """Compute one output tile, or one K-slice of it, and store it."""
    rows = tile_row * tile_m + tl.arange(0, tile_m)
    columns = tile_column * tile_n + tl.arange(0, tile_n)
    # Rows beyond the edge read valid memory again; only their store is masked.
    rows_a = (rows % m).to(tl.int64)
    columns_b = (columns % n).to(tl.int64)
    depth = tl.arange(0, tile_k)
    a_ptrs = a_ptr + rows_a[:, None] * stride_am + (split * tile_k + depth)[None, :] * stride_ak
    b_ptrs = b_ptr + (split * tile_k + depth)[:, None] * stride_bk + columns_b[None, :] * stride_bn
    accumulator = tl.zeros((tile_m, tile_n), dtype=acc_dtype)
    for step in range(tl.cdiv(k - split * tile_k, tile_k * split_k)):
        if even_k:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            left = k - (step * split_k + split) * tile_k
            a = tl.load(a_ptrs, mask=depth[None, :] < left, other=0)
            b = tl.load(b_ptrs, mask=depth[:, None] < left, other=0)
        accumulator = tl.dot(a, b, accumulator, input_precision=input_precision, out_dtype=acc_dtype)
        a_ptrs += tile_k * split_k * stride_ak
        b_ptrs += tile_k * split_k * stride_bk
    c_ptrs = (
        c_ptr + split.to(tl.int64) * stride_cs + rows.to(tl.int64)[:, None] * stride_cm + columns[None, :] * stride_cn
    )
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c_ptrs, accumulator.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def gemm_kernel(
    a_ptr,  # (M, K)
    b_ptr,  # (K, N)
    c_ptr,  # (M, N); with split_k > 1 partial sums (split_k, M, N)
    m,
    n,
    k,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cs,
    stride_cm,
    stride_cn,
    num_blocks,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    tile_k: tl.constexpr,
    group_m: tl.constexpr,
    split_k: tl.constexpr,
    persistent: tl.constexpr,
    num_xcds: tl.constexpr,
    xcd_remap: tl.constexpr,
    even_k: tl.constexpr,
    input_precision: tl.constexpr,
    acc_dtype: tl.constexpr,
):
    """C = A @ B on a grid of (tiles * split_k) blocks, or of `num_blocks` persistent ones."""
    num_tiles_m = tl.cdiv(m, tile_m)
    num_tiles_n = tl.cdiv(n, tile_n)
    num_tiles = num_tiles_m * num_tiles_n
    block = tl.program_id(0)
    if persistent:
        for tile in tl.range(block, num_tiles, num_blocks, flatten=False):
            row, column = tile_coordinates(tile, num_tiles_m, num_tiles_n, group_m, num_xcds, xcd_remap)
            gemm_tile(
                a_ptr, b_ptr, c_ptr, m, n, k,
                stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
                row, column, block * 0, tile_m, tile_n, tile_k, 1, even_k, input_precision, acc_dtype,
            )  # fmt: skip
    else:
        split = block // num_tiles
        row, column = tile_coordinates(block % num_tiles, num_tiles_m, num_tiles_n, group_m, num_xcds, xcd_remap)
        gemm_tile(
            a_ptr, b_ptr, c_ptr, m, n, k, stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
            row, column, split, tile_m, tile_n, tile_k, split_k, even_k, input_precision, acc_dtype,
        )  # fmt: skip
