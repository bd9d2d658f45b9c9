"""The tiled GEMM in Triton with tensor descriptors: operand tiles come through the TMA unit of Hopper and later.

One kernel for plain, split-K and persistent grids. Rows of the operands must start at multiples of 16 bytes. Its
parameters are those of `spec.py`. It needs triton; nothing imports it until a kernel is compiled.

Loops are not warp-specialised: Triton 3.6 compiles `tl.range(warp_specialize=True)` for sm_90 only without descriptor
stores, and the compiled kernel hangs (128x128x64 and 128x64x64 tiles, one H200, 2026-11-21).
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from constrint.kernels.gemm.epilogue.kernel import finish, hand_over, sum_partials, take_over, tile_coordinates


@triton.jit
def load_slice(
    desc, row, column, batch, rows: tl.constexpr, columns: tl.constexpr, batched, is_transposed: tl.constexpr
):
    """Load one (rows, columns) slice of an operand, whatever its layout in memory."""
    if batched:
        if is_transposed:
            return desc.load([batch, column, row]).reshape(columns, rows).T
        else:
            return desc.load([batch, row, column]).reshape(rows, columns)
    else:
        if is_transposed:
            return desc.load([column, row]).T
        else:
            return desc.load([row, column])


@triton.jit
def store_tile(
    acc, c_desc, c_ptr, bias_ptr, source_ptr, m, n, stride_cb, stride_cm, stride_sb, stride_sm, stride_sn, alpha,
    beta, row, column, batch,
    tile_m: tl.constexpr, tile_n: tl.constexpr, epilogue_subtile: tl.constexpr, batched: tl.constexpr,
    has_alpha: tl.constexpr, activation: tl.constexpr, out_dtype: tl.constexpr,
):  # fmt: skip
    """Finish an accumulator and store it through the descriptor, or by pointers where there is none."""
    if epilogue_subtile == 2:
        half: tl.constexpr = tile_n // 2
        left, right = acc.reshape(tile_m, 2, half).permute(0, 2, 1).split()
        store_tile(
            left, c_desc, c_ptr, bias_ptr, source_ptr, m, n, stride_cb, stride_cm, stride_sb, stride_sm, stride_sn,
            alpha, beta, row, column, batch, tile_m, half, 1, batched, has_alpha, activation, out_dtype,
        )  # fmt: skip
        store_tile(
            right, c_desc, c_ptr, bias_ptr, source_ptr, m, n, stride_cb, stride_cm, stride_sb, stride_sm, stride_sn,
            alpha, beta, row, column + half, batch, tile_m, half, 1, batched, has_alpha, activation, out_dtype,
        )  # fmt: skip
    else:
        rows = row + tl.arange(0, tile_m)
        columns = column + tl.arange(0, tile_n)
        if batched and source_ptr is not None:
            source_ptr += batch.to(tl.int64) * stride_sb
        out = finish(
            acc, rows, columns, m, n, bias_ptr, source_ptr, stride_sm, stride_sn, alpha, beta, has_alpha, activation,
            out_dtype,
        )  # fmt: skip
        if c_desc is not None:
            if batched:
                c_desc.store([batch, row, column], out.reshape(1, tile_m, tile_n))
            else:
                c_desc.store([row, column], out)
        else:
            if batched:
                c_ptr += batch.to(tl.int64) * stride_cb
            offsets = rows.to(tl.int64)[:, None] * stride_cm + columns[None, :]
            tl.store(c_ptr + offsets, out, mask=(rows[:, None] < m) & (columns[None, :] < n))


# One kernel for any number of rows: nothing that it loads or stores is aligned by M.
@triton.jit(do_not_specialize=["num_blocks", "group_m", "m", "stride_cb"])
def gemm_descriptor_kernel(
    a_desc,  # (M, K) in tiles (tile_m, tile_k), or (K, M) in (tile_k, tile_m) where A is transposed; batch in front
    b_desc,  # (K, N) in tiles (tile_k, main_n), or (N, K) in (main_n, tile_k), main_n = tile_n - rest_n
    b_rest_desc,  # the same in tiles of rest_n columns; None where rest_n = 0
    c_desc,  # (M, N) in tiles (tile_m, main_n / epilogue_subtile), or None
    c_rest_desc,  # (M, N) in tiles (tile_m, rest_n), or None
    c_ptr,  # (batch, M, N)
    bias_ptr,  # (N,) or None
    source_ptr,  # (batch, M, N), added beta times, or None
    workspace_ptr,  # (batch * tiles, split_k, tile_m * tile_n) where split_k > 1
    counters_ptr,  # (batch * tiles,)
    m, n, k, stride_cb, stride_cm, stride_sb, stride_sm, stride_sn, num_blocks, group_m, alpha, beta,
    tile_m: tl.constexpr, tile_n: tl.constexpr, rest_n: tl.constexpr, tile_k: tl.constexpr, split_k: tl.constexpr,
    persistent: tl.constexpr, epilogue_subtile: tl.constexpr, batched: tl.constexpr, a_is_transposed: tl.constexpr,
    b_is_transposed: tl.constexpr, follows_copy: tl.constexpr, has_alpha: tl.constexpr, activation: tl.constexpr,
    input_precision: tl.constexpr, max_imprecise: tl.constexpr, acc_dtype: tl.constexpr,
):  # fmt: skip
    """C = activation(alpha * A @ B + bias + beta * source); grid (tiles * split_k or `num_blocks`, batch)."""
    if follows_copy:
        # Launched before the copies of the operands are complete.
        gdc_wait()
    main_n: tl.constexpr = tile_n - rest_n
    num_tiles_m = tl.cdiv(m, tile_m)
    num_tiles_n = tl.cdiv(n, tile_n)
    num_tiles = num_tiles_m * num_tiles_n
    num_steps = tl.cdiv(k, tile_k)
    tl.assume(num_steps > 0)
    block = tl.program_id(0)
    batch = tl.program_id(1)
    out_dtype: tl.constexpr = c_ptr.dtype.element_ty
    if persistent:
        # Not for tiles in two parts: Triton waits for either part's sums before the epilogue, and a second wait there
        # makes ptxas serialise every wgmma (found in the SASS).
        tl.static_assert(rest_n == 0)
        # Walked in step with `tile`, so that the epilogue does not wait for the next tile's prologue when the two
        # loops are flattened into one.
        stored = block - num_blocks
        for tile in tl.range(block, num_tiles, num_blocks, flatten=True):
            tile_row, tile_column = tile_coordinates(tile, num_tiles_m, num_tiles_n, group_m, 1, 0)
            row = tile_row * tile_m
            column = tile_column * tile_n
            acc = tl.zeros((tile_m, tile_n), dtype=acc_dtype)
            for step in range(num_steps):
                a = load_slice(a_desc, row, step * tile_k, batch, tile_m, tile_k, batched, a_is_transposed)
                b = load_slice(b_desc, step * tile_k, column, batch, tile_k, tile_n, batched, b_is_transposed)
                acc = tl.dot(a, b, acc, input_precision, max_num_imprecise_acc=max_imprecise, out_dtype=acc_dtype)
            stored += num_blocks
            tile_row, tile_column = tile_coordinates(stored, num_tiles_m, num_tiles_n, group_m, 1, 0)
            store_tile(
                acc, c_desc, c_ptr, bias_ptr, source_ptr, m, n, stride_cb, stride_cm, stride_sb, stride_sm, stride_sn,
                alpha, beta, tile_row * tile_m, tile_column * tile_n, batch, tile_m, tile_n, epilogue_subtile, batched,
                has_alpha, activation, out_dtype,
            )  # fmt: skip
    else:
        tile = block % num_tiles
        split = block // num_tiles
        tile_row, tile_column = tile_coordinates(tile, num_tiles_m, num_tiles_n, group_m, 1, 0)
        row = tile_row * tile_m
        column = tile_column * tile_n
        # A contiguous run of K per split; the last one may be shorter, or empty.
        per_split = tl.cdiv(num_steps, split_k)
        first = split * per_split
        last = tl.minimum(first + per_split, num_steps)
        if split_k == 1:
            # Without a zero-trip path ptxas can keep several wgmma in flight; with it, it serialised those of 8 warps
            # on B by columns (found in the SASS; 1.2 times slower on an H200, 2026-11-21).
            tl.assume(last > first)
        # Columns beyond the widest power of two have sums of their own, `rest`; both dots of a step share A's slice.
        acc = tl.zeros((tile_m, main_n), dtype=acc_dtype)
        rest = None
        if rest_n > 0:
            rest = tl.zeros((tile_m, rest_n), dtype=acc_dtype)
        for step in range(first, last):
            a = load_slice(a_desc, row, step * tile_k, batch, tile_m, tile_k, batched, a_is_transposed)
            b = load_slice(b_desc, step * tile_k, column, batch, tile_k, main_n, batched, b_is_transposed)
            acc = tl.dot(a, b, acc, input_precision, max_num_imprecise_acc=max_imprecise, out_dtype=acc_dtype)
            if rest_n > 0:
                b = load_slice(
                    b_rest_desc, step * tile_k, column + main_n, batch, tile_k, rest_n, batched, b_is_transposed
                )
                rest = tl.dot(a, b, rest, input_precision, max_num_imprecise_acc=max_imprecise, out_dtype=acc_dtype)
        is_mine = True
        if split_k > 1:
            slot = tile + batch * num_tiles
            is_mine = hand_over(acc, slot, split, workspace_ptr, counters_ptr, tile_m, main_n, split_k, rest, rest_n)
        if is_mine:
            if split_k > 1:
                acc = take_over(slot, workspace_ptr, counters_ptr, tile_m, main_n, split_k, rest_n)
                if rest_n > 0:
                    rest = sum_partials(slot, workspace_ptr + tile_m * main_n, tile_m, rest_n, split_k, tile_m * tile_n)
            store_tile(
                acc, c_desc, c_ptr, bias_ptr, source_ptr, m, n, stride_cb, stride_cm, stride_sb, stride_sm, stride_sn,
                alpha, beta, row, column, batch, tile_m, main_n, epilogue_subtile, batched, has_alpha, activation,
                out_dtype,
            )  # fmt: skip
            if rest_n > 0:
                store_tile(
                    rest, c_rest_desc, c_ptr, bias_ptr, source_ptr, m, n, stride_cb, stride_cm, stride_sb, stride_sm,
                    stride_sn, alpha, beta, row, column + main_n, batch, tile_m, rest_n, 1, batched, has_alpha,
                    activation, out_dtype,
                )  # fmt: skip
