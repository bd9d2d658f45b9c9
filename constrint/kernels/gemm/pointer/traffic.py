"""Bytes that a grid of GEMM blocks moves between L2, last-level cache and DRAM, by the order of its tiles.

Blocks that run at the same time share operand slices. `group_m` rows of tiles are walked column by column, so the
blocks in flight cover a rectangle of tiles. Every XCD has an L2 of its own. Blocks are dealt to XCDs in turn, unless
the kernel gives each XCD chunks of neighbouring tiles. The closed form here is compared with a cache simulator
(`benchmarks/gemm/simulate_cache.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel

Column = NDArray[np.float64]

#: Share of a cache that operands may fill before they evict each other.
USABLE_CACHE_SHARE = 0.95


@dataclass(frozen=True)
class TileGrid:
    """The tile grid of a GEMM, per configuration (columns of float64).

    Args:
        rows, columns: Tiles along M and N.
        row_bytes, column_bytes: Operand bytes of one row of tiles of A, one column of tiles of B, over the whole K.
        resident: Blocks in flight on the whole device.
        group_m: Rows of tiles per group.
        xcd_chunk: Neighbouring tiles that one XCD takes at a time; 0: tiles are dealt one by one.
    """

    rows: Column
    columns: Column
    row_bytes: Column
    column_bytes: Column
    resident: Column
    group_m: Column
    xcd_chunk: Column


@dataclass(frozen=True)
class Traffic:
    """Bytes per level for the whole grid: misses of the L2s, and the bytes from DRAM."""

    l2_miss_bytes: Column
    dram_bytes: Column


@dataclass(frozen=True)
class _Runs:
    """The tiles of a wave whose blocks use one cache: `count` runs of `length` neighbouring tiles, `spacing` apart."""

    count: Column
    length: Column
    spacing: Column


def operand_traffic(gpu: GpuModel, tiles: TileGrid) -> Traffic:
    """Bytes of A and B that leave each cache level, for every configuration."""
    num_xcds = gpu.device.num_xcds
    num_tiles = tiles.rows * tiles.columns
    resident = np.minimum(tiles.resident, num_tiles)
    waves = np.maximum(1.0, num_tiles / resident)
    whole = tiles.rows, tiles.columns
    l2_bytes = (gpu.memory.l2.size_bytes or 0) / num_xcds
    last_bytes = (gpu.memory.last_level.size_bytes or 0) if gpu.memory.last_level else 0
    if num_xcds == 1:
        wave = _covered(tiles, _Runs(np.ones_like(resident), resident, resident))
        l2_miss = _misses(tiles, wave, whole, waves, l2_bytes)
        dram = _misses(tiles, wave, whole, waves, last_bytes) if last_bytes > l2_bytes else l2_miss
        return Traffic(l2_miss, np.minimum(dram, l2_miss))
    on_xcd, on_device, of_xcd = (_covered(tiles, runs) for runs in _runs(tiles, resident, num_xcds))
    l2_miss = num_xcds * _misses(tiles, on_xcd, of_xcd, waves, l2_bytes)
    dram = _misses(tiles, on_device, whole, waves, last_bytes)
    return Traffic(l2_miss, np.minimum(dram, l2_miss))


def _runs(tiles: TileGrid, resident: Column, num_xcds: int) -> tuple[_Runs, _Runs, _Runs]:
    """A wave as one XCD sees it, a wave as the device sees it, and the whole grid as one XCD sees it."""
    of_one = np.maximum(1.0, tiles.rows * tiles.columns / num_xcds)
    share = np.maximum(1.0, resident / num_xcds)
    chunk = np.minimum(np.maximum(tiles.xcd_chunk, 1.0), of_one)
    length = np.minimum(chunk, share)
    on_xcd = _Runs(share / length, length, num_xcds * chunk)
    # Chunks longer than an XCD's share of the wave keep the XCDs apart; shorter ones join up to one run.
    is_apart = chunk > share
    on_device = _Runs(
        np.where(is_apart, num_xcds, 1.0), np.where(is_apart, share, resident), np.where(is_apart, chunk, resident)
    )
    return on_xcd, on_device, _Runs(of_one / chunk, chunk, num_xcds * chunk)


def _covered(tiles: TileGrid, runs: _Runs) -> tuple[Column, Column]:
    """Distinct rows and columns of tiles that the runs touch, averaged over where they start."""
    height = np.minimum(tiles.group_m, tiles.rows)
    group = height * tiles.columns
    is_one = runs.count <= 1
    window = np.where(is_one, runs.length, (runs.count - 1) * runs.spacing + runs.length)
    next_wave = np.where(is_one, runs.length, runs.count * runs.spacing)
    # A run touches fewest columns, groups when its start is aligned with them.
    run_columns = 1 + (runs.length - _gcd(runs.spacing, runs.length, height)) / height
    residues = height / _gcd(runs.spacing, height)
    rows_of_few = np.minimum(runs.count, residues) * np.minimum(height, runs.length)
    rows_in_group = np.where(runs.length >= height, height, np.minimum(height, rows_of_few))
    groups_of_run = 1 + np.maximum(0.0, runs.length - _gcd(runs.length, runs.spacing, group)) / group
    groups = 1 + np.maximum(0.0, window - _gcd(next_wave, group)) / group
    rows = np.minimum(tiles.rows, rows_in_group * np.minimum(groups, runs.count * groups_of_run))
    # Runs that start at equal offsets into their groups share columns.
    starts = np.minimum(runs.count, group / _gcd(runs.spacing, group))
    starts = np.where(runs.spacing <= height, np.minimum(starts, np.maximum(1.0, window / height)), starts)
    columns = np.minimum(tiles.columns, starts * run_columns)
    num_tiles = runs.count * runs.length
    columns = np.minimum(tiles.columns, np.maximum(columns, num_tiles / rows))
    return np.minimum(tiles.rows, np.maximum(rows, num_tiles / columns)), columns


def _gcd(first: Any, *others: Any) -> Column:
    common = _whole(first)
    for other in others:
        common = np.gcd(common, _whole(other))
    return np.asarray(common, dtype=np.float64)


def _whole(value: Any) -> NDArray[np.int64]:
    return np.asarray(np.maximum(1, np.rint(value)), dtype=np.int64)


#: Distinct rows and columns of tiles, per configuration.
_Covered = tuple[Column, Column]


def _misses(tiles: TileGrid, wave: _Covered, grid: _Covered, waves: Column, capacity_bytes: float) -> Column:
    """Bytes that miss a cache of this capacity for blocks that run in waves, by the bytes of a wave and of the grid."""
    capacity = capacity_bytes * USABLE_CACHE_SHARE
    (rows, columns), (all_rows, all_columns) = wave, grid
    once = all_rows * tiles.row_bytes + all_columns * tiles.column_bytes
    slab, window = rows * tiles.row_bytes, columns * tiles.column_bytes
    # Where a wave's operands survive to the next one, A is fetched once and B once per group of rows.
    groups = np.maximum(1.0, all_rows / np.minimum(np.maximum(tiles.group_m, rows), tiles.rows))
    by_group = all_rows * tiles.row_bytes + groups * all_columns * tiles.column_bytes
    per_wave = np.maximum(waves * (slab + window), once)
    result = np.where(slab + window <= capacity, np.minimum(per_wave, by_group), per_wave)
    fits = (slab + all_columns * tiles.column_bytes <= capacity) | (once <= capacity)
    return np.asarray(np.where(fits, once, result), dtype=np.float64)
