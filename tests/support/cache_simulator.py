"""A small cache simulator for the GEMM's block orders: an L2 per XCD, one last-level cache behind them, LRU in both.

Blocks are dealt to XCDs round robin and run in waves; the blocks of a wave walk K in step, each asking for one slice
of A (a row of tiles) and one of B (a column of tiles) per step. It is the reference for the closed form in
`traffic.py`, which the cost model uses; nothing here runs while a config is chosen.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.table import read_rows
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.pointer.cost import TileGrid, operand_traffic

#: A chunk that no grid exceeds: every XCD gets one contiguous run of tiles.
WHOLE_RUN = 1 << 30


@dataclass(frozen=True)
class BlockOrder:
    """How block indices become tiles, as `tile_coordinates` in the kernel does it.

    Args:
        group_m: Rows of tiles that are walked together, column by column (1: row-major).
        xcd_chunk: Neighbouring tiles that one XCD takes at a time; 0: as dealt; WHOLE_RUN: one run per XCD.
    """

    group_m: int
    xcd_chunk: int = 0


@dataclass(frozen=True)
class SlicedGrid:
    """A grid of tiles and what one step along K asks for.

    Args:
        rows, columns: Tiles along M and N.
        steps: Steps along K.
        row_bytes, column_bytes: Bytes of one slice of A and of B.
    """

    rows: int
    columns: int
    steps: int
    row_bytes: int
    column_bytes: int


@dataclass(frozen=True)
class Caches:
    """The levels that are simulated.

    Args:
        num_l2: L2 caches, one per XCD.
        l2_bytes: Capacity of each.
        last_level_bytes: Capacity of the cache behind them; 0: there is none.
    """

    num_l2: int
    l2_bytes: int
    last_level_bytes: int


@dataclass(frozen=True)
class HitRates:
    """Bytes asked of each level, and the shares that hit."""

    requested_bytes: float
    l2_miss_bytes: float
    dram_bytes: float

    @property
    def l2(self) -> float:
        """Share of the requested bytes that an L2 delivers."""
        return 1.0 - self.l2_miss_bytes / self.requested_bytes

    @property
    def last_level(self) -> float:
        """Share of the L2s' misses that the last level delivers."""
        return 1.0 - self.dram_bytes / self.l2_miss_bytes


def caches_of(gpu: GpuModel) -> Caches:
    """The caches of a modelled GPU; an L2 of unknown size counts as empty."""
    num_l2 = gpu.device.num_xcds
    last = gpu.memory.last_level
    return Caches(num_l2, (gpu.memory.l2.size_bytes or 0) // num_l2, (last.size_bytes or 0) if last else 0)


def tile_of(
    blocks: NDArray[np.int64], grid: SlicedGrid, order: BlockOrder, num_xcds: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and column of every block's tile."""
    blocks = np.asarray(blocks, dtype=np.int64)
    if order.xcd_chunk and num_xcds > 1:
        blocks = _swizzled(blocks, grid.rows * grid.columns, order.xcd_chunk, num_xcds)
    group, within = np.divmod(blocks, order.group_m * grid.columns)
    first = group * order.group_m
    height = np.minimum(grid.rows - first, order.group_m)
    return first + within % height, within // height


def _swizzled(blocks: NDArray[np.int64], num_tiles: int, chunk: int, num_xcds: int) -> NDArray[np.int64]:
    """Whole cycles hand every XCD `chunk` neighbouring tiles; the rest becomes one balanced run per XCD."""
    whole = num_tiles // (num_xcds * chunk) * (num_xcds * chunk)
    xcd, local = blocks % num_xcds, blocks // num_xcds
    chunked = local // chunk * (num_xcds * chunk) + xcd * chunk + local % chunk
    per_xcd, extra = divmod(num_tiles - whole, num_xcds)
    rest = whole + xcd * per_xcd + np.minimum(xcd, extra) + (blocks - whole) // num_xcds
    return np.where(blocks < whole, chunked, rest)


class _Lru:
    """A cache of whole slices, the least recently used ones leaving first."""

    def __init__(self, capacity_bytes: float) -> None:
        self.capacity_bytes = capacity_bytes
        self.held: OrderedDict[int, int] = OrderedDict()
        self.used_bytes = 0

    def has(self, key: int, num_bytes: int) -> bool:
        """Ask for a slice; it is held afterwards."""
        if key in self.held:
            self.held.move_to_end(key)
            return True
        self.held[key] = num_bytes
        self.used_bytes += num_bytes
        while self.used_bytes > self.capacity_bytes:
            self.used_bytes -= self.held.popitem(last=False)[1]
        return False


def simulate(grid: SlicedGrid, caches: Caches, order: BlockOrder, resident: int, sampled_steps: int = 32) -> HitRates:
    """Run the whole grid and count.

    Args:
        grid: The tiles.
        caches: The caches.
        order: The block order.
        resident: Blocks in flight on the device.
        sampled_steps: Steps of K that are simulated; every cache shrinks in proportion, which loses nothing because
            all slices of K are used alike.
    """
    steps = min(grid.steps, sampled_steps)
    share = steps / grid.steps
    num_l2 = caches.num_l2
    l2s = [_Lru(caches.l2_bytes * share) for _ in range(num_l2)]
    last = _Lru(caches.last_level_bytes * share)
    missed = left = requested = 0
    num_tiles = grid.rows * grid.columns
    for start in range(0, num_tiles, resident):
        blocks = np.arange(start, min(start + resident, num_tiles))
        row, column = tile_of(blocks, grid, order, num_l2)
        requested += len(blocks) * steps * (grid.row_bytes + grid.column_bytes)
        wanted = [_slices(grid, row[blocks % num_l2 == x], column[blocks % num_l2 == x]) for x in range(num_l2)]
        for step in range(steps):
            for cache, slices in zip(l2s, wanted, strict=True):
                for name, num_bytes in slices:
                    if not cache.has(name * steps + step, num_bytes):
                        missed += num_bytes
                        left += 0 if last.has(name * steps + step, num_bytes) else num_bytes
    return HitRates(requested / share, missed / share, left / share)


def _slices(grid: SlicedGrid, row: NDArray[Any], column: NDArray[Any]) -> list[tuple[int, int]]:
    """The distinct slices that blocks ask for in one step, numbered across A and B, with their bytes."""
    of_a = [(int(r), grid.row_bytes) for r in np.unique(row)]
    return of_a + [(grid.rows + int(c), grid.column_bytes) for c in np.unique(column)]


PUBLISHED = Path(__file__).parents[1] / "data" / "xcd_cache_hits.csv"


def grid_of(m: int, n: int, k: int, tile: tuple[int, int, int], element: int = 2) -> SlicedGrid:
    """The tile grid of a GEMM, of 16-bit operands if nothing else is said."""
    tile_m, tile_n, tile_k = tile
    sizes = (tile_m * tile_k * element, tile_n * tile_k * element)
    return SlicedGrid(-(-m // tile_m), -(-n // tile_n), -(-k // tile_k), *sizes)


def closed_form(gpu: GpuModel, grid: SlicedGrid, order: BlockOrder, resident: int) -> HitRates:
    """Traffic of the same grid by `traffic.py`."""
    operands = grid.row_bytes * grid.steps, grid.column_bytes * grid.steps
    numbers = (grid.rows, grid.columns, *operands, resident, order.group_m, order.xcd_chunk)
    traffic = operand_traffic(gpu, TileGrid(*(np.array([float(number)]) for number in numbers)))
    asked = grid.rows * grid.columns * grid.steps * (grid.row_bytes + grid.column_bytes)
    return HitRates(asked, float(traffic.l2_miss_bytes[0]), float(traffic.dram_bytes[0]))


def published() -> list[dict[str, float]]:
    """The published table."""
    return [{name: float(value) for name, value in row.items()} for row in read_rows(PUBLISHED)]


def of_row(row: dict[str, float]) -> tuple[SlicedGrid, BlockOrder]:
    """Grid and order of one published row."""
    size = int(row["size"])
    return grid_of(size, size, size, (192, 256, 64)), BlockOrder(int(row["group_m"]), int(row["xcd_chunk"]))
