"""The GEMM's work per block and per grid, fed to the general cost model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm import resources
from constrint.kernels.gemm.cost_descriptor import MEASURED, descriptor_cost
from constrint.kernels.gemm.descriptor import promotion_interval
from constrint.kernels.gemm.traffic import Tiles, operand_traffic
from constrint.model import Var
from constrint.select.cost import LAUNCH_S, PARTS, CostColumns, TileWork, cost_assumptions, estimate
from constrint.select.spec import Columns, Workload

#: Share of the peak that mma.sync reaches where wgmma or tcgen05 is needed for all of it. Hopper: 0.63 (third-party
#: microbenchmarks, arXiv 2402.13499); data-centre Blackwell: assumed, its legacy path running at about Hopper's rate.
FALLBACK_EFFICIENCY = {"wgmma": 0.63, "tcgen05": 0.28}

#: Share of the plain units' peak left for FMA beside loads from shared memory and widening to fp32. Assumed.
FMA_EFFICIENCY = 0.75
#: AMD: seconds of a load that hits the L2 (assumed), and what a miss of the L2 and one of the last-level cache add
#: (HipKittens, arXiv 2511.08083, MI355X).
L2_LATENCY_S = 0.2e-6
L2_MISS_S = 0.3e-6
LAST_LEVEL_MISS_S = 0.5e-6
#: CDNA4: bytes per second from all L2s and from the last-level cache when everything hits; the caches together deliver
#: the sum weighted by their hit rates. No vendor states either: HipKittens' table is 5.75 TB/s times (3 * L2 + LLC).
CDNA4_L2_BYTES_PER_S = 17.25e12
CDNA4_LAST_LEVEL_BYTES_PER_S = 5.75e12
#: Seconds to hand a split tile over - its stores, an atomic - and for the last block to read each partial sum. By eye
#: from 29 configurations of 100x300x5000 and of 8 to 24 rows measured on one H200; of those measurements only the
#: descriptor kernel's were kept (`benchmarks/results/h200/gemm_few_rows_bf16.csv`).
SPLIT_FINISH_S = 1.7e-6
SPLIT_READ_S = 0.2e-6
#: Share of the DRAM's bandwidth that the pointer kernel reaches where the descriptor kernel competes. Fitted with it.
DRAM_SHARE = 0.7
#: A shorter contiguous run takes as long to load as this many bytes (half a 128-byte line).
REQUEST_BYTES = 64
#: NVIDIA: how much longer a main loop of one stage takes than its loads and its arithmetic, one after the other, since
#: what is loaded passes through registers. Measured 1.23 to 1.41 on 13 shapes (`gemm_exhaustive_bf16.csv.gz`).
ONE_STAGE = 1.3
#: How much longer loads of rows take that start within lines, or within sectors, of the L2. Measured on one H200
#: (1000^3 with padded and unpadded rows); assumed to be nothing on AMD.
SPLIT_LINES = 1.15
SPLIT_SECTORS = 1.5


def matrix_peak_flop_per_s(gpu: GpuModel, dtype: str) -> float:
    """Dense peak of the unit that Triton uses for this dtype."""
    if resources.unit(gpu, dtype).kind == "fma":
        peak = gpu.vector_flop_per_s("fp32")
    else:
        peak = gpu.peak_flop_per_s(dtype)
    if peak is None:
        raise UnsupportedError(f"the peak rate of {gpu.name} for {dtype} is unconfirmed, so no time can be modelled.")
    return peak


def gemm_cost(
    gpu: GpuModel,
    workload: Workload,
    columns: Columns,
    blocks_per_sm: NDArray[Any],
    operands: resources.Operands | None = None,
) -> CostColumns:
    """Predicted time of every configuration; a lower bound where the block order is left open.

    Args:
        gpu: The hardware model.
        workload: Sizes and dtype.
        columns: Parameters, per configuration.
        blocks_per_sm: Blocks that reside on one SM.
        operands: How they lie in memory; row-major and contiguous if None.
    """
    if "descriptor" in columns and np.any(columns["descriptor"]):
        return _cost_of_both(gpu, workload, columns, blocks_per_sm)
    c = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
    m, n, k = (workload.sizes[s] for s in ("m", "n", "k"))
    element, output = resources.ELEMENT_BYTES[workload.dtype], resources.OUTPUT_BYTES[workload.dtype]
    rows, cols = np.ceil(m / c["tile_m"]), np.ceil(n / c["tile_n"])
    splits = c["split_k"]
    num_blocks = rows * cols * splits
    resident_per_sm = np.maximum(np.asarray(blocks_per_sm, dtype=np.float64), 1.0)
    # A persistent grid has one block per SM.
    resident_per_sm = np.where(c["persistent"] > 0, 1.0, resident_per_sm)
    iterations = np.ceil(k / (c["tile_k"] * splits))
    a_bytes, b_bytes = (c[t] * c["tile_k"] * element for t in ("tile_m", "tile_n"))
    resident = np.minimum(num_blocks, gpu.device.sm_count * resident_per_sm)
    stored = m * n * output + np.where(splits > 1, m * n * resources.PARTIAL_BYTES * splits, 0.0)
    l2_miss, dram = _traffic(gpu, c, rows, cols, k * element, resident)
    direct = _is_direct(gpu, workload.dtype, c)
    efficiency, smem = _instruction(gpu, workload.dtype, c, a_bytes, b_bytes, direct)
    if promotion_interval(gpu, workload.dtype, 1) is not None:
        efficiency = efficiency * np.where(direct, MEASURED.promoted_share, 1.0)
    operands = operands or resources.row_major(workload)
    widths = operands.widths
    run_a = (c["tile_k"] if operands.is_a_k_major else np.minimum(c["tile_m"], m)) * element
    run_b = (c["tile_k"] if operands.is_b_k_major else np.minimum(c["tile_n"], n)) * element
    loaded = num_blocks * iterations * (a_bytes + b_bytes)
    work = TileWork(
        num_blocks=num_blocks,
        blocks_per_sm=resident_per_sm,
        warps_per_block=c["num_warps"],
        iterations=iterations,
        flop=2.0 * c["tile_m"] * c["tile_n"] * c["tile_k"],
        matrix_efficiency=efficiency,
        smem_bytes=smem,
        load_bytes=sum(
            _requested(num_bytes, run) * _straddling(gpu, step)
            for num_bytes, run, step in zip((a_bytes, b_bytes), (run_a, run_b), operands.steps, strict=True)
        ),
        load_instructions=a_bytes / widths.a + b_bytes / widths.b,
        store_bytes=c["tile_m"] * c["tile_n"] * np.where(splits > 1, resources.PARTIAL_BYTES, output),
        is_async=direct,
        stages_in_flight=_stages_in_flight(gpu, c["num_stages"], direct, min(widths.a, widths.b)),
        l2_bytes=loaded + stored,
        last_level_bytes=l2_miss + stored,
        dram_bytes=dram + stored,
        is_persistent=c["persistent"],
        extra_s=_reduction_s(gpu, m * n, splits),
        load_latency_s=_latency_s(gpu, loaded, l2_miss, dram),
        l2_bytes_per_s=_cache_rate(gpu, loaded, l2_miss, dram),
    )
    found = estimate(gpu, matrix_peak_flop_per_s(gpu, workload.dtype), work)
    if gpu.vendor == "nvidia":
        found = CostColumns(found.seconds * np.where(c["num_stages"] == 1, ONE_STAGE, 1.0), found.parts_s)
    return (
        _beside_descriptors(found, dram / gpu.memory.dram.bandwidth_bytes_per_s) if "descriptor" in columns else found
    )


def _beside_descriptors(found: CostColumns, dram_s: Any) -> CostColumns:
    """Where the descriptor kernel competes, count DRAM as its cost does: at the reachable share, by the same norm.

    The constants of `estimate` were fitted without such a share, which made products that wait for DRAM look a fifth
    faster here than there; measured, they take the same.
    """
    busy = found.seconds - MEASURED.launch_s
    waited = dram_s / DRAM_SHARE
    seconds = MEASURED.launch_s + np.cbrt(np.maximum(busy, 0.0) ** 3 + waited**3)
    return CostColumns(np.maximum(found.seconds, seconds), found.parts_s)


def _cost_of_both(gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
    """The two kernels' own costs, row by row."""
    is_tma = np.asarray(columns["descriptor"]) > 0
    if is_tma.all():
        return descriptor_cost(gpu, workload, columns, blocks_per_sm)
    seconds = np.empty(len(is_tma))
    parts = {name: np.empty(len(is_tma)) for name in PARTS}
    for mask, price in ((is_tma, descriptor_cost), (~is_tma, gemm_cost)):
        rows = np.flatnonzero(mask)
        here = {name: np.asarray(column)[rows] for name, column in columns.items()}
        found = price(gpu, workload, here, np.asarray(blocks_per_sm)[rows])
        seconds[rows] = found.seconds
        for name, column in parts.items():
            column[rows] = found.parts_s[name]
    return CostColumns(seconds, parts)


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


def gemm_assumptions(gpu: GpuModel) -> list[str]:
    """What the cost model assumes about this GPU for want of a source, a sentence each."""
    lines = cost_assumptions(gpu)
    if gpu.vendor == "amd":
        added = f"{L2_MISS_S * 1e6:.1f} and {LAST_LEVEL_MISS_S * 1e6:.1f} us more per miss of L2 and last level"
        lines[0] = f"{L2_LATENCY_S * 1e6:.1f} us load latency, {added}, {LAUNCH_S * 1e6:.1f} us launch"
    if gpu.arch.target == "gfx950":
        rates = (CDNA4_L2_BYTES_PER_S / 1e12, CDNA4_LAST_LEVEL_BYTES_PER_S / 1e12)
        lines = [line for line in lines if not line.startswith("L2 bandwidth")]
        lines.append("L2 and last-level bandwidth unconfirmed: {} and {} TB/s assumed".format(*rates))
    return lines


def _latency_s(gpu: GpuModel, loaded: Any, l2_miss: Any, dram: Any) -> Any:
    """Mean latency of a load under the cache hits of its block order (AMD); None where the fitted constant stands."""
    if gpu.vendor != "amd":
        return None
    return (
        L2_LATENCY_S
        + L2_MISS_S * np.minimum(1.0, l2_miss / loaded)
        + LAST_LEVEL_MISS_S * np.minimum(1.0, dram / loaded)
    )


def _cache_rate(gpu: GpuModel, loaded: Any, l2_miss: Any, dram: Any) -> Any:
    """Bytes per second that L2 and last level deliver together under these hits (CDNA4); None elsewhere."""
    if gpu.arch.target != "gfx950":
        return None
    hits, last_hits = np.maximum(loaded - l2_miss, 0.0) / loaded, np.maximum(l2_miss - dram, 0.0) / l2_miss
    caches = CDNA4_L2_BYTES_PER_S * hits + CDNA4_LAST_LEVEL_BYTES_PER_S * last_hits
    return np.maximum(caches, gpu.memory.dram.bandwidth_bytes_per_s)


def _requested(operand_bytes: Any, run_bytes: Any) -> Any:
    """Bytes that loads occupy on the way from the L2, when each row of the operand tile is one contiguous run."""
    return operand_bytes * np.maximum(1.0, REQUEST_BYTES / run_bytes)


def _straddling(gpu: GpuModel, step_bytes: int) -> float:
    """How much longer loads take of rows whose starts are multiples of no more than so many bytes."""
    if gpu.vendor != "nvidia" or step_bytes >= resources.LINE_BYTES:
        return 1.0
    return SPLIT_LINES if step_bytes >= resources.SECTOR_BYTES else SPLIT_SECTORS


def _is_direct(gpu: GpuModel, dtype: str, c: dict[str, Any]) -> Any:
    """Where the tile uses wgmma or tcgen05, which read operands from shared memory on their own."""
    found = resources.unit(gpu, dtype)
    if found.fallback is None:
        return False
    variables = {name: Var(name) for name in ("tile_m", "num_warps")}
    whole = {name: c[name].astype(np.int64) for name in variables}
    return resources.async_share(found, variables).columns(whole) > 0


def _stages_in_flight(gpu: GpuModel, stages: Any, direct: Any, width: int) -> Any:
    """How many iterations ahead of their use loads are issued, the narrower operand's being this wide.

    An asynchronous matrix instruction still reads its stage while the next one is loaded, so one stage less is in
    flight. NVIDIA's asynchronous copies move at least four bytes: narrower loads are not pipelined at all.
    """
    if gpu.vendor == "nvidia" and width < resources.MIN_COPY_BYTES:
        return np.zeros_like(stages)
    return np.maximum(0.0, np.where(direct, stages - 2, stages - 1))


def _instruction(
    gpu: GpuModel, dtype: str, c: dict[str, Any], a_bytes: Any, b_bytes: Any, direct: Any
) -> tuple[Any, Any]:
    """Reachable share of the peak, and shared-memory bytes per iteration, for the instruction a tile gets."""
    found = resources.unit(gpu, dtype)
    written = a_bytes + b_bytes
    # Warps in a grid of wm x wn read A wn times and B wm times; the best grid balances the two.
    by_warps = np.maximum(written, 2.0 * np.sqrt(c["num_warps"] * a_bytes * b_bytes))
    if found.fallback is None:
        return FMA_EFFICIENCY if found.kind == "fma" else 1.0, written + by_warps
    rows_per_instruction = 64.0 if found.kind == "wgmma" else 128.0
    from_smem = a_bytes + b_bytes * np.ceil(c["tile_m"] / rows_per_instruction)
    efficiency = np.where(direct, 1.0, FALLBACK_EFFICIENCY[found.kind])
    return efficiency, written + np.where(direct, from_smem, by_warps)


def _reduction_s(gpu: GpuModel, elements: int, splits: Any) -> Any:
    """Seconds in which the last block of each split tile learns that it is, and reads all partial sums."""
    read_s = elements * resources.PARTIAL_BYTES * splits / gpu.memory.dram.bandwidth_bytes_per_s
    return np.where(splits > 1, SPLIT_FINISH_S + SPLIT_READ_S * splits + read_s, 0.0)
