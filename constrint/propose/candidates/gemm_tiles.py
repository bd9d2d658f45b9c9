"""GEMM: a block multiplies a tile of 32 rows and columns, in full fp32."""

import triton
import triton.language as tl


@triton.jit
def tiles(c, a, b, m, n, k, a_row, a_column, b_row, b_column, size: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * size + tl.arange(0, size)
    column = tl.program_id(1).to(tl.int64) * size + tl.arange(0, size)
    total = tl.zeros((size, size), tl.float32)
    for start in range(0, k, size):
        inner = start + tl.arange(0, size).to(tl.int64)
        left = tl.load(
            a + row[:, None] * a_row + inner[None, :] * a_column,
            mask=(row < m)[:, None] & (inner < k)[None, :],
            other=0.0,
        )
        right = tl.load(
            b + inner[:, None] * b_row + column[None, :] * b_column,
            mask=(inner < k)[:, None] & (column < n)[None, :],
            other=0.0,
        )
        total = tl.dot(left, right, total, input_precision="ieee")
    tl.store(c + row[:, None] * n + column[None, :], total, mask=(row < m)[:, None] & (column < n)[None, :])


def run(c, a, b):
    (m, k), n = a.shape, b.shape[1]
    grid = (triton.cdiv(m, 32), triton.cdiv(n, 32))
    tiles[grid](c, a, b, m, n, k, a.stride(0), a.stride(1), b.stride(0), b.stride(1), 32)
