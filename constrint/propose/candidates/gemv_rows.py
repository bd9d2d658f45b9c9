"""GEMV: a block sums one row."""

import triton
import triton.language as tl


@triton.jit
def rows(y, a, x, m, n, a_row, a_column, x_step, tile_m: tl.constexpr, tile_n: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * tile_m + tl.arange(0, tile_m)
    total = tl.zeros((tile_m, tile_n), tl.float32)
    for start in range(0, n, tile_n):
        column = start + tl.arange(0, tile_n).to(tl.int64)
        inside = (row < m)[:, None] & (column < n)[None, :]
        block = tl.load(a + row[:, None] * a_row + column[None, :] * a_column, mask=inside, other=0.0)
        total += block * tl.load(x + column * x_step, mask=column < n, other=0.0)[None, :]
    tl.store(y + row, tl.sum(total, axis=1), mask=row < m)


def run(y, a, x):
    m, n = a.shape
    rows[(m,)](y, a, x, m, n, a.stride(0), a.stride(1), x.stride(0), 1, 2048)
