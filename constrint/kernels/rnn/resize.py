"""The copy of a tensor into one whose rows are longer or shorter: heads are padded, and cropped, on the device.

It needs triton; nothing imports it until a kernel is built. What it copies is no part of a kernel that was tuned, so
its name does not begin as those of kernels do (`select/fingerprint.py`).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def resize_kernel(
    source,  # (A, B, C, D) with these strides and elements beside each other
    target,  # (A, B, C', D'), contiguous, written
    num_elements, b_size, c_from, c_to, d_from, d_to, a_stride, b_stride, c_stride,
    fill: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    """Copy `tile` elements of what the target has of the source, and `fill` elsewhere; grid (elements / tile)."""
    at = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    row, d = at // d_to, at % d_to
    a, b, c = row // c_to // b_size, row // c_to % b_size, row % c_to
    inside = at < num_elements
    there = inside & (c < c_from) & (d < d_from)
    values = tl.load(source + a * a_stride + b * b_stride + c * c_stride + d, mask=there, other=fill)
    tl.store(target + at, values, mask=inside)
