"""Predicted time of the pointer kernel: its work per block and per grid, priced by the general cost model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel, assumed
from constrint.kernels.gemm.measured import MEASURED, Measured
from constrint.kernels.gemm.product import Product, activation_clk, has_tma
from constrint.kernels.gemm.rules import LEAST_ROWS, MAX_TILE
from constrint.kernels.gemm.spec import matrix_peak_flop_per_s
from constrint.kernels.gemm.units import (
    ELEMENT_BYTES,
    OUTPUT_BYTES,
    PARTIAL_BYTES,
    async_share,
    promotion_interval,
    straddling,
    unit,
)
from constrint.model import Var
from constrint.select.cost import (
    BlockTimes,
    CostColumns,
    cost_assumptions,
    dram_bytes_per_s,
    dram_write_cost,
    launch_offset_s,
    launch_s,
    loaded_clock_hz,
)
from constrint.select.spec import Columns
from constrint.select.tile_work import BlockWork, ByRow, GridWork, derived_by_row

#: Share of the peak that mma.sync reaches where wgmma or tcgen05 is needed for all of it. Hopper: 0.63 (third-party
#: microbenchmarks, arXiv 2402.13499); data-centre Blackwell: assumed, its legacy path running at about Hopper's rate.
FALLBACK_EFFICIENCY = {"wgmma": 0.63, "tcgen05": 0.28}

#: Share of the plain units' peak left for FMA beside loads from shared memory and widening to fp32. Assumed.
FMA_EFFICIENCY = 0.75
#: Products of tf32 for one of fp32.
PASSES = 3


def pointer_cost(
    gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any], constants: Measured = MEASURED
) -> CostColumns:
    """Predicted time of every configuration; a lower bound where the block order is left open.

    Args:
        gpu: The hardware model.
        product: The product, or a batch of them, each with tiles and operands of its own.
        columns: Parameters, per configuration.
        blocks_per_sm: Blocks that reside on one SM.
        constants: The measured figures.
    """
    key = "pointer", product.dtype, product.is_three_pass, id(constants), *_lying(gpu, product, constants)

    def blocks(columns: Columns, blocks_per_sm: NDArray[Any]) -> _Blocks:
        return _Blocks(gpu, product, columns, blocks_per_sm, constants)

    return derived_by_row(columns, blocks_per_sm, key, blocks).cost(product, columns)


def _lying(gpu: GpuModel, product: Product, constants: Measured) -> tuple[float, ...]:
    """Return the facts of the operands' layouts that the time of a block depends on."""
    split = constants.pointer_split_lines, constants.pointer_split_sectors
    # Longer runs than a request take no less time per byte.
    longest = math.ceil(constants.request_bytes / ELEMENT_BYTES[product.dtype])
    facts: list[float] = []
    for operand, size, side in ((product.a, product.m, "tile_m"), (product.b, product.n, "tile_n")):
        run = 0 if operand.is_k_major else min(size, longest)
        facts += (
            operand.width_bytes,
            straddling(gpu, operand.step_bytes, *split),
            run,
            _rows(gpu, MAX_TILE[side], size),
        )
    return tuple(facts)


def _rows(gpu: GpuModel, tile: Any, size: int) -> Any:
    """Distinct rows of an operand that a tile loads: beyond the edge it loads the first ones again.

    Where the TMA kernel competes, all count: corrections of both kernels' times were measured with these figures.
    """
    return tile if has_tma(gpu) else np.minimum(tile, size)


class _Blocks(ByRow):
    """Times of blocks per configuration, shared by all products with equal layouts.

    Args:
        gpu: The hardware model.
        product: One of the products.
        columns: Parameters, per configuration.
        blocks_per_sm: Blocks that reside on one SM.
        constants: The measured figures.
    """

    def __init__(
        self, gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any], constants: Measured
    ) -> None:
        c = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
        self.gpu, self.constants, dtype = gpu, constants, product.dtype
        self.tile_m, self.tile_n, self.tile_k, self.splits = (c[n] for n in ("tile_m", "tile_n", "tile_k", "split_k"))
        element, output = ELEMENT_BYTES[dtype], OUTPUT_BYTES[dtype]
        # A persistent grid has one block per SM.
        resident = np.maximum(np.asarray(blocks_per_sm, dtype=np.float64), 1.0)
        resident = np.where(c["persistent"] > 0, 1.0, resident)
        self.resident = gpu.device.sm_count * resident
        self.is_split = c["split_k"] > 1
        a_bytes, b_bytes = (c[t] * c["tile_k"] * element for t in ("tile_m", "tile_n"))
        self.rows, self.columns = _rows(gpu, self.tile_m, product.m), _rows(gpu, self.tile_n, product.n)
        self.slice_bytes = (self.rows + self.columns) * c["tile_k"] * element
        direct = _is_direct(gpu, dtype, c)
        efficiency, smem = _instruction(gpu, dtype, c, a_bytes, b_bytes, direct)
        if promotion_interval(gpu, dtype, 1) is not None:
            efficiency = efficiency * np.where(direct, constants.promoted_share, 1.0)
        efficiency = _beside_splitting(gpu, product, constants, c, efficiency, direct)
        a, b = product.a, product.b
        run_a = (c["tile_k"] if a.is_k_major else np.minimum(c["tile_m"], product.m)) * element
        run_b = (c["tile_k"] if b.is_k_major else np.minimum(c["tile_n"], product.n)) * element
        split = constants.pointer_split_lines, constants.pointer_split_sectors
        work = BlockWork(
            blocks_per_sm=resident,
            warps_per_block=c["num_warps"],
            flop=2.0 * _multiplied_rows(gpu, dtype, c) * c["tile_n"] * c["tile_k"],
            matrix_efficiency=efficiency,
            smem_bytes=smem,
            # Each row of an operand's tile is one contiguous run, and occupies whole requests on the way from the L2.
            load_bytes=sum(
                rows
                * c["tile_k"]
                * element
                * np.maximum(1.0, constants.request_bytes / run)
                * straddling(gpu, operand.step_bytes, *split)
                for rows, run, operand in ((self.rows, run_a, a), (self.columns, run_b, b))
            ),
            load_instructions=a_bytes / a.width_bytes + b_bytes / b.width_bytes,
            store_bytes=c["tile_m"] * c["tile_n"] * np.where(self.is_split, PARTIAL_BYTES, output),
            is_async=direct | alternates(gpu, c),
            stages_in_flight=_stages_in_flight(gpu, c["num_stages"], direct, min(a.width_bytes, b.width_bytes)),
            is_persistent=c["persistent"],
            has_matrix_units=unit(gpu, dtype).kind != "fma",
            dtype=dtype,
        )
        self.times = BlockTimes(gpu, matrix_peak_flop_per_s(gpu, dtype), work)
        self.slowdown: Any = 1.0
        if gpu.has_figure("one_stage_slowdown"):
            self.slowdown = np.where(c["num_stages"] == 1, gpu.figure("one_stage_slowdown"), 1.0)
        self.has_tma = has_tma(gpu)
        self.latencies_s = cache_latencies_s(gpu)
        self.dram_bytes_per_s, self.write_cost = dram_bytes_per_s(gpu), dram_write_cost(gpu)

    def cost(self, product: Product, columns: Columns) -> CostColumns:
        """Predicted times of one product; `columns` may state the order of tiles."""
        gpu, splits = self.gpu, self.splits
        m, n, k, batch = product.m, product.n, product.k, product.batch
        rows, cols = np.ceil(m / self.tile_m), np.ceil(n / self.tile_n)
        num_blocks = batch * (rows * cols * splits)
        iterations = np.ceil(k / (self.tile_k * splits))
        results = batch * m * n
        stored = results * OUTPUT_BYTES[product.dtype] + np.where(self.is_split, results * PARTIAL_BYTES * splits, 0.0)
        resident = np.minimum(num_blocks / batch, self.resident)
        l2_miss, dram = (
            batch * each for each in self._traffic(columns, rows, cols, k * ELEMENT_BYTES[product.dtype], resident)
        )
        loaded = num_blocks * iterations * self.slice_bytes
        grid = GridWork(
            num_blocks=num_blocks,
            iterations=iterations,
            l2_bytes=loaded + stored,
            last_level_bytes=l2_miss + stored,
            dram_bytes=dram + stored * self.write_cost,
            extra_s=self._reduction_s(results),
            load_latency_s=loaded_latency_s(self.latencies_s, loaded, l2_miss, dram),
            l2_bytes_per_s=cache_bytes_per_s(gpu, loaded, l2_miss, dram),
        )
        estimated = self.times.of_grid(grid)
        seconds = estimated.seconds * self.slowdown + self._activation_s(product, rows * cols)
        if self.has_tma:
            added = results * product.output_bytes * product.has_source
            # A batch writes as much as it reads: results count, too.
            seconds = self._beside_tma(seconds, dram + (stored + added if batch > 1 else 0.0))
        return CostColumns(seconds, estimated.parts_s)

    def _traffic(self, columns: Columns, rows: Any, cols: Any, depth_bytes: int, resident: Any) -> tuple[Any, Any]:
        """L2 misses and DRAM bytes of A and B; a lower bound over all orders of tiles where the order is open."""
        row_bytes, column_bytes = self.rows * depth_bytes, self.columns * depth_bytes
        if "group_m" not in columns:
            least = rows * row_bytes + cols * column_bytes
            return least, least
        group_m = np.asarray(columns["group_m"], dtype=np.float64)
        zeros = np.zeros_like(group_m)
        tiles = TileGrid(
            rows=zeros + rows,
            columns=zeros + cols,
            row_bytes=zeros + row_bytes,
            column_bytes=zeros + column_bytes,
            resident=zeros + np.maximum(1.0, resident / self.splits),
            group_m=group_m,
            xcd_chunk=zeros + columns.get("xcd_chunk", 0),
        )
        traffic = operand_traffic(self.gpu, tiles)
        return traffic.l2_miss_bytes, traffic.dram_bytes

    def _beside_tma(self, seconds: Any, dram: Any) -> Any:
        """Count DRAM by the same norm as the kernels that load through the TMA unit, on GPUs where these compete.

        The constants of `estimate` were fitted to the full bandwidth. Products that wait for DRAM then look a fifth
        faster here than in the other kernels' model; measured, they take the same time.
        """
        launch_s = self.constants.launch_s + launch_offset_s(self.gpu)
        busy_s = np.maximum(seconds - launch_s, 0.0)
        waited_s = dram / dram_bytes_per_s(self.gpu, self.constants.pointer_dram_share)
        return np.maximum(seconds, launch_s + np.cbrt(busy_s**3 + waited_s**3))

    def _activation_s(self, product: Product, tiles: Any) -> Any:
        """Seconds in which the busiest SM activates results: blocks of a wave do so at about the same time."""
        each_clk = activation_clk(self.gpu, product)
        if not each_clk:
            return 0.0
        on_sm = np.ceil(tiles / self.gpu.device.sm_count)
        return on_sm * self.tile_m * self.tile_n * each_clk / loaded_clock_hz(self.gpu, product.dtype)

    def _reduction_s(self, elements: int) -> Any:
        """Seconds in which the last block of each split tile learns that it is the last, and reads all partial sums."""
        splits, constants = self.splits, self.constants
        read_s = elements * PARTIAL_BYTES * splits / self.dram_bytes_per_s
        return np.where(self.is_split, constants.split_finish_s + constants.split_read_s * splits + read_s, 0.0)


def pointer_assumptions(gpu: GpuModel, dtype: str) -> list[str]:
    """Return the assumptions about this GPU that no source backs, a sentence each."""
    units = [gpu.dot_unit(dtype) for dtype in ELEMENT_BYTES]
    has_matrix_units = any(facts is not None and facts.kind != "fma" for facts in units)
    lines = cost_assumptions(gpu, dtype, has_matrix_units=has_matrix_units)
    latencies_s = cache_latencies_s(gpu)
    if latencies_s is not None:
        hit, l2_miss, miss = (1e6 * latency_s for latency_s in latencies_s)
        added = f"{l2_miss:.1f} and {miss:.1f} us more per miss of L2 and last level"
        lines[0] = f"{hit:.1f} us load latency, {added}, {launch_s(gpu) * 1e6:.1f} us launch"
    assumed = _assumed_rates(gpu)
    if assumed is not None:
        # Both rates together, as `cache_bytes_per_s` combines them.
        rates = (assumed[0] / 1e12, assumed[1] / 1e12)
        lines = [line for line in lines if not line.startswith(("L2 of", "last-level cache of"))]
        source = gpu.sources[gpu.memory.l2.sources[-1]]
        lines.append("L2 and last-level cache of {} and {} TB/s assumed ({})".format(*rates, source))
    return lines


def cache_latencies_s(gpu: GpuModel) -> tuple[float, float, float] | None:
    """Latency of an L2 hit, and additional latency of misses there and in the last level; None where not stated."""
    if not gpu.has_figure("l2_hit_latency_s"):
        return None
    return gpu.figure("l2_hit_latency_s"), gpu.figure("l2_miss_s"), gpu.figure("last_level_miss_s")


def loaded_latency_s(latencies_s: tuple[float, float, float] | None, loaded: Any, l2_miss: Any, dram: Any) -> Any:
    """Mean latency of a load under the cache hits of its block order; None where the vendor's mean stands."""
    if latencies_s is None:
        return None
    hit_s, l2_miss_s, last_level_miss_s = latencies_s
    last_level_s = last_level_miss_s * np.minimum(1.0, dram / loaded)
    return hit_s + l2_miss_s * np.minimum(1.0, l2_miss / loaded) + last_level_s


def cache_bytes_per_s(gpu: GpuModel, loaded: Any, l2_miss: Any, dram: Any) -> Any:
    """Bytes per second that L2 and last level deliver together at these hit rates, where both rates are assumed.

    Each assumed rate is that of a cache in which everything hits:
    rate = L2 rate x share of L2 hits + last-level rate x share of its hits, and at least that of DRAM.
    """
    rates = _assumed_rates(gpu)
    if rates is None:
        return None
    hits, last_hits = np.maximum(loaded - l2_miss, 0.0) / loaded, np.maximum(l2_miss - dram, 0.0) / l2_miss
    caches = rates[0] * hits + rates[1] * last_hits
    return np.maximum(caches, dram_bytes_per_s(gpu))


def _assumed_rates(gpu: GpuModel) -> tuple[float, float] | None:
    """Rates of L2 and last-level cache as third parties state them; None where a vendor states them."""
    l2, last = gpu.memory.l2.assumed_bandwidth_bytes_per_s, gpu.memory.last_level
    if l2 is None or last is None or last.assumed_bandwidth_bytes_per_s is None:
        return None
    return l2, last.assumed_bandwidth_bytes_per_s


def _is_direct(gpu: GpuModel, dtype: str, c: dict[str, Any]) -> Any:
    """Where the tile uses wgmma or tcgen05, which read operands from shared memory on their own."""
    matrix = unit(gpu, dtype)
    if matrix.fallback is None:
        return False
    variables = {name: Var(name) for name in ("tile_m", "num_warps")}
    whole = {name: c[name].astype(np.int64) for name in variables}
    return async_share(matrix, variables).columns(whole) > 0


def alternates(gpu: GpuModel, c: dict[str, Any]) -> Any:
    """Where two waves of a SIMD take turns: one multiplies while the other loads, so that neither waits for itself.

    Triton 3.9 schedules loops so where the tile is large enough; in the compiled loop `s_setprio` (CDNA3) or
    `cond_barrier` (CDNA4) tells. CDNA3, with two stages: 256x256x32 and 128x256x64 with eight warps and 128x128x32 with
    four have it, 128x256x32 and 128x128x64 with eight have not. CDNA4, with eight warps and three stages: tiles with
    sides of 128 or more and a depth of up to 64 have it, 64x256x32 and 128x128x128 have not; 256x256x128 has it with
    two stages.
    """
    tile_m, tile_n, warps, stages = c["tile_m"], c["tile_n"], c["num_warps"], c["num_stages"]
    if gpu.arch.target == "gfx942":
        volume = tile_m * tile_n * c["tile_k"]
        return (((warps == 8) & (volume >= 1 << 21)) | ((warps == 4) & (volume >= 1 << 19))) & (stages == 2)
    if gpu.arch.target == "gfx950":
        side, deep = np.minimum(tile_m, tile_n), (c["tile_k"] == 128) & (stages == 2)
        return (warps == 8) & (((stages == 3) & (side >= 128) & (c["tile_k"] <= 64)) | (deep & (side >= 256)))
    return False


def _stages_in_flight(gpu: GpuModel, stages: Any, direct: Any, width: int) -> Any:
    """Iterations that loads are issued ahead of their use; `width` is bytes per load of the narrower operand.

    An asynchronous matrix instruction still reads its stage while the next one is loaded, so one stage less is in
    flight. Loads that are too narrow for an asynchronous copy are not pipelined at all.
    """
    if width < gpu.traits.least_pipelined_bytes:
        return np.zeros_like(stages)
    return np.maximum(0.0, np.where(direct, stages - 2, stages - 1))


def _instruction(
    gpu: GpuModel, dtype: str, c: dict[str, Any], a_bytes: Any, b_bytes: Any, direct: Any
) -> tuple[Any, Any]:
    """Reachable share of the peak, and shared-memory bytes per iteration, for the instruction a tile gets."""
    matrix = unit(gpu, dtype)
    written = a_bytes + b_bytes
    # Warps in a grid of wm x wn read A wn times and B wm times; the best grid balances the two.
    by_warps = np.maximum(written, 2.0 * np.sqrt(c["num_warps"] * a_bytes * b_bytes))
    if matrix.kind == "fma":
        return FMA_EFFICIENCY, written + by_warps
    if matrix.fallback is None:
        # Warps beyond one for each instruction of the tile help to load it, and repeat what others multiply.
        m, n, _ = matrix.shapes[0]
        tile = _multiplied_rows(gpu, dtype, c) * c["tile_n"]
        return np.minimum(1.0, tile / (m * n * c["num_warps"])), written + by_warps
    rows_per_instruction = 64.0 if matrix.kind == "wgmma" else 128.0
    from_smem = a_bytes + b_bytes * np.ceil(c["tile_m"] / rows_per_instruction)
    efficiency = np.where(direct, 1.0, FALLBACK_EFFICIENCY[matrix.kind])
    return efficiency, written + np.where(direct, from_smem, by_warps)


def _multiplied_rows(gpu: GpuModel, dtype: str, c: dict[str, Any]) -> Any:
    """Rows that matrix instructions multiply: a tile of fewer rows than AMD's smallest one is filled up."""
    return np.maximum(c["tile_m"], LEAST_ROWS) if unit(gpu, dtype).kind == "mfma" else c["tile_m"]


def _beside_splitting(
    gpu: GpuModel, product: Product, constants: Measured, c: dict[str, Any], efficiency: Any, direct: Any
) -> Any:
    """The share of the peak that is left beside what is done to fp32 operands first, which nothing overlaps."""
    kind = unit(gpu, product.dtype).kind
    if product.dtype != "tf32" or kind == "fma":
        return efficiency
    clk: Any = 0.0
    if product.is_three_pass:
        clk = constants.split_clk * (c["tile_m"] + c["tile_n"]) * c["tile_k"] * np.maximum(1.0, 4 / c["num_warps"])
        efficiency = efficiency / PASSES
    if kind == "wgmma":
        for operand, side in ((product.a, "tile_m"), (product.b, "tile_n")):
            # What is split is in registers anyway.
            share = direct * (not operand.is_k_major) / (2 if product.is_three_pass else 1)
            clk = clk + constants.across_clk * c[side] * c["tile_k"] * share
    flop_per_clk = (
        matrix_peak_flop_per_s(gpu, product.dtype) / gpu.device.sm_count / loaded_clock_hz(gpu, product.dtype)
    )
    flop = 2.0 * c["tile_m"] * c["tile_n"] * c["tile_k"]
    return flop / (flop / efficiency + clk * flop_per_clk)


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
    l2_bytes, last_bytes = assumed.l2_bytes(gpu).value / num_xcds, assumed.last_level_bytes(gpu).value
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
