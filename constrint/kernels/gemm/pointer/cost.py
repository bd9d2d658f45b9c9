"""Predicted time of the pointer kernel: its work per block and per grid, fed to the general cost model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.measured import MEASURED, Measured
from constrint.kernels.gemm.pointer.traffic import Tiles, operand_traffic
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.spec import matrix_peak_flop_per_s
from constrint.kernels.gemm.tma.operands import has_tma
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
from constrint.select.cost import LAUNCH_S, CostColumns, TileWork, cost_assumptions, estimate
from constrint.select.spec import Columns

#: Share of the peak that mma.sync reaches where wgmma or tcgen05 is needed for all of it. Hopper: 0.63 (third-party
#: microbenchmarks, arXiv 2402.13499); data-centre Blackwell: assumed, its legacy path running at about Hopper's rate.
FALLBACK_EFFICIENCY = {"wgmma": 0.63, "tcgen05": 0.28}

#: Share of the plain units' peak left for FMA beside loads from shared memory and widening to fp32. Assumed.
FMA_EFFICIENCY = 0.75


def pointer_cost(
    gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any], constants: Measured = MEASURED
) -> CostColumns:
    """Predicted time of every configuration; a lower bound where the block order is left open.

    Args:
        gpu: The hardware model.
        product: The product. A batch counts as one product with the rows of all; that is exact but for tiles that
            would contain rows of two products.
        columns: Parameters, per configuration.
        blocks_per_sm: Blocks that reside on one SM.
        constants: The measured figures.
    """
    c = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
    m, n, k, dtype = product.m * product.batch, product.n, product.k, product.dtype
    element, output = ELEMENT_BYTES[dtype], OUTPUT_BYTES[dtype]
    rows, cols = np.ceil(m / c["tile_m"]), np.ceil(n / c["tile_n"])
    splits = c["split_k"]
    num_blocks = rows * cols * splits
    resident_per_sm = np.maximum(np.asarray(blocks_per_sm, dtype=np.float64), 1.0)
    # A persistent grid has one block per SM.
    resident_per_sm = np.where(c["persistent"] > 0, 1.0, resident_per_sm)
    iterations = np.ceil(k / (c["tile_k"] * splits))
    a_bytes, b_bytes = (c[t] * c["tile_k"] * element for t in ("tile_m", "tile_n"))
    resident = np.minimum(num_blocks, gpu.device.sm_count * resident_per_sm)
    stored = m * n * output + np.where(splits > 1, m * n * PARTIAL_BYTES * splits, 0.0)
    l2_miss, dram = _traffic(gpu, c, rows, cols, k * element, resident)
    direct = _is_direct(gpu, dtype, c)
    efficiency, smem = _instruction(gpu, dtype, c, a_bytes, b_bytes, direct)
    if promotion_interval(gpu, dtype, 1) is not None:
        efficiency = efficiency * np.where(direct, constants.promoted_share, 1.0)
    a, b = product.a, product.b
    run_a = (c["tile_k"] if a.is_k_major else np.minimum(c["tile_m"], m)) * element
    run_b = (c["tile_k"] if b.is_k_major else np.minimum(c["tile_n"], n)) * element
    split = constants.pointer_split_lines, constants.pointer_split_sectors
    loaded = num_blocks * iterations * (a_bytes + b_bytes)
    work = TileWork(
        num_blocks=num_blocks,
        blocks_per_sm=resident_per_sm,
        warps_per_block=c["num_warps"],
        iterations=iterations,
        flop=2.0 * c["tile_m"] * c["tile_n"] * c["tile_k"],
        matrix_efficiency=efficiency,
        smem_bytes=smem,
        # Each row of an operand's tile is one contiguous run, and occupies whole requests on the way from the L2.
        load_bytes=sum(
            num_bytes * np.maximum(1.0, constants.request_bytes / run) * straddling(gpu, operand.step_bytes, *split)
            for num_bytes, run, operand in ((a_bytes, run_a, a), (b_bytes, run_b, b))
        ),
        load_instructions=a_bytes / a.width_bytes + b_bytes / b.width_bytes,
        store_bytes=c["tile_m"] * c["tile_n"] * np.where(splits > 1, PARTIAL_BYTES, output),
        is_async=direct,
        stages_in_flight=_stages_in_flight(gpu, c["num_stages"], direct, min(a.width_bytes, b.width_bytes)),
        l2_bytes=loaded + stored,
        last_level_bytes=l2_miss + stored,
        dram_bytes=dram + stored,
        is_persistent=c["persistent"],
        extra_s=_reduction_s(gpu, constants, m * n, splits),
        load_latency_s=_latency_s(gpu, loaded, l2_miss, dram),
        l2_bytes_per_s=_cache_rate(gpu, loaded, l2_miss, dram),
    )
    estimated = estimate(gpu, matrix_peak_flop_per_s(gpu, dtype), work)
    seconds = estimated.seconds
    if gpu.has_figure("one_stage_slowdown"):
        seconds = seconds * np.where(c["num_stages"] == 1, gpu.figure("one_stage_slowdown"), 1.0)
    if has_tma(gpu):
        seconds = _beside_tma(constants, seconds, dram / gpu.memory.dram.bandwidth_bytes_per_s)
    return CostColumns(seconds, estimated.parts_s)


def _beside_tma(constants: Measured, seconds: Any, dram_s: Any) -> Any:
    """Count DRAM by the same norm as the kernels that load through the TMA unit, on GPUs where these compete.

    The constants of `estimate` were fitted to the full bandwidth. Products that wait for DRAM then look a fifth faster
    here than in the other kernels' model; measured, they take the same time.
    """
    busy_s = np.maximum(seconds - constants.launch_s, 0.0)
    waited_s = dram_s / constants.pointer_dram_share
    return np.maximum(seconds, constants.launch_s + np.cbrt(busy_s**3 + waited_s**3))


def _traffic(
    gpu: GpuModel, c: dict[str, Any], rows: Any, cols: Any, depth_bytes: int, resident: Any
) -> tuple[Any, Any]:
    """L2 misses and DRAM bytes for A and B; with the order left open, what no order can beat."""
    row_bytes, column_bytes = c["tile_m"] * depth_bytes, c["tile_n"] * depth_bytes
    if "group_m" not in c:
        least = rows * row_bytes + cols * column_bytes
        return least, least
    traffic = operand_traffic(
        gpu,
        Tiles(
            rows=rows,
            columns=cols,
            row_bytes=row_bytes,
            column_bytes=column_bytes,
            resident=np.maximum(1.0, resident / c["split_k"]),
            group_m=c["group_m"],
            xcd_chunk=c.get("xcd_chunk", np.zeros_like(rows)),
        ),
    )
    return traffic.l2_miss_bytes, traffic.dram_bytes


def pointer_assumptions(gpu: GpuModel) -> list[str]:
    """What the cost model assumes about this GPU for want of a source, a sentence each."""
    lines = cost_assumptions(gpu)
    if gpu.has_figure("l2_hit_latency_s"):
        hit, l2_miss, miss = (gpu.figure(n) * 1e6 for n in ("l2_hit_latency_s", "l2_miss_s", "last_level_miss_s"))
        added = f"{l2_miss:.1f} and {miss:.1f} us more per miss of L2 and last level"
        lines[0] = f"{hit:.1f} us load latency, {added}, {LAUNCH_S * 1e6:.1f} us launch"
    assumed = _assumed_rates(gpu)
    if assumed is not None:
        rates = (assumed[0] / 1e12, assumed[1] / 1e12)
        lines = [line for line in lines if not line.startswith("L2 bandwidth")]
        lines.append("L2 and last-level bandwidth unconfirmed: {} and {} TB/s assumed".format(*rates))
    return lines


def _latency_s(gpu: GpuModel, loaded: Any, l2_miss: Any, dram: Any) -> Any:
    """Mean latency of a load under the cache hits of its block order; None where the vendor's mean stands."""
    if not gpu.has_figure("l2_hit_latency_s"):
        return None
    return (
        gpu.figure("l2_hit_latency_s")
        + gpu.figure("l2_miss_s") * np.minimum(1.0, l2_miss / loaded)
        + gpu.figure("last_level_miss_s") * np.minimum(1.0, dram / loaded)
    )


def _cache_rate(gpu: GpuModel, loaded: Any, l2_miss: Any, dram: Any) -> Any:
    """Bytes per second that L2 and last level deliver together at these hit rates, where both rates are assumed.

    Each assumed rate is that of a cache in which everything hits:
    rate = L2 rate x share of L2 hits + last-level rate x share of its hits, and at least that of DRAM.
    """
    rates = _assumed_rates(gpu)
    if rates is None:
        return None
    hits, last_hits = np.maximum(loaded - l2_miss, 0.0) / loaded, np.maximum(l2_miss - dram, 0.0) / l2_miss
    caches = rates[0] * hits + rates[1] * last_hits
    return np.maximum(caches, gpu.memory.dram.bandwidth_bytes_per_s)


def _assumed_rates(gpu: GpuModel) -> tuple[float, float] | None:
    """What a third party says of L2 and last level, where no vendor states their rates."""
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


def _stages_in_flight(gpu: GpuModel, stages: Any, direct: Any, width: int) -> Any:
    """How many iterations ahead of their use loads are issued; `width` is bytes per load of the narrower operand.

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
    if matrix.fallback is None:
        return FMA_EFFICIENCY if matrix.kind == "fma" else 1.0, written + by_warps
    rows_per_instruction = 64.0 if matrix.kind == "wgmma" else 128.0
    from_smem = a_bytes + b_bytes * np.ceil(c["tile_m"] / rows_per_instruction)
    efficiency = np.where(direct, 1.0, FALLBACK_EFFICIENCY[matrix.kind])
    return efficiency, written + np.where(direct, from_smem, by_warps)


def _reduction_s(gpu: GpuModel, constants: Measured, elements: int, splits: Any) -> Any:
    """Seconds in which the last block of each split tile learns that it is the last, and reads all partial sums."""
    read_s = elements * PARTIAL_BYTES * splits / gpu.memory.dram.bandwidth_bytes_per_s
    return np.where(splits > 1, constants.split_finish_s + constants.split_read_s * splits + read_s, 0.0)
