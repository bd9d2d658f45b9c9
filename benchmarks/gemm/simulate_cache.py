"""Print simulated cache hits of GEMM block orders beside published ones, and how near the closed form comes.

    python -m benchmarks.gemm.simulate_cache [--random 200]

First table: HipKittens' orders on MI355X (`tests/data/xcd_cache_hits.csv`). Second: the closed form that the cost
model uses (`traffic.py`) against the simulator over random grids and orders, per GPU.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np

from benchmarks.harness.table import read_rows
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.pointer.cost import TileGrid, operand_traffic
from tests.support.cache_simulator import BlockOrder, HitRates, SlicedGrid, caches_of, simulate

PUBLISHED = Path(__file__).parents[2] / "tests" / "data" / "xcd_cache_hits.csv"
#: Bandwidth of an L2 relative to the last level, as the publication states it.
L2_SPEEDUP = 3.0


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


def draw(gpu: GpuModel, rng: random.Random) -> tuple[SlicedGrid, BlockOrder, int]:
    """A random grid that fills the GPU at least once, an order and the blocks in flight."""
    while True:
        m, n, k = (rng.choice([1024, 2048, 3072, 4096, 8192, 9216, 14592]) for _ in range(3))
        tile = (rng.choice([64, 128, 256]), rng.choice([64, 128, 256]), 64)
        grid, resident = grid_of(m, n, k, tile), gpu.device.sm_count * rng.choice([1, 2])
        chunk = rng.choice([0, 16, 32, 64, 1024]) if gpu.device.num_xcds > 1 else 0
        group = rng.choice([1, 2, 4, 8, 16, 32])
        if grid.rows * grid.columns >= resident and group <= grid.rows:
            return grid, BlockOrder(group, chunk), resident


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, default=200, help="random grids per GPU")
    args = parser.parse_args()
    gpu = load_gpu("mi355x")
    print("MI355X: published / simulated / closed form; bandwidth relative to the last level's")
    for row in published():
        grid, order = of_row(row)
        rates = (simulate(grid, caches_of(gpu), order, 256), closed_form(gpu, grid, order, 256))
        l2 = "/".join(f"{100 * r.l2:.0f}" for r in rates)
        last = "/".join(f"{100 * r.last_level:.0f}" for r in rates)
        reach = L2_SPEEDUP * rates[0].l2 + rates[0].last_level
        print(
            f"  {row['size']:6.0f} W{order.group_m} C{order.xcd_chunk:<4} L2 {row['l2_percent']:.0f}/{l2} %  "
            f"LLC {row['last_level_percent']:.0f}/{last} %  {row['terabytes_per_s']} TB/s, {reach:.2f}"
        )
    print(f"closed form / simulated over {args.random} random grids: median and 90th percentile of |log|")
    for name in ("mi300x", "mi355x", "h200"):
        gpu, rng, off = load_gpu(name), random.Random(1), []
        for _ in range(args.random):
            grid, order, resident = draw(gpu, rng)
            simulated = simulate(grid, caches_of(gpu), order, resident, 16)
            closed = closed_form(gpu, grid, order, resident)
            off.append((closed.l2_miss_bytes / simulated.l2_miss_bytes, closed.dram_bytes / simulated.dram_bytes))
        errors = np.abs(np.log(off))
        median, ninth = np.median(errors, axis=0), np.quantile(errors, 0.9, axis=0)
        print(f"  {name}: L2 misses {median[0]:.3f} {ninth[0]:.3f}, DRAM {median[1]:.3f} {ninth[1]:.3f}")


if __name__ == "__main__":
    main()
