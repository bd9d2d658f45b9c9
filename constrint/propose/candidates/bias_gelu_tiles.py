"""Bias and GELU: a block takes a tile of columns of one row."""

import triton
import triton.language as tl


@triton.jit
def bias_gelu_tile(y, x, bias, n, x_row, x_column, b_step, tile_n: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * tile_n + tl.arange(0, tile_n)
    b = tl.load(bias + at * b_step, mask=at < n).to(tl.float32)
    v = tl.load(x + row * x_row + at * x_column, mask=at < n).to(tl.float32) + b
    tl.store(y + row * n + at, 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476)), mask=at < n)


def run(y, x, bias):
    m, n = x.shape
    tile_n = 1024
    grid = (m, triton.cdiv(n, tile_n))
    bias_gelu_tile[grid](y, x, bias, n, x.stride(0), x.stride(1), bias.stride(0), tile_n)
