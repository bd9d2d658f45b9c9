"""How many bytes a grid of GEMM blocks moves between L2, last-level cache and DRAM, by the order of its tiles.

Blocks that run at the same time share operand slices. `group_m` rows of tiles are walked column by column, so the
blocks in flight cover a rectangle of tiles; every XCD has an L2 of its own and is dealt blocks round robin, unless
the kernel re-maps them so that each XCD gets a contiguous run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel

Column = NDArray[np.float64]

#: Share of a cache that operands may fill before they evict each other.
USABLE_CACHE_SHARE = 0.8


@dataclass(frozen=True)
class Tiles:
    """The tile grid of a GEMM, per configuration (columns of float64).

    Args:
        rows, columns: Tiles along M and N.
        row_bytes, column_bytes: Operand bytes of one row of tiles of A, one column of tiles of B, over the whole K.
        resident: Blocks in flight on the whole device.
        group_m: Rows of tiles per group.
        is_remapped: 1 where XCDs get contiguous runs of tiles.
    """

    rows: Column
    columns: Column
    row_bytes: Column
    column_bytes: Column
    resident: Column
    group_m: Column
    is_remapped: Column


@dataclass(frozen=True)
class Traffic:
    """Bytes per level for the whole grid: misses of the L2s, and what DRAM has to deliver."""

    l2_miss_bytes: Column
    dram_bytes: Column


def operand_traffic(gpu: GpuModel, tiles: Tiles) -> Traffic:
    """Bytes of A and B that leave each cache level, for every configuration."""
    rectangle_rows, rectangle_columns = _rectangle(tiles)
    waves = np.maximum(1.0, tiles.rows * tiles.columns / tiles.resident)
    compulsory = tiles.rows * tiles.row_bytes + tiles.columns * tiles.column_bytes
    num_xcds = gpu.device.num_xcds
    if num_xcds == 1:
        share_rows, share_columns = rectangle_rows, rectangle_columns
    else:
        share_rows, share_columns = _xcd_share(tiles, rectangle_rows, rectangle_columns, num_xcds)
    per_l2 = share_rows * tiles.row_bytes + share_columns * tiles.column_bytes
    l2_miss = np.maximum(waves * per_l2 * num_xcds, compulsory)
    l2_size = gpu.memory.l2.size_bytes or 0
    last_size = (gpu.memory.last_level.size_bytes or 0) if gpu.memory.last_level else 0
    unique = rectangle_rows * tiles.row_bytes + rectangle_columns * tiles.column_bytes
    dram = np.maximum(waves * unique, compulsory)
    shared_l2 = l2_size if num_xcds == 1 else 0
    dram = _with_reuse(tiles, dram, compulsory, max(shared_l2, last_size) * USABLE_CACHE_SHARE)
    if num_xcds == 1:
        l2_miss = _with_reuse(tiles, l2_miss, compulsory, l2_size * USABLE_CACHE_SHARE)
    return Traffic(l2_miss, np.minimum(dram, l2_miss))


def _rectangle(tiles: Tiles) -> tuple[Column, Column]:
    """Rows and columns of tiles that the blocks in flight cover together."""
    height = np.minimum(tiles.group_m, tiles.rows)
    resident = np.minimum(tiles.resident, tiles.rows * tiles.columns)
    columns = np.minimum(np.maximum(1.0, resident / height), tiles.columns)
    groups = np.maximum(1.0, resident / (height * tiles.columns))
    rows = np.minimum(height * groups, np.minimum(tiles.rows, np.maximum(resident, 1.0)))
    return rows, columns


def _xcd_share(tiles: Tiles, rows: Column, columns: Column, num_xcds: int) -> tuple[Column, Column]:
    """Rows and columns of tiles that the blocks in flight on one XCD cover."""
    height = np.minimum(tiles.group_m, tiles.rows)
    # Dealt round robin: block i of a group sits in row i mod height, and on XCD i mod num_xcds.
    common = np.gcd(height.astype(np.int64), num_xcds).astype(np.float64)
    dealt_rows = np.maximum(1.0, rows / common)
    dealt_columns = np.maximum(1.0, columns * common / num_xcds)
    # In contiguous runs an XCD's blocks form a rectangle of their own.
    run = np.maximum(1.0, np.minimum(tiles.resident, tiles.rows * tiles.columns) / num_xcds)
    run_rows = np.minimum(height, run)
    run_columns = np.minimum(np.maximum(1.0, run / run_rows), tiles.columns)
    remapped = tiles.is_remapped > 0
    return np.where(remapped, run_rows, dealt_rows), np.where(remapped, run_columns, dealt_columns)


def _with_reuse(tiles: Tiles, per_wave: Column, compulsory: Column, capacity: float) -> Column:
    """Traffic below a cache of that capacity, when operands survive from one wave to the next."""
    height = np.minimum(tiles.group_m, tiles.rows)
    groups = np.ceil(tiles.rows / height)
    slab = height * tiles.row_bytes  # A of one group
    _, columns = _rectangle(tiles)
    whole_b = tiles.columns * tiles.column_bytes
    by_group = tiles.rows * tiles.row_bytes + groups * whole_b
    result = np.where(slab + columns * tiles.column_bytes <= capacity, np.minimum(per_wave, by_group), per_wave)
    fits: Any = (slab + whole_b <= capacity) | (compulsory <= capacity)
    return np.where(fits, compulsory, result)
