"""SpMV: a block takes 4 rows, 128 values of each at a time, for matrices with long rows."""

import triton
import triton.language as tl


@triton.jit
def rows(y, starts, columns, values, x, m, s_step, c_step, v_step, x_step, tile_m: tl.constexpr, tile_n: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * tile_m + tl.arange(0, tile_m)
    first = tl.load(starts + row * s_step, mask=row < m, other=0)
    last = tl.load(starts + (row + 1) * s_step, mask=row < m, other=0)
    total = tl.zeros((tile_m, tile_n), tl.float32)
    longest = tl.max(last - first, axis=0)
    for start in range(0, longest, tile_n):
        at = first[:, None] + start + tl.arange(0, tile_n)[None, :]
        inside = at < last[:, None]
        column = tl.load(columns + at * c_step, mask=inside, other=0)
        value = tl.load(values + at * v_step, mask=inside, other=0.0)
        total += value * tl.load(x + column * x_step, mask=inside, other=0.0)
    tl.store(y + row, tl.sum(total, axis=1), mask=row < m)


def run(y, starts, columns, values, x):
    m = y.shape[0]
    steps = (starts.stride(0), columns.stride(0), values.stride(0), x.stride(0))
    rows[(triton.cdiv(m, 4),)](y, starts, columns, values, x, m, steps[0], steps[1], steps[2], steps[3], 4, 128)
