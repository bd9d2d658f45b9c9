"""Softmax: a block goes over its row twice, and keeps a running maximum and sum in between."""

import triton
import triton.language as tl


@triton.jit
def softmax_tiles(y, x, n, x_row, x_column, tile_n: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, tile_n)
    largest = tl.full((tile_n,), float("-inf"), tl.float32)
    total = tl.zeros((tile_n,), tl.float32)
    for start in range(0, n, tile_n):
        at = start + columns
        values = tl.load(x + row * x_row + at * x_column, mask=at < n, other=float("-inf")).to(tl.float32)
        now = tl.maximum(largest, values)
        # A column that has seen nothing yet has no difference of infinities.
        shift = tl.where(now == float("-inf"), 0.0, now)
        total = total * tl.exp(largest - shift) + tl.exp(values - shift)
        largest = now
    row_largest = tl.max(largest, axis=0)
    row_total = tl.sum(total * tl.exp(largest - row_largest), axis=0)
    for start in range(0, n, tile_n):
        at = start + columns
        values = tl.load(x + row * x_row + at * x_column, mask=at < n, other=float("-inf")).to(tl.float32)
        tl.store(y + row * n + at, tl.exp(values - row_largest) / row_total, mask=at < n)


def run(y, x):
    m, n = x.shape
    softmax_tiles[(m,)](y, x, n, x.stride(0), x.stride(1), 1024, num_warps=4)
