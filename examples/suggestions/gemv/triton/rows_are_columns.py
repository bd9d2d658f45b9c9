import triton
import triton.language as tl


@triton.jit
def rows(y, a, x, m, n, a_row, a_column, x_step, tile_n: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((tile_n,), tl.float32)
    for start in range(0, n, tile_n):
        column = start + tl.arange(0, tile_n)
        block = tl.load(a + column * a_row + row * a_column, mask=(column < n) & (column < m), other=0.0)
        total += block * tl.load(x + column * x_step, mask=column < n, other=0.0)
    tl.store(y + row, tl.sum(total, axis=0))


def run(y, a, x):
    m, n = a.shape
    rows[(m,)](y, a, x, m, n, a.stride(0), a.stride(1), x.stride(0), 256)
