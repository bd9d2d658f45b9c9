"""RMS normalisation in two kernels: the first writes the scale of every row, the second applies it to tiles."""

import torch
import triton
import triton.language as tl


@triton.jit
def row_scales(scales, x, n, x_row, x_column, tile_n: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, tile_n)
    squares = tl.zeros((tile_n,), tl.float32)
    for start in range(0, n, tile_n):
        at = start + columns
        values = tl.load(x + row * x_row + at * x_column, mask=at < n, other=0.0).to(tl.float32)
        squares += values * values
    tl.store(scales + row, 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n + 1e-6))


@triton.jit
def apply_scales(y, x, weight, scales, n, x_row, x_column, w_step, tile_n: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * tile_n + tl.arange(0, tile_n)
    values = tl.load(x + row * x_row + at * x_column, mask=at < n).to(tl.float32)
    w = tl.load(weight + at * w_step, mask=at < n).to(tl.float32)
    tl.store(y + row * n + at, values * tl.load(scales + row) * w, mask=at < n)


def run(y, x, weight):
    m, n = x.shape
    scales = torch.empty((m,), dtype=torch.float32, device=x.device)
    tile_n = min(1024, triton.next_power_of_2(n))
    row_scales[(m,)](scales, x, n, x.stride(0), x.stride(1), 1024)
    grid = (m, triton.cdiv(n, tile_n))
    apply_scales[grid](y, x, weight, scales, n, x.stride(0), x.stride(1), weight.stride(0), tile_n)
