"""Copies at the edges of a sequence: the states after its last step, and the h that enters each step.

The time loop could store the last states itself, but its pointers for that cost up to 28 registers (an LSTM of 64
units, bf16, for sm_90: 124 instead of 96), and spill where it is full. It needs triton; nothing imports it until a
kernel is built.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["batch", "time"])
def ends_kernel(
    states,  # (S * B, T, N * D)
    end_h,  # (B, N * D), written
    end_rest,  # ((S - 1) * B, N * D), written; anything where there is one state
    batch, time, row_elements,
    tile: tl.constexpr,
):  # fmt: skip
    """Copy the last step of one sequence's state, `tile` elements of it; grid (S * B, elements / tile)."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = at < row_elements
    last = tl.load(states + (row * time + time - 1) * row_elements + at, mask=inside)
    if row < batch:
        tl.store(end_h + row * row_elements + at, last, mask=inside)
    else:
        tl.store(end_rest + (row - batch) * row_elements + at, last, mask=inside)


@triton.jit(do_not_specialize=["num_blocks", "time"])
def before_kernel(
    states,  # (B, T, N * D): h
    initial,  # (B, N * D) fp32, or None
    before,  # (B, T, N * D), written
    num_blocks, time, row_elements,
    tile: tl.constexpr,
):  # fmt: skip
    """Write `tile` elements of the h that enters each step; grid (B * `num_blocks`)."""
    row = (tl.program_id(0) // num_blocks).to(tl.int64)
    at = (tl.program_id(0) % num_blocks).to(tl.int64) * tile + tl.arange(0, tile)
    start = row * time * row_elements
    inside = at < time.to(tl.int64) * row_elements
    h = tl.load(states + start + at - row_elements, mask=inside & (at >= row_elements), other=0.0)
    if initial is not None:
        first = tl.load(initial + row * row_elements + at, mask=inside & (at < row_elements), other=0.0)
        h = tl.where(at < row_elements, first.to(h.dtype), h)
    tl.store(before + start + at, h, mask=inside)
