"""The tiled GEMM in Triton with pointer loads: one kernel for plain, split-K and persistent grids.

Its parameters are those of `spec.py`, which predicts what this kernel takes. Operands may have any strides. Triton sees
by itself only that a stride is a multiple of 16 elements; smaller multiples are hinted (`Rows.hint` of `operands.py`).
It needs triton; nothing imports it until a kernel is compiled.
"""

from __future__ import annotations

import triton
import triton.language as tl

from constrint.kernels.gemm.epilogue.kernel import finish, hand_over, take_over, tile_coordinates


@triton.jit
def known_multiple(x, of: tl.constexpr):
    """Return x so that the compiler knows it to be a multiple of `of`."""
    return x // of * of


@triton.jit
def multiply_tile(
    a_ptr, b_ptr, m, n, k, stride_am, stride_ak, stride_bk, stride_bn, rows, columns, split,
    tile_m: tl.constexpr, tile_n: tl.constexpr, tile_k: tl.constexpr, split_k: tl.constexpr, even_k: tl.constexpr,
    wide_offsets: tl.constexpr, a_is_transposed: tl.constexpr, b_is_transposed: tl.constexpr, hint_a: tl.constexpr,
    hint_b: tl.constexpr, input_precision: tl.constexpr, max_imprecise: tl.constexpr, acc_dtype: tl.constexpr,
):  # fmt: skip
    """Multiply one tile's rows of A and columns of B, over all of K or one split's slices of it."""
    k_of_a, k_of_b = k, k
    if hint_a > 1:
        if a_is_transposed:
            m, stride_ak = known_multiple(m, hint_a), known_multiple(stride_ak, hint_a)
        else:
            k_of_a, stride_am = known_multiple(k, hint_a), known_multiple(stride_am, hint_a)
    if hint_b > 1:
        if b_is_transposed:
            k_of_b, stride_bn = known_multiple(k, hint_b), known_multiple(stride_bn, hint_b)
        else:
            n, stride_bk = known_multiple(n, hint_b), known_multiple(stride_bk, hint_b)
    # Rows beyond the edge read valid memory again; only their store is masked.
    rows_a = (rows % m).to(tl.int64)
    columns_b = (columns % n).to(tl.int64)
    depth = tl.arange(0, tile_k)
    start = split * tile_k + depth
    if wide_offsets:
        start = start.to(tl.int64)
    a_ptrs = a_ptr + rows_a[:, None] * stride_am + start[None, :] * stride_ak
    b_ptrs = b_ptr + start[:, None] * stride_bk + columns_b[None, :] * stride_bn
    step_a = tile_k * split_k * stride_ak
    step_b = tile_k * split_k * stride_bk
    if wide_offsets:
        step_a = tl.full((), tile_k * split_k, tl.int64) * stride_ak
        step_b = tl.full((), tile_k * split_k, tl.int64) * stride_bk
    zero: tl.constexpr = 0 if a_ptr.dtype.element_ty.is_int() else 0.0
    accumulator = tl.zeros((tile_m, tile_n), dtype=acc_dtype)
    for step in range(tl.cdiv(k - split * tile_k, tile_k * split_k)):
        if even_k:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            done = (step * split_k + split) * tile_k
            a = tl.load(a_ptrs, mask=depth[None, :] < k_of_a - done, other=zero)
            b = tl.load(b_ptrs, mask=depth[:, None] < k_of_b - done, other=zero)
        accumulator = tl.dot(
            a, b, accumulator, input_precision=input_precision, max_num_imprecise_acc=max_imprecise, out_dtype=acc_dtype
        )
        a_ptrs += step_a
        b_ptrs += step_b
    return accumulator


@triton.jit
def compute_tile(
    a_ptr, b_ptr, c_ptr, bias_ptr, source_ptr, workspace_ptr, counters_ptr, m, n, k, stride_am, stride_ak, stride_bk,
    stride_bn, stride_cm, stride_cn, stride_sm, stride_sn, alpha, beta, tile, split, batch,
    tile_m: tl.constexpr, tile_n: tl.constexpr, tile_k: tl.constexpr, group_m,
    split_k: tl.constexpr, num_xcds: tl.constexpr, xcd_chunk: tl.constexpr, even_k: tl.constexpr,
    wide_offsets: tl.constexpr, a_is_transposed: tl.constexpr, b_is_transposed: tl.constexpr, hint_a: tl.constexpr,
    hint_b: tl.constexpr, hint_c: tl.constexpr, has_alpha: tl.constexpr, activation: tl.constexpr,
    input_precision: tl.constexpr, max_imprecise: tl.constexpr, acc_dtype: tl.constexpr,
):  # fmt: skip
    """Compute one output tile, or one K-slice of it, and store it; the last slice to arrive finishes the tile."""
    num_tiles_m = tl.cdiv(m, tile_m)
    num_tiles_n = tl.cdiv(n, tile_n)
    tile_row, tile_column = tile_coordinates(tile, num_tiles_m, num_tiles_n, group_m, num_xcds, xcd_chunk)
    rows = tile_row * tile_m + tl.arange(0, tile_m)
    columns = tile_column * tile_n + tl.arange(0, tile_n)
    acc = multiply_tile(
        a_ptr, b_ptr, m, n, k, stride_am, stride_ak, stride_bk, stride_bn, rows, columns, split, tile_m, tile_n,
        tile_k, split_k, even_k, wide_offsets, a_is_transposed, b_is_transposed, hint_a, hint_b, input_precision,
        max_imprecise, acc_dtype,
    )  # fmt: skip
    is_mine = True
    if split_k > 1:
        slot = tile + batch * (num_tiles_m * num_tiles_n)
        is_mine = hand_over(acc, slot, split, workspace_ptr, counters_ptr, tile_m, tile_n, split_k)
    if is_mine:
        if split_k > 1:
            acc = take_over(slot, workspace_ptr, counters_ptr, tile_m, tile_n, split_k)
        out = finish(
            acc, rows, columns, m, n, bias_ptr, source_ptr, stride_sm, stride_sn, alpha, beta, has_alpha, activation,
            c_ptr.dtype.element_ty,
        )  # fmt: skip
        if hint_c > 1:
            n, stride_cm = known_multiple(n, hint_c), known_multiple(stride_cm, hint_c)
        offsets = rows.to(tl.int64)[:, None] * stride_cm + columns[None, :] * stride_cn
        tl.store(c_ptr + offsets, out, mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit(do_not_specialize=["num_blocks", "group_m"])
def gemm_kernel(
    a_ptr,  # (batch, M, K)
    b_ptr,  # (batch, K, N)
    c_ptr,  # (batch, M, N)
    bias_ptr,  # (N,) or None
    source_ptr,  # (batch, M, N), added beta times, or None
    workspace_ptr,  # (batch * tiles, split_k, tile_m, tile_n) where split_k > 1
    counters_ptr,  # (batch * tiles,)
    m, n, k, stride_ab, stride_am, stride_ak, stride_bb, stride_bk, stride_bn, stride_cb, stride_cm, stride_cn,
    stride_sb, stride_sm, stride_sn, num_blocks, group_m, alpha, beta,
    tile_m: tl.constexpr, tile_n: tl.constexpr, tile_k: tl.constexpr, split_k: tl.constexpr, persistent: tl.constexpr,
    num_xcds: tl.constexpr, xcd_chunk: tl.constexpr, batched: tl.constexpr, even_k: tl.constexpr,
    wide_offsets: tl.constexpr, a_is_transposed: tl.constexpr, b_is_transposed: tl.constexpr, hint_a: tl.constexpr,
    hint_b: tl.constexpr, hint_c: tl.constexpr, has_alpha: tl.constexpr, activation: tl.constexpr,
    input_precision: tl.constexpr, max_imprecise: tl.constexpr, acc_dtype: tl.constexpr,
):  # fmt: skip
    """C = activation(alpha * A @ B + bias + beta * source); grid (tiles * split_k or `num_blocks`, batch)."""
    num_tiles_m = tl.cdiv(m, tile_m)
    num_tiles_n = tl.cdiv(n, tile_n)
    num_tiles = num_tiles_m * num_tiles_n
    block = tl.program_id(0)
    batch = 0
    if batched:
        batch = tl.program_id(1)
        if hint_a > 1:
            stride_ab = known_multiple(stride_ab, hint_a)
        if hint_b > 1:
            stride_bb = known_multiple(stride_bb, hint_b)
        if hint_c > 1:
            stride_cb = known_multiple(stride_cb, hint_c)
        a_ptr += batch.to(tl.int64) * stride_ab
        b_ptr += batch.to(tl.int64) * stride_bb
        c_ptr += batch.to(tl.int64) * stride_cb
        if source_ptr is not None:
            source_ptr += batch.to(tl.int64) * stride_sb
    if persistent:
        for tile in tl.range(block, num_tiles, num_blocks, flatten=False):
            compute_tile(
                a_ptr, b_ptr, c_ptr, bias_ptr, source_ptr, workspace_ptr, counters_ptr, m, n, k, stride_am, stride_ak,
                stride_bk, stride_bn, stride_cm, stride_cn, stride_sm, stride_sn, alpha, beta, tile, block * 0, batch,
                tile_m, tile_n, tile_k, group_m, 1, num_xcds, xcd_chunk, even_k, wide_offsets, a_is_transposed,
                b_is_transposed, hint_a, hint_b, hint_c, has_alpha, activation, input_precision, max_imprecise,
                acc_dtype,
            )  # fmt: skip
    else:
        compute_tile(
            a_ptr, b_ptr, c_ptr, bias_ptr, source_ptr, workspace_ptr, counters_ptr, m, n, k, stride_am, stride_ak,
            stride_bk, stride_bn, stride_cm, stride_cn, stride_sm, stride_sn, alpha, beta, block % num_tiles,
            block // num_tiles, batch, tile_m, tile_n, tile_k, group_m, split_k, num_xcds, xcd_chunk, even_k,
            wide_offsets, a_is_transposed, b_is_transposed, hint_a, hint_b, hint_c, has_alpha, activation,
            input_precision, max_imprecise, acc_dtype,
        )  # fmt: skip
