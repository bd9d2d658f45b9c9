"""A small matrix product in Triton, as a user has one: what exported configurations are used with."""

# ruff: noqa: N803  Triton's tutorials write constants so

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):  # fmt: skip
    blocks_m, blocks_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    place = tl.program_id(0)
    group = place // (GROUP_M * blocks_n)
    rows_of_group = min(blocks_m - group * GROUP_M, GROUP_M)
    at_m = group * GROUP_M + place % rows_of_group
    at_n = place % (GROUP_M * blocks_n) // rows_of_group
    rows = (at_m * BLOCK_M + tl.arange(0, BLOCK_M)) % m
    columns = (at_n * BLOCK_N + tl.arange(0, BLOCK_N)) % n
    depth = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        a = tl.load(a_ptr + rows[:, None] * k + (start + depth)[None, :])
        b = tl.load(b_ptr + (start + depth)[:, None] * n + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16))
