"""y = alpha * A x + beta * y in Triton: every block sums a part of the columns for some rows, elements read once.

The same function serves both memory layouts: the compiler orders threads along the axis whose stride is 1. Needs
triton; nothing imports it until a kernel is compiled.
"""

# Without `from __future__ import annotations`: with it Triton would not know the types of factors by their names.

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

if TYPE_CHECKING:
    # Triton takes the name for the type of an argument; without it a factor would be rounded to fp32.
    fp64 = Any


@triton.jit
def _multiple(x, of: tl.constexpr):
    """Return x so that the compiler knows it to be a multiple of `of`."""
    return x // of * of


@triton.jit
def _products(a, x, vector: tl.constexpr, lanes: tl.constexpr, by_columns: tl.constexpr, flat_x: tl.constexpr):
    """a * x, with the elements that one thread holds side by side already summed."""
    wide = a.to(x.dtype) * (x[None, :] if flat_x else x)
    if by_columns:
        if lanes < wide.shape[1]:
            wide = tl.sum(tl.reshape(wide, [wide.shape[0], wide.shape[1] // lanes, lanes]), axis=1)
    elif vector > 1:
        wide = tl.sum(tl.reshape(wide, [wide.shape[0], wide.shape[1] // vector, vector]), axis=2)
    return wide


@triton.jit
def gemv_kernel(
    a_ptr,  # (batch, M, N), any strides
    x_ptr,  # (batch, N)
    y_ptr,  # (batch, M), or None
    out_ptr,  # (batch, M), contiguous
    partial_ptr,  # (batch, tiles, splits, tile_m) in the type of sums, or None
    counters_ptr,  # (batch * tiles,) of int32, all zero before and after, or None
    m, n, stride_am, stride_an, stride_x, stride_y, batch_a, batch_x, batch_y, alpha: "fp64", beta: "fp64",
    tile_m: tl.constexpr, tile_n: tl.constexpr, splits: tl.constexpr, stages: tl.constexpr,
    lanes: tl.constexpr,  # columns that the threads of a block read side by side, where A lies by columns
    vector: tl.constexpr,  # elements of A in one load
    x_vector: tl.constexpr,  # elements of which x's rows are multiples
    whole_vectors: tl.constexpr,  # whether A's contiguous length is a multiple of `vector`
    by_columns: tl.constexpr,  # whether A lies by columns: stride_am is 1
    flat_x: tl.constexpr,  # whether x has too few elements for the layout of A's rows
    even_m: tl.constexpr,  # whether tiles have whole rows alone
    even_n: tl.constexpr,  # whether N is a multiple of tile_n
    policy: tl.constexpr,  # of A in the caches: "evict_first", or "" for the usual one
):  # fmt: skip
    """Grid (batch * tiles * splits,); the blocks of a tile's splits are neighbours."""
    kind: tl.constexpr = tl.float64 if a_ptr.dtype.element_ty == tl.float64 else tl.float32
    block = tl.program_id(0)
    split, tile = block % splits, block // splits
    tiles = tl.cdiv(m, tile_m)
    place = (tile // tiles).to(tl.int64)
    rows = (tile % tiles) * tile_m + tl.arange(0, tile_m)
    steps = tl.cdiv(tl.cdiv(n, tile_n), splits)
    begin = split * steps * tile_n
    end = tl.minimum(begin + steps * tile_n, n)
    columns = tl.arange(0, tile_n)
    if vector > 1:
        if by_columns:
            stride_an = _multiple(stride_an, vector)
        else:
            stride_am = _multiple(stride_am, vector)
        batch_a = _multiple(batch_a, vector)
    if x_vector > 1:
        batch_x = _multiple(batch_x, x_vector)
    # A length that is a multiple makes masks that do not cut loads apart.
    if whole_vectors:
        if by_columns:
            m = _multiple(m, vector)
        else:
            n = _multiple(n, vector)
    # Rows beyond the last one: by rows they read the last one again, by columns they are masked.
    inside = rows < m
    own = rows.to(tl.int64) if by_columns else tl.minimum(rows, m - 1).to(tl.int64)
    start = begin.to(tl.int64)
    a_ptrs = a_ptr + place * batch_a + own[:, None] * stride_am + (start + columns)[None, :] * stride_an
    x_ptrs = x_ptr + place * batch_x + (start + columns) * stride_x
    if not flat_x:
        x_ptrs = x_ptrs[None, :]
    step_a, step_x = tl.full((), tile_n, tl.int64) * stride_an, tl.full((), tile_n, tl.int64) * stride_x
    width: tl.constexpr = lanes if by_columns else tile_n // vector
    acc = tl.zeros((tile_m, width), dtype=kind)
    whole = tl.maximum(end - begin, 0) // tile_n
    for _ in tl.range(0, whole, num_stages=stages):
        if even_m or not by_columns:
            a = tl.load(a_ptrs, eviction_policy=policy)
        else:
            a = tl.load(a_ptrs, mask=inside[:, None], other=0.0, eviction_policy=policy)
        acc += _products(a, tl.load(x_ptrs).to(kind), vector, lanes, by_columns, flat_x)
        a_ptrs += step_a
        x_ptrs += step_x
    if not even_n and begin + whole * tile_n < end:
        left = columns < n - begin - whole * tile_n
        mask = left[None, :] & inside[:, None] if by_columns else left[None, :]
        a = tl.load(a_ptrs, mask=mask, other=0.0, eviction_policy=policy)
        x = tl.load(x_ptrs, mask=left if flat_x else left[None, :], other=0.0).to(kind)
        acc += _products(a, x, vector, lanes, by_columns, flat_x)
    total = tl.sum(acc, axis=1)
    is_last = True
    if splits > 1:
        first = partial_ptr + tile.to(tl.int64) * (splits * tile_m) + tl.arange(0, tile_m)
        tl.store(first + split * tile_m, total)
        # All threads' stores come before the one thread's release.
        tl.debug_barrier()
        is_last = tl.atomic_add(counters_ptr + tile, 1, sem="acq_rel", scope="gpu") == splits - 1
        if is_last:
            # From the L2: other SMs wrote them. Always in the same order, whichever block came last.
            total = tl.load(first, cache_modifier=".cg")
            for other in range(1, splits):
                total += tl.load(first + other * tile_m, cache_modifier=".cg")
            tl.store(counters_ptr + tile, 0)
    if is_last:
        result = total * tl.cast(alpha, kind)
        if y_ptr is not None:
            y = tl.load(y_ptr + place * batch_y + rows.to(tl.int64) * stride_y, mask=inside, other=0.0)
            result += tl.cast(beta, kind) * y.to(kind)
        tl.store(out_ptr + place * m + rows, result.to(out_ptr.dtype.element_ty), mask=inside)
