"""Small kernels to prepare launches of; needs triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, extra, out, size, step, factor, tile: tl.constexpr):
    """out[i * step] = factor * x[i * step] (+ extra[i * step])."""
    at = (tl.program_id(0) * tile + tl.arange(0, tile)) * step
    inside = at < size * step
    value = tl.load(x + at, mask=inside).to(tl.float32) * factor
    if extra is not None:
        value += tl.load(extra + at, mask=inside).to(tl.float32)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def copy_kernel(x, out, tile: tl.constexpr):
    """Copy a tile of rows through descriptors."""
    out.store([tl.program_id(0) * tile, 0], x.load([tl.program_id(0) * tile, 0]))
