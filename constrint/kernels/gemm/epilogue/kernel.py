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
def gelu(x, out_dtype: tl.constexpr):
    """x / 2 * (1 + erf(x / sqrt(2))) for a 16-bit type, as in `../cuda/source/epilogue.cuh`, which explains it."""
    if out_dtype == tl.bfloat16:
        m = tl.minimum(x, 6.3, propagate_nan=tl.PropagateNan.ALL)
        t = tl.abs(m)
        p = 0.005356020759791136 - 0.00027522296295501292 * t
        p = -0.46656537055969240 + t * (-0.04654315114021301 + t * p)
        p = -1.0002137422561646 + t * (-1.1479676961898804 + t * p)
    else:
        m = tl.minimum(x, 5.9, propagate_nan=tl.PropagateNan.ALL)
        t = tl.abs(m)
        p = 5.136106119607575e-05 - 1.1644308415270643e-06 * t
        p = 0.008332228288054466 + t * (-0.00086984626250341530 + t * p)
        p = -0.45863792300224304 + t * (-0.053703971207141876 + t * p)
        p = -0.99999696016311650 + t * (-1.1512082815170288 + t * p)
    return tl.maximum(x, 0.0) - t * tl.exp2(p)


@triton.jit
def times_sigmoid(x, m, exponent, out_dtype: tl.constexpr):
    """x times a sigmoid for a 16-bit type, as in `../cuda/source/epilogue.cuh`, which explains it."""
    e = tl.exp2(exponent)
    if out_dtype == tl.bfloat16:
        q = 0.4179317057132721 - 0.10448237508535385 * e
        q = 0.9534180760383606 + e * (-0.7705665230751038 + e * q)
        q = 0.9999489784240723 + e * (-0.9962753653526306 + e * q)
    else:
        q = 0.2457161247730255 - 0.049117110669612885 * e
        q = 0.8362321257591248 + e * (-0.5654387474060059 + e * q)
        q = 0.9957388043403625 + e * (-0.9633268117904663 + e * q)
        q = 0.9999984502792358 + e * (-0.9998036026954651 + e * q)
    return tl.maximum(x, 0.0) - tl.abs(m) * (e * q)


@triton.jit
def tanh(x):
    """Tanh in fp32: a series near 0, where the difference of exponentials would lose its digits."""
    t = tl.abs(x)
    e = tl.exp2(-2.8853900817779268 * t)
    far = (1.0 - e) / (1.0 + e)
    s = t * t
    near = t * (1.0 + s * (-1 / 3 + s * (2 / 15 + s * (-17 / 315 + s * (62 / 2835)))))
    y = tl.where(t < 0.35, near, far)
    return tl.where(x < 0, -y, y)


@triton.jit
def activate(x, activation: tl.constexpr, out_dtype: tl.constexpr):
    """Apply `activation` of `activations.py` to fp32, to the accuracy of `out_dtype`; NaN stays NaN, as in torch."""
    is_narrow: tl.constexpr = out_dtype == tl.bfloat16 or out_dtype == tl.float16
    if activation == "relu":  # a constexpr chain: only the taken branch is compiled
        return tl.where(x < 0, 0.0, x)
    elif activation == "relu2":
        x = tl.where(x < 0, 0.0, x)
        return x * x
    elif activation == "sigmoid":
        return 1.0 / (1.0 + tl.exp2(-1.4426950408889634 * x))
    elif activation == "tanh":
        return tanh(x)
    elif is_narrow:
        if activation == "gelu":
            return gelu(x, out_dtype)
        m = tl.minimum(x, 100.0, propagate_nan=tl.PropagateNan.ALL)
        t = tl.abs(m)
        if activation == "silu":
            return times_sigmoid(x, m, -1.4426950408889634 * t, out_dtype)
        elif activation == "quick_gelu":
            return times_sigmoid(x, m, -2.4554669595930157 * t, out_dtype)
        elif activation == "gelu_tanh":
            return times_sigmoid(x, m, t * (-2.302208198144325 - 0.1029432395800235 * (t * t)), out_dtype)
    elif activation == "gelu":
        return 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476))
    elif activation == "silu":
        return x / (1.0 + tl.exp(-x))
    elif activation == "quick_gelu":
        return x / (1.0 + tl.exp(-1.702 * x))
    elif activation == "gelu_tanh":
        return 0.5 * x * (1.0 + tanh(x * (0.7978845608028654 + 0.035677408136300125 * (x * x))))
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
        acc = activate(acc.to(tl.float32), activation, out_dtype)
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
