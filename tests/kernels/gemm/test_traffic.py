"""Block orders are bijections in the kernel's own code; simulated caches against published ones and the closed form."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.pointer.cost import pointer_cost
from constrint.kernels.gemm.pointer.spec import PointerSpec
from constrint.kernels.gemm.product import Product
from constrint.select import Workload
from tests.support.cache_simulator import (
    WHOLE_RUN,
    BlockOrder,
    Caches,
    HitRates,
    SlicedGrid,
    caches_of,
    closed_form,
    grid_of,
    of_row,
    published,
    simulate,
    tile_of,
)

SPEC = PointerSpec()
PUBLISHED = published()
SIZES = (9216, 14592)
MI355X = load_gpu("mi355x")
#: The one row that lockstep waves miss: its column mates are nine blocks apart, and once blocks drift by a third of a
#: step its slices leave the L2 between them.
DRIFTING = (9216, 1)


def rates_of(size: int) -> list[tuple[dict[str, float], HitRates]]:
    rows = [row for row in PUBLISHED if row["size"] == size]
    assert len(rows) == 3
    return [(row, simulate(of_row(row)[0], caches_of(MI355X), of_row(row)[1], resident=256)) for row in rows]


def ranks(values: list[float], tie: float) -> list[list[int]]:
    """For every pair: 1, -1 or 0 where they differ by no more than `tie`."""
    return [[0 if abs(a - b) <= tie else (1 if a > b else -1) for b in values] for a in values]


def agrees(published: list[float], found: list[float], tie: float) -> bool:
    """Whether every pair that the publication separates by more than `tie` comes in its order."""
    wanted, got = ranks(published, tie), ranks(found, 0.0)
    return all(w in (0, g) for ws, gs in zip(wanted, got, strict=True) for w, g in zip(ws, gs, strict=True))


@pytest.mark.parametrize("size", SIZES)
def test_simulated_caches_reproduce_the_published_order(size: int) -> None:
    """L2 hits, last-level hits and bandwidth; the publication rounds to whole percents, so one percent is a tie."""
    found = rates_of(size)
    assert agrees([row["l2_percent"] for row, _ in found], [r.l2 for _, r in found], tie=1)
    assert agrees([row["last_level_percent"] for row, _ in found], [r.last_level for _, r in found], tie=1)
    # Published: the bandwidth is the last level's times its hit rate plus the L2's, three times as fast.
    assert agrees([row["terabytes_per_s"] for row, _ in found], [r.last_level + 3 * r.l2 for _, r in found], tie=0)


@pytest.mark.parametrize("size", SIZES)
def test_simulated_hit_rates_are_near_the_published_ones(size: int) -> None:
    for row, rates in rates_of(size):
        l2_off = abs(100 * rates.l2 - row["l2_percent"])
        assert l2_off <= (18.5 if (size, row["group_m"]) == DRIFTING else 4), (row, rates)
        assert abs(100 * rates.last_level - row["last_level_percent"]) <= 7, (row, rates)


@pytest.mark.parametrize("size", SIZES)
def test_cost_model_orders_block_orders_as_they_were_measured(size: int) -> None:
    rows = [row for row in PUBLISHED if row["size"] == size]
    names = {"tile_m": 192, "tile_n": 256, "tile_k": 64, "num_warps": 8, "num_stages": 2, "split_k": 1, "persistent": 0}
    columns = {name: np.full(3, value) for name, value in names.items()}
    columns |= {name: np.array([int(row[name]) for row in rows]) for name in ("group_m", "xcd_chunk")}
    workload = Workload("gemm", {"m": size, "n": size, "k": size}, "bf16")
    seconds = pointer_cost(MI355X, Product.of(workload), columns, np.ones(3, dtype=np.int64)).seconds
    by_model, by_measurement = np.argsort(seconds), np.argsort([-row["teraflop_per_s"] for row in rows])
    assert by_model.tolist() == by_measurement.tolist()


def test_closed_form_is_near_the_simulator_on_the_published_grids() -> None:
    for row in PUBLISHED:
        grid, order = of_row(row)
        simulated, closed = simulate(grid, caches_of(MI355X), order, 256), closed_form(MI355X, grid, order, 256)
        assert closed.l2 == pytest.approx(simulated.l2, abs=0.05)
        assert closed.last_level == pytest.approx(simulated.last_level, abs=0.07)


@pytest.mark.parametrize("name", ["mi300x", "mi355x", "h200"])
def test_closed_form_follows_the_simulator(name: str) -> None:
    """Median within 7 %, nine of ten within 30 %: where operands just fit a cache, one of the two falls off first."""
    gpu, rng = load_gpu(name), random.Random(5)
    off: list[tuple[Any, Any]] = []
    while len(off) < 40:
        m, n, k = (rng.choice([1024, 2048, 3072, 4096, 8192]) for _ in range(3))
        grid = grid_of(m, n, k, (rng.choice([64, 128, 256]), rng.choice([64, 128, 256]), 64))
        order = BlockOrder(rng.choice([1, 2, 4, 8, 16]), rng.choice([0, 16, 64, WHOLE_RUN]))
        resident = gpu.device.sm_count * rng.choice([1, 2])
        if grid.rows * grid.columns < resident or order.group_m > grid.rows:
            continue
        simulated = simulate(grid, caches_of(gpu), order, resident, sampled_steps=8)
        closed = closed_form(gpu, grid, order, resident)
        off.append(abs(np.log(closed.l2_miss_bytes / simulated.l2_miss_bytes)))
        off.append(abs(np.log(closed.dram_bytes / simulated.dram_bytes)))
    assert np.median(off) <= 0.07
    assert np.quantile(off, 0.9) <= 0.3


def test_larger_caches_never_miss_more_and_bytes_shrink_from_level_to_level() -> None:
    grid = grid_of(4096, 6144, 2048, (128, 256, 64))
    unique = (grid.rows * grid.row_bytes + grid.columns * grid.column_bytes) * grid.steps
    for order in (BlockOrder(1), BlockOrder(8), BlockOrder(8, 32), BlockOrder(4, WHOLE_RUN)):
        by_l2 = [simulate(grid, Caches(8, size << 20, 0), order, 256, 8) for size in (1, 2, 4, 8, 64)]
        missed = [rates.l2_miss_bytes for rates in by_l2]
        assert missed == sorted(missed, reverse=True)
        by_last = [simulate(grid, Caches(8, 4 << 20, size << 20), order, 256, 8) for size in (0, 16, 64, 256)]
        read = [rates.dram_bytes for rates in by_last]
        assert read == sorted(read, reverse=True)
        for rates in (*by_l2, *by_last):
            assert unique * (1 - 1e-9) <= rates.dram_bytes <= rates.l2_miss_bytes <= rates.requested_bytes
        # Everything fits 256 MiB: each operand is read once.
        assert by_last[-1].dram_bytes == pytest.approx(unique)


def test_h200_has_one_l2_that_holds_what_fits_and_profits_from_groups_of_rows() -> None:
    h200 = load_gpu("h200")
    caches = caches_of(h200)
    assert caches == Caches(1, 62914560, 0)
    small = grid_of(2048, 2048, 2048, (128, 128, 64))
    for order in (BlockOrder(1), BlockOrder(8), BlockOrder(8, 64)):
        for rates in (simulate(small, caches, order, 132), closed_form(h200, small, order, 132)):
            assert rates.dram_bytes == pytest.approx(2 * 2048 * 2048 * 2)
            assert rates.last_level == 0
    large = grid_of(16384, 16384, 16384, (128, 256, 64))
    for read in (
        [simulate(large, caches, BlockOrder(group), 132, 8).dram_bytes for group in (1, 4, 8)],
        [closed_form(h200, large, BlockOrder(group), 132).dram_bytes for group in (1, 4, 8)],
    ):
        assert read[0] > read[1] > read[2]


def kernel_functions() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`deal_chunks` and `tile_coordinates` of the kernel, run over numpy arrays in place of scalars."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("needs the extra [torch]: triton is not installed")
    from constrint.kernels.gemm.epilogue import kernel as kernel_epilogue

    names = {"tl": SimpleNamespace(minimum=np.minimum, where=np.where)}
    deal = FunctionType(kernel_epilogue.deal_chunks.fn.__code__, names)
    return deal, FunctionType(kernel_epilogue.tile_coordinates.fn.__code__, names | {"deal_chunks": deal})


def offered(name: str) -> set[int]:
    """Values of a parameter over all GPUs with XCDs."""
    found: set[int] = set()
    for gpu in ("mi300x", "mi250x", "mi355x", "h200"):
        model = load_gpu(gpu)
        for param in SPEC.params(model, SPEC.default_workload(model)):
            found |= set(param.values) if param.name == name else set()
    return found


XCDS = (1, 2, 4, 8)
CHUNKS = sorted({0, 1, 16, 25, 64, 216, 542, 1024} | offered("xcd_chunk"))
GROUPS = sorted({5, 7} | offered("group_m"))


def is_bijection(values: Any, size: int) -> bool:
    return len(values) == size and bool((np.bincount(values, minlength=size) == 1).all())


@pytest.mark.parametrize("num_xcds", XCDS)
def test_dealing_chunks_is_a_bijection_for_every_number_of_tiles(num_xcds: int) -> None:
    """Every number of tiles that a grid up to 64 x 64 can have, every chunk."""
    deal, _ = kernel_functions()
    for num_tiles in sorted({rows * columns for rows in range(1, 65) for columns in range(1, 65)}):
        blocks = np.arange(num_tiles)
        for chunk in CHUNKS[1:]:
            assert is_bijection(deal(blocks, num_tiles, num_xcds, chunk), num_tiles), (num_tiles, chunk)


@pytest.mark.parametrize("group", GROUPS)
def test_walking_groups_is_a_bijection_on_every_grid_up_to_64_by_64(group: int) -> None:
    _, coordinates = kernel_functions()
    for rows in range(1, 65):
        for columns in range(1, 65):
            row, column = coordinates(np.arange(rows * columns), rows, columns, group, 8, 0)
            assert row.max() < rows, (rows, columns)
            assert column.max() < columns, (rows, columns)
            assert is_bijection(row * columns + column, rows * columns), (rows, columns)


def test_the_kernel_composes_both_and_the_simulator_walks_tiles_as_the_kernel_does() -> None:
    _, coordinates = kernel_functions()
    rng = random.Random(3)
    for _ in range(300):
        rows, columns = rng.randint(1, 64), rng.randint(1, 64)
        group, chunk, num_xcds = rng.choice(GROUPS), rng.choice(CHUNKS), rng.choice(XCDS)
        blocks = np.arange(rows * columns)
        row, column = coordinates(blocks, rows, columns, group, num_xcds, chunk)
        assert is_bijection(row * columns + column, rows * columns)
        order = BlockOrder(group, chunk)
        mine = tile_of(blocks, SlicedGrid(rows, columns, 1, 1, 1), order, num_xcds)
        np.testing.assert_array_equal(mine[0], row)
        np.testing.assert_array_equal(mine[1], column)
