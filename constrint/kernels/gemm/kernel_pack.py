"""Copy operands whose rows start at odd addresses into rows that start at multiples of 16 bytes, for the TMA unit.

Needs triton; nothing imports it until a kernel is compiled.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def copy_tile(
    source_ptr,
    target_ptr,
    block,
    batch,
    rows,
    columns,
    stride_source_b,
    stride_source_r,
    stride_source_c,
    stride_target_b,
    stride_target_r,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
):
    """Copy one tile of a (batch, rows, columns) tensor."""
    blocks_wide = tl.cdiv(columns, tile_columns)
    row = (block // blocks_wide) * tile_rows + tl.arange(0, tile_rows).to(tl.int64)
    column = (block % blocks_wide) * tile_columns + tl.arange(0, tile_columns).to(tl.int64)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    source = source_ptr + batch.to(tl.int64) * stride_source_b
    target = target_ptr + batch.to(tl.int64) * stride_target_b
    values = tl.load(source + row[:, None] * stride_source_r + column[None, :] * stride_source_c, mask=inside)
    tl.store(target + row[:, None] * stride_target_r + column[None, :], values, mask=inside)


@triton.jit
def pack_kernel(
    a_ptr,  # (batch, rows, columns), columns being the faster axis of A in memory
    packed_a_ptr,
    b_ptr,
    packed_b_ptr,
    blocks_a,  # blocks that copy A; the rest copy B
    rows_a,
    columns_a,
    stride_ab,
    stride_ar,
    stride_ac,
    stride_pab,
    stride_par,
    rows_b,
    columns_b,
    stride_bb,
    stride_br,
    stride_bc,
    stride_pbb,
    stride_pbr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
):
    """Copy A, or B, or both; grid (blocks of A and of B, batch)."""
    block = tl.program_id(0)
    batch = tl.program_id(1)
    if block < blocks_a:
        copy_tile(
            a_ptr, packed_a_ptr, block, batch, rows_a, columns_a, stride_ab, stride_ar, stride_ac, stride_pab,
            stride_par, tile_rows, tile_columns,
        )  # fmt: skip
    else:
        copy_tile(
            b_ptr, packed_b_ptr, block - blocks_a, batch, rows_b, columns_b, stride_bb, stride_br, stride_bc,
            stride_pbb, stride_pbr, tile_rows, tile_columns,
        )  # fmt: skip
