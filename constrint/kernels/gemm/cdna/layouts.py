"""Layouts of half an operand's slice in LDS, solved for: no access of the kernel has a conflict.

The unknowns are flips of address bits (`constrint.select.layouts`), which take no memory. A lane reads 16 bytes of K at
a time (`ds_read_b128`). On gfx950 the copy writes 64 lanes of 16 bytes one behind the other, and each lane fetches what
belongs at its place; on gfx942 lanes store 16 bytes each, which is one more access without conflicts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from constrint.errors import InfeasibleError
from constrint.hwmodels import GpuModel
from constrint.hwmodels.bank_accesses import WIDEST_BYTES, Tile, TileAccess, check_tile, tile_access
from constrint.select.layouts import SharedLayout, xor_layout

#: Rows of A, columns of B of the matrix instruction.
SIDE = 16
#: Lanes of a wave.
LANES = 64
#: The read of B where its rows run along N, which transposes on the way.
TRANSPOSED = "ds_read_b64_tr_b16_16x16x32"


def operand_read(tile: Tile, *, is_halved: bool) -> TileAccess:
    """`ds_read_b128` of 16 rows: lane l has row l % 16 and 16 bytes of the l // 16-th part of K.

    Args:
        tile: Half an operand's slice.
        is_halved: Whether a lane's part has 32 bytes, one 16 from each half of 128 bytes (fp8 with scales).
    """
    lane = np.arange(LANES)
    span = 4 * WIDEST_BYTES
    first, byte = np.meshgrid(np.arange(0, tile.rows, SIDE), np.arange(0, tile.row_bytes, span), indexing="ij")
    rows = first.reshape(-1, 1) + lane % SIDE
    columns = byte.reshape(-1, 1) + lane // SIDE * WIDEST_BYTES
    return TileAccess("ds_read_b128" + "_halves" * is_halved, "read", 8 * WIDEST_BYTES, rows, columns)


def accesses(gpu: GpuModel, tile: Tile, *, is_k_major: bool) -> list[TileAccess]:
    """Every access that the kernel makes to half a slice in LDS, in the loop and before it."""
    written = tile_access(gpu, "copy_rows" if gpu.arch.target == "gfx950" else "store_rows", tile)
    if not is_k_major:
        return [written, tile_access(gpu, TRANSPOSED, tile)]
    return [written, operand_read(tile, is_halved=tile.element_bytes == 1 and gpu.arch.target == "gfx950")]


#: Solutions by everything that decides them, None for tiles that have none.
_SOLVED: dict[tuple[str, int | None, Tile, bool], SharedLayout | None] = {}


def _solved(gpu: GpuModel, tile: Tile, *, is_k_major: bool) -> SharedLayout | None:
    key = gpu.arch.target, gpu.sm.smem_banks, tile, is_k_major
    if key not in _SOLVED:
        _SOLVED[key] = xor_layout(gpu, tile, accesses(gpu, tile, is_k_major=is_k_major))
    return _SOLVED[key]


def solved_layout(gpu: GpuModel, side: int, tile_k: int, dtype: str, *, is_k_major: bool = True) -> SharedLayout:
    """The layout of half an operand's slice with the fewest flips.

    Args:
        gpu: A gfx950 or gfx942.
        side: Rows of A or columns of B in half a tile.
        tile_k: Depth of the slice.
        dtype: Type of the elements.
        is_k_major: Whether the operand's rows run along K.

    Raises:
        InfeasibleError: When every layout has a conflict.
    """
    rows, columns = (side, tile_k) if is_k_major else (tile_k, side)
    tile = check_tile(rows, columns, "bf16" if dtype == "fp16" else dtype)
    layout = _solved(gpu, tile, is_k_major=is_k_major)
    if layout is None:
        raise InfeasibleError(f"{gpu.name}: no layout by XOR of half a slice, {tile}, is free of conflicts.", None)
    return replace(layout, tile=check_tile(rows, columns, dtype))


def element_flips(layout: SharedLayout) -> tuple[tuple[int, int], ...]:
    """The flips by bits of the element's number instead of the byte's."""
    shift = layout.tile.element_bytes.bit_length() - 1
    return tuple((source - shift, target - shift) for source, target in layout.xor)


def undoes_itself(layout: SharedLayout) -> bool:
    """Whether placing twice is no change: no flipped bit flips another one."""
    return not {source for source, _ in layout.xor} & {target for _, target in layout.xor}


def offset_bases(layout: SharedLayout) -> list[list[int]]:
    """Row and column of the tile's element at each place 2^i of LDS, counted in elements."""
    tile = layout.tile
    columns = tile.columns
    bases = []
    for bit in range((tile.rows * columns).bit_length() - 1):
        place = 1 << bit
        for source, target in element_flips(layout):
            place ^= (1 << bit >> source & 1) << target
        bases.append([place // columns, place % columns])
    return bases
