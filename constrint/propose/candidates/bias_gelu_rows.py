"""Bias and GELU: a block takes several rows of a tile of columns, whose bias it reads once."""

import triton
import triton.language as tl


@triton.jit
def bias_gelu_rows(y, x, bias, m, n, x_row, x_column, b_step, tile_m: tl.constexpr, tile_n: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * tile_m + tl.arange(0, tile_m)[:, None]
    columns = tl.program_id(1) * tile_n + tl.arange(0, tile_n)[None, :]
    inside = (rows < m) & (columns < n)
    b = tl.load(bias + columns * b_step, mask=columns < n).to(tl.float32)
    v = tl.load(x + rows * x_row + columns * x_column, mask=inside).to(tl.float32) + b
    tl.store(y + rows * n + columns, v * (0.5 + 0.5 * tl.erf(v * 0.7071067811865476)), mask=inside)


def run(y, x, bias):
    m, n = x.shape
    tile_m, tile_n = 4, 512
    grid = (triton.cdiv(m, tile_m), triton.cdiv(n, tile_n))
    bias_gelu_rows[grid](y, x, bias, m, n, x.stride(0), x.stride(1), bias.stride(0), tile_m, tile_n)
