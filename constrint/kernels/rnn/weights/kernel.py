"""The gradients of r and b from those of the slots: sums over all steps of all sequences, in parts, and their sum.

A program of the first kernel has some steps of one head, and the rows of several gates at once, so that it reads states
once for all of them. It reads h one step earlier itself: nothing has to be shifted before. The second kernel adds the
parts in their order, so that results do not change from run to run. They are no part of a kernel that is tuned. They
need triton; nothing imports them until they are built.
"""

from __future__ import annotations

import triton
import triton.language as tl

#: Columns of the least matrix product.
COLUMNS = tl.constexpr(16)


@triton.jit(do_not_specialize=["batch", "time", "part_rows", "num_parts"])
def parts_kernel(
    slots,  # (B, T, slots, N, D)
    h,  # (B, T, N, D) after each step
    initial,  # (B, N, D) fp32, or None
    parts,  # (parts, G * N * D * D + G * N * D) fp32, written: sums for r, and behind them those for b
    batch, time, part_rows, num_parts,
    heads: tl.constexpr, dim: tl.constexpr, num_gates: tl.constexpr, num_slots: tl.constexpr, has_bias: tl.constexpr,
    tile_m: tl.constexpr, tile_n: tl.constexpr, tile_k: tl.constexpr,
):  # fmt: skip
    """Sum over `part_rows` steps, for `tile_m` units of gates and `tile_n` of h; grid (tiles, N, parts).

    A step of a sequence is a row here: B * T of them. `part_rows` is a multiple of `tile_k`.
    """
    row_slots: tl.constexpr = num_slots * heads * dim
    row_h: tl.constexpr = heads * dim
    gate_weights: tl.constexpr = heads * dim * dim
    tiles_n: tl.constexpr = (dim + tile_n - 1) // tile_n
    head, part = tl.program_id(1), tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) // tiles_n * tile_m + tl.arange(0, tile_m)
    n = tl.program_id(0) % tiles_n * tile_n + tl.arange(0, tile_n)
    k = tl.arange(0, tile_k)
    gate, unit = m // dim, m % dim
    # Where a cell keeps the parts of its last gate apart, the recurrent part is the last slot.
    slot = tl.where(gate == num_gates - 1, num_slots - 1, gate)
    is_unit, is_state = m < num_gates * dim, n < dim
    of_slots = head * dim + slot * row_h + unit
    of_h = head * dim + n
    num_rows = batch * time
    first = part * part_rows
    rows = tl.minimum(num_rows - first, part_rows).to(tl.int32)
    slots_here, h_here = slots + first * row_slots, h + (first - 1) * row_h
    step = (first % time).to(tl.int32)
    sums = tl.zeros((tile_m, tile_n), dtype=tl.float32)
    # The matrix unit sums for b, too: times ones, in the fewest columns that an instruction takes.
    bias = tl.zeros((tile_m, COLUMNS), dtype=tl.float32)
    ones = tl.full((tile_k, COLUMNS), 1.0, dtype=slots.dtype.element_ty)
    for start in range(0, rows, tile_k):
        inside = start + k < rows
        has_h = inside & ((step + start + k) % time != 0)
        has_a, has_b = is_unit[:, None] & inside[None, :], has_h[:, None] & is_state[None, :]
        a = tl.load(slots_here + (of_slots[:, None] + k[None, :] * row_slots), mask=has_a, other=0.0)
        b = tl.load(h_here + (k[:, None] * row_h + of_h[None, :]), mask=has_b, other=0.0)
        sums = tl.dot(a, b, sums)
        if has_bias:
            bias = tl.dot(a, ones, bias)
        slots_here += tile_k * row_slots
        h_here += tile_k * row_h
    if initial is not None:  # what enters the first steps of the sequences, shared among the parts
        for start in tl.range(tl.program_id(2) * tile_k, batch, num_parts * tile_k, num_stages=1):
            sequence = start + k
            inside = sequence < batch
            at = sequence.to(tl.int64)
            has_a, has_b = is_unit[:, None] & inside[None, :], inside[:, None] & is_state[None, :]
            a = tl.load(slots + (of_slots[:, None] + (at * time * row_slots)[None, :]), mask=has_a, other=0.0)
            b = tl.load(initial + ((at * row_h)[:, None] + of_h[None, :]), mask=has_b, other=0.0)
            sums = tl.dot(a, b.to(a.dtype), sums)
    parts += part * (num_gates * (gate_weights + row_h))
    of_weights = gate * gate_weights + head * dim * dim + unit * dim
    tl.store(parts + (of_weights[:, None] + n[None, :]), sums, mask=is_unit[:, None] & is_state[None, :])
    if has_bias:
        column = tl.where(tl.arange(0, COLUMNS)[None, :] == 0, bias, 0.0)
        of_bias = num_gates * gate_weights + gate * row_h + head * dim + unit
        stored = tl.where(tl.program_id(0) % tiles_n == 0, num_gates * dim, 0)  # by one of the tiles with these units
        tl.store(parts + of_bias, tl.sum(column, axis=1), mask=m < stored)


@triton.jit(do_not_specialize=["num_parts"])
def sum_kernel(
    parts,  # (parts, weights + biases) fp32
    r,  # (weights,), written
    b,  # (biases,), written, or None
    num_parts,
    num_weights: tl.constexpr, num_biases: tl.constexpr, at_once: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    """Add the parts of `tile` elements, `at_once` of them at a time; grid (elements / tile)."""
    at = tl.program_id(0) * tile + tl.arange(0, tile)
    is_one = at < num_weights + num_biases
    total = tl.zeros((tile,), dtype=tl.float32)
    for first in range(0, num_parts, at_once):
        part = first + tl.arange(0, at_once)
        of_part = part.to(tl.int64) * (num_weights + num_biases)
        mask = (part < num_parts)[:, None] & is_one[None, :]
        total += tl.sum(tl.load(parts + (of_part[:, None] + at[None, :]), mask=mask, other=0.0), axis=0)
    tl.store(r + at, total.to(r.dtype.element_ty), mask=at < num_weights)
    if b is not None:
        tl.store(b + (at - num_weights), total.to(b.dtype.element_ty), mask=is_one & (at >= num_weights))
