"""Layer normalisation: a block goes over its row three times, for the mean, for the variance, and to write."""

import triton
import triton.language as tl


@triton.jit
def layer_norm_tiles(y, x, weight, bias, n, x_row, x_column, w_step, b_step, tile_n: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, tile_n)
    total = tl.zeros((tile_n,), tl.float32)
    for start in range(0, n, tile_n):
        at = start + columns
        total += tl.load(x + row * x_row + at * x_column, mask=at < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    squares = tl.zeros((tile_n,), tl.float32)
    for start in range(0, n, tile_n):
        at = start + columns
        values = tl.load(x + row * x_row + at * x_column, mask=at < n, other=0.0).to(tl.float32)
        off = tl.where(at < n, values - mean, 0.0)
        squares += off * off
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n + 1e-5)
    for start in range(0, n, tile_n):
        at = start + columns
        values = tl.load(x + row * x_row + at * x_column, mask=at < n, other=0.0).to(tl.float32)
        w = tl.load(weight + at * w_step, mask=at < n).to(tl.float32)
        b = tl.load(bias + at * b_step, mask=at < n).to(tl.float32)
        tl.store(y + row * n + at, (values - mean) * scale * w + b, mask=at < n)


def run(y, x, weight, bias):
    m, n = x.shape
    strides = (x.stride(0), x.stride(1), weight.stride(0), bias.stride(0))
    layer_norm_tiles[(m,)](y, x, weight, bias, n, *strides, 1024, num_warps=4)
