"""Device functions that the Triton GEMM kernels share: order of blocks, split-K hand-over, epilogue.

Needs triton; nothing imports it until a kernel is compiled.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def deal_chunks(block, num_tiles, num_xcds: tl.constexpr, xcd_chunk: tl.constexpr):
    """Re-map a linear block index so that each XCD, to which blocks are dealt round robin, gets runs of tiles.

    Whole cycles give every XCD `xcd_chunk` neighbouring tiles at a time; what is left over is dealt in one balanced
    run per XCD. A bijection on 0 .. num_tiles - 1.
    """
    cycle: tl.constexpr = num_xcds * xcd_chunk
    whole = num_tiles // cycle * cycle
    local = block // num_xcds
    chunked = local // xcd_chunk * cycle + block % num_xcds * xcd_chunk + local % xcd_chunk
    rest = block - whole
    per_xcd = (num_tiles - whole) // num_xcds
    extra = (num_tiles - whole) % num_xcds
    # The first `extra` XCDs get one tile more than the others.
    tail = whole + rest % num_xcds * per_xcd + tl.minimum(rest % num_xcds, extra) + rest // num_xcds
    return tl.where(block < whole, chunked, tail)


@triton.jit
def tile_coordinates(block, num_tiles_m, num_tiles_n, group_m, num_xcds: tl.constexpr, xcd_chunk: tl.constexpr):
    """Map a linear block index to (tile row, tile column).

    `group_m` rows of tiles are walked column by column, so that concurrent blocks share operands in the L2; with
    `xcd_chunk` > 0 blocks that sit on one XCD work on neighbouring tiles.
    """
    if xcd_chunk > 0:
        block = deal_chunks(block, num_tiles_m * num_tiles_n, num_xcds, xcd_chunk)
    tiles_per_group = group_m * num_tiles_n
    group = block // tiles_per_group
    first = group * group_m
    rows = tl.minimum(num_tiles_m - first, group_m)
    within = block % tiles_per_group
    return first + within % rows, within // rows


@triton.jit
def activate(x, activation: tl.constexpr):
    """Apply `activation`; NaN stays NaN, as in torch."""
    if activation == "relu":
        return tl.where(x < 0, 0.0, x)
    elif activation == "gelu":  # a constexpr chain: only the taken branch is compiled
        return 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476))
    elif activation == "silu":
        return x / (1.0 + tl.exp(-x))
    return x


@triton.jit
def finish(
    acc,  # (rows, columns) in 32 bits
    rows, columns, m, n,
    bias_ptr,  # (N,) or None
    source_ptr,  # (M, N) or None
    stride_sm, stride_sn, alpha, beta,
    has_alpha: tl.constexpr, activation: tl.constexpr, out_dtype: tl.constexpr,
):  # fmt: skip
    """activation(alpha * acc + bias + beta * source) in the output's type."""
    if has_alpha:
        acc = acc.to(tl.float32) * alpha
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + columns, mask=columns < n, other=0.0).to(tl.float32)
        acc = acc.to(tl.float32) + bias[None, :]
    if source_ptr is not None:
        offsets = rows.to(tl.int64)[:, None] * stride_sm + columns.to(tl.int64)[None, :] * stride_sn
        inside = (rows[:, None] < m) & (columns[None, :] < n)
        acc = acc.to(tl.float32) + beta * tl.load(source_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    if activation is not None:
        acc = activate(acc.to(tl.float32), activation)
    return acc.to(out_dtype)


@triton.jit
def store_partial(acc, slot, tile_m: tl.constexpr, tile_n: tl.constexpr):
    """Store a partial sum of (tile_m, tile_n), row by row."""
    offsets = tl.arange(0, tile_m)[:, None] * tile_n + tl.arange(0, tile_n)[None, :]
    tl.store(slot + offsets, acc)


@triton.jit
def hand_over(
    acc,  # (tile_m, tile_n) in 32 bits
    tile, split,
    workspace_ptr,  # (tiles, split_k, tile_m * (tile_n + rest_n))
    counters_ptr,  # (tiles,) of int32, all zero before and after
    tile_m: tl.constexpr, tile_n: tl.constexpr, split_k: tl.constexpr,
    rest=None,  # (tile_m, rest_n), stored behind `acc`, or None
    rest_n: tl.constexpr = 0,
):  # fmt: skip
    """Store a partial sum and say whether this block came last, and so has to finish the tile."""
    slot = workspace_ptr + (tile.to(tl.int64) * split_k + split) * (tile_m * (tile_n + rest_n))
    store_partial(acc, slot, tile_m, tile_n)
    if rest_n > 0:
        store_partial(rest, slot + tile_m * tile_n, tile_m, rest_n)
    # All threads' stores come before the one thread's release.
    tl.debug_barrier()
    arrived = tl.atomic_add(counters_ptr + tile, 1, sem="acq_rel", scope="gpu")
    return arrived == split_k - 1


@triton.jit
def sum_partials(
    tile, workspace_ptr,
    tile_m: tl.constexpr, tile_n: tl.constexpr, split_k: tl.constexpr,
    stride: tl.constexpr,  # elements from one split's partial sum to the next one's
):  # fmt: skip
    """Sum a tile's partial sums, always in the same order."""
    offsets = tl.arange(0, tile_m)[:, None] * tile_n + tl.arange(0, tile_n)[None, :]
    first = workspace_ptr + tile.to(tl.int64) * (split_k * stride) + offsets
    # From the L2: other SMs wrote them.
    acc = tl.load(first, cache_modifier=".cg")
    for split in range(1, split_k):
        acc += tl.load(first + split * stride, cache_modifier=".cg")
    return acc


@triton.jit
def take_over(
    tile, workspace_ptr, counters_ptr,
    tile_m: tl.constexpr, tile_n: tl.constexpr, split_k: tl.constexpr, rest_n: tl.constexpr = 0,
):  # fmt: skip
    """Sum a tile's partial sums, those of the first tile_n columns, and reset its counter for the next launch."""
    acc = sum_partials(tile, workspace_ptr, tile_m, tile_n, split_k, tile_m * (tile_n + rest_n))
    tl.store(counters_ptr + tile, 0)
    return acc
