"""AXPY: a block takes 4096 elements, and a thread several vectors of them."""

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
    add[(triton.cdiv(n, 4096),)](z, alpha, x, y, n, x.stride(0), y.stride(0), 4096, num_warps=8)
