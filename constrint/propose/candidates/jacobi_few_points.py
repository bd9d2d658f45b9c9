"""Jacobi: a block takes 256 points, so that a thread has few and many blocks are resident."""

import triton
import triton.language as tl


@triton.jit
def sweep(v, u, f, d, h, w, u0, u1, u2, f0, f1, f2, tile: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    i, j, k = at // (h * w), at // w % h, at % w
    there = at < d * h * w
    inner = there & (i > 0) & (i < d - 1) & (j > 0) & (j < h - 1) & (k > 0) & (k < w - 1)
    point = u + i * u0 + j * u1 + k * u2
    total = tl.load(point - u0, mask=inner, other=0.0) + tl.load(point + u0, mask=inner, other=0.0)
    total += tl.load(point - u1, mask=inner, other=0.0) + tl.load(point + u1, mask=inner, other=0.0)
    total += tl.load(point - u2, mask=inner, other=0.0) + tl.load(point + u2, mask=inner, other=0.0)
    total += tl.load(f + i * f0 + j * f1 + k * f2, mask=inner, other=0.0)
    result = tl.where(inner, total / 6, tl.load(point, mask=there, other=0.0))
    tl.store(v + at, result, mask=there)


def run(v, u, f):
    d, h, w = u.shape
    tiles = triton.cdiv(d * h * w, 256)
    sweep[(tiles,)](v, u, f, d, h, w, u.stride(0), u.stride(1), u.stride(2), f.stride(0), f.stride(1), f.stride(2), 256)
