"""Copy operands that the TMA unit cannot load, or loads slowly, so that their rows start at whole lines of the L2.

Needs triton; nothing imports it until a kernel is compiled.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents


@triton.jit
def copy_tile(
    source_ptr, target_ptr, block, batch, rows, columns, stride_source_b, stride_source_r, stride_source_c,
    stride_target_b, stride_target_r,
    tile_rows: tl.constexpr, tile_columns: tl.constexpr,
):  # fmt: skip
    """Copy one tile of a (batch, rows, columns) tensor; the target's rows are written up to their padded ends."""
    blocks_wide = tl.cdiv(columns, tile_columns)
    # Indices beyond the last row repeat the last row.
    row = tl.minimum((block // blocks_wide) * tile_rows + tl.arange(0, tile_rows), rows - 1).to(tl.int64)
    column = (block % blocks_wide) * tile_columns + tl.arange(0, tile_columns).to(tl.int64)
    source = source_ptr + batch.to(tl.int64) * stride_source_b
    target = target_ptr + batch.to(tl.int64) * stride_target_b
    offsets = row[:, None] * stride_source_r + column[None, :] * stride_source_c
    values = tl.load(source + offsets, mask=column[None, :] < columns)
    # The padded length is a multiple of 16 elements, unlike `columns`: with it stores are 16 bytes wide.
    tl.store(target + row[:, None] * stride_target_r + column[None, :], values, mask=column[None, :] < stride_target_r)


@triton.jit
def pack_kernel(
    a_ptr,  # (batch, rows, columns), columns being the faster axis of the copy of A in memory
    packed_a_ptr, b_ptr, packed_b_ptr,
    blocks_a,  # blocks that copy A; the rest copy B
    rows_a, columns_a, stride_ab, stride_ar, stride_ac, stride_pab, stride_par, rows_b, columns_b, stride_bb,
    stride_br, stride_bc, stride_pbb, stride_pbr,
    tile_rows: tl.constexpr, tile_columns: tl.constexpr, overlaps: tl.constexpr,
):  # fmt: skip
    """Copy A, or B, or both; grid (blocks of A and of B, batch). With `overlaps` the next kernel may start early."""
    if overlaps:
        gdc_launch_dependents()
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
