"""AXPY: a block takes a tile of 1024 elements."""

import triton
import triton.language as tl


@triton.jit
def add(z, alpha, x, y, n, x_step, y_step, tile: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    inside = at < n
    total = tl.load(alpha) * tl.load(x + at * x_step, mask=inside) + tl.load(y + at * y_step, mask=inside)
    tl.store(z + at, total, mask=inside)


def run(z, alpha, x, y):
    n = x.shape[0]
    add[(triton.cdiv(n, 1024),)](z, alpha, x, y, n, x.stride(0), y.stride(0), 1024)
