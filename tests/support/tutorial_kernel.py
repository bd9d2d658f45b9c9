"""A matrix product as Triton's third tutorial teaches it, with its names; neither it nor its rules are ours.

It walks tiles of C in groups of rows, masks the rest of K, and accumulates in fp32.
"""
# ruff: noqa: N803

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr,
):  # fmt: skip
    """C (M, N) = A (M, K) @ B (K, N) in fp16; the grid has one dimension."""
    block = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_SIZE_M), tl.cdiv(N, BLOCK_SIZE_N)
    first = block // (GROUP_SIZE_M * tiles_n) * GROUP_SIZE_M
    rows_of_group = min(tiles_m - first, GROUP_SIZE_M)
    within = block % (GROUP_SIZE_M * tiles_n)
    tile_m, tile_n = first + within % rows_of_group, within // rows_of_group
    rows = (tile_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)) % M
    columns = (tile_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)) % N
    depth = tl.arange(0, BLOCK_SIZE_K)
    a_tile = a_ptr + rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_tile = b_ptr + depth[:, None] * stride_bk + columns[None, :] * stride_bn
    sums = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_SIZE_K)):
        a = tl.load(a_tile, mask=depth[None, :] < K - step * BLOCK_SIZE_K, other=0.0)
        b = tl.load(b_tile, mask=depth[:, None] < K - step * BLOCK_SIZE_K, other=0.0)
        sums = tl.dot(a, b, sums)
        a_tile += BLOCK_SIZE_K * stride_ak
        b_tile += BLOCK_SIZE_K * stride_bk
    out_rows = tile_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    out_columns = tile_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    c_tile = c_ptr + stride_cm * out_rows[:, None] + stride_cn * out_columns[None, :]
    tl.store(c_tile, sums.to(tl.float16), mask=(out_rows[:, None] < M) & (out_columns[None, :] < N))
