"""A plain model of the kernel for short sides, and what it ranks first. Modelled, not measured; nothing is fitted."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from benchmarks.gemm.skinny.variant import (
    DTYPES,
    LINE_BYTES,
    SHIFTED,
    VECTOR_BYTES,
    WARP,
    Layout,
    Variant,
    dealt,
    variants,
)
from constrint.hwmodels import GpuModel

#: Share of DRAM's bandwidth that a copy reaches, and seconds from a load to its data while DRAM is busy.
COPY_SHARE, LATENCY_S = 0.89, 0.9e-6
#: Bytes per clock: from the L2 to one SM in a stream, from all of the L2 as a share of the SMs' sum, and from L1.
SM_BYTES_PER_CLK, L2_SHARE, L1_BYTES_PER_CLK = 32, 0.75, 128
FMA_PER_CLK = 128
#: Seconds of a launch that nothing hides, of a tile's end, and of handing sums to another block.
LAUNCH_S, END_S, PART_S = 2e-6, 0.7e-6, 2e-6
#: Blocks per tile that are tried.
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)
SMALLS = {0: (1, 2, 4, 8, 16), 1: (8, 16, 32, 64)}
#: Of variants that are dealt the same rows, and share tiles or do not, how many are tried.
ALIKE = 2


def modelled_s(
    gpu: GpuModel, variant: Variant, dtype: str, layout: Layout, shape: tuple[int, int, int], blocks: int
) -> float:
    """Seconds: DRAM, the busiest SM, L2, L1 or the arithmetic, whatever is longest, and what is not hidden.

    Args:
        gpu: The GPU.
        variant: The kernel.
        dtype: The operands' dtype.
        layout: How they lie.
        shape: (rows, small, depth).
        blocks: Blocks that share the steps of one group of columns.
    """
    rows, small, depth = shape
    element, sms, clock = DTYPES[dtype], gpu.device.sm_count, float(gpu.device.boost_clock_hz or 1e9)
    shares = dealt(variant, dtype, layout, shape)
    block_rows = variant.rows(dtype, layout)
    on_sm = math.ceil(blocks * shares.columns / sms)
    active = min(on_sm, variant.resident)
    steps = math.ceil(shares.units / blocks)
    # Lanes whose vectors lie beyond K load nothing, and those beyond the last row what another one loads.
    used = depth / (shares.steps * variant.depth(dtype))
    held = rows / (shares.tiles * block_rows)
    under_way = active * variant.threads * variant.vectors(dtype, layout) * VECTOR_BYTES * used * held
    sm_bytes = on_sm * steps * block_rows * variant.depth(dtype) * used * held * element
    large_bytes = rows * depth * element
    lines = shares.tiles * variant.warps_rows * shares.columns * math.ceil(depth * element / LINE_BYTES)
    vectors = variant.tiles * (2 if layout.is_k_major else VECTOR_BYTES // element) * (1 + (layout.large == SHIFTED))
    narrow = min(variant.small, small) if not variant.mma else variant.small // 8
    l1_bytes = lines * WARP * VECTOR_BYTES * (vectors + narrow)
    l2_bytes = large_bytes * shares.columns + shares.tiles * small * depth * element
    dram = gpu.memory.dram.bandwidth_bytes_per_s or 1e12
    # Bandwidth nears its limit as more bytes are under way than its latency needs.
    needed = dram * COPY_SHARE * LATENCY_S / (under_way * min(sms, blocks * shares.columns))
    seconds = max(
        (large_bytes + (small * depth + rows * small) * element) / (dram * COPY_SHARE) * (1 + needed / 20),
        sm_bytes / min(under_way / LATENCY_S, SM_BYTES_PER_CLK * clock),
        l2_bytes / (sms * SM_BYTES_PER_CLK * clock * L2_SHARE),
        l1_bytes / (sms * L1_BYTES_PER_CLK * clock),
        # Numbers of fewer bits are made fp32 first.
        0.0 if variant.mma else rows * depth * (small + 2 * (element < 4)) / (sms * FMA_PER_CLK * clock),
    )
    contributors = shares.contributors(blocks)
    sums = block_rows * min(variant.small, small)
    tiles_of_block = math.ceil(steps / shares.steps) + (contributors > 1)
    seconds += LAUNCH_S + END_S * tiles_of_block * on_sm / active
    if contributors > 1:
        # The last block reads all that was left, sixteen sums of a thread and two blocks' at a time.
        groups = max(1, min(4 * variant.threads // sums, 32))
        rounds = math.ceil(sums / (16 * variant.threads)) * math.ceil(contributors / groups / 2)
        seconds += PART_S + max(rounds * END_S, contributors * 4 * sums / (SM_BYTES_PER_CLK * clock))
    return seconds


@lru_cache(maxsize=64)
def _every(gpu_name: str, dtype: str, layout: Layout) -> tuple[Variant, ...]:
    from constrint.hwmodels import load_gpu

    return tuple(variants(load_gpu(gpu_name), dtype, layout))


def block_counts(gpu: GpuModel, variant: Variant, dtype: str, layout: Layout, shape: tuple[int, int, int]) -> set[int]:
    """Numbers of blocks that are tried: so many per tile, and as many as the GPU holds."""
    shares = dealt(variant, dtype, layout, shape)
    holds = gpu.device.sm_count * variant.resident
    tried = {shares.tiles * parts for parts in PARTS if parts <= shares.steps and shares.tiles * parts <= 4 * holds}
    return tried | {min(shares.tiles, 1 << 20), min(holds, shares.units), min(gpu.device.sm_count, shares.units)}


def candidates(
    gpu: GpuModel, dtype: str, layout: Layout, shape: tuple[int, int, int], top: int
) -> Iterator[tuple[Variant, int, float]]:
    """Variants and numbers of blocks that the model ranks first, with the modelled seconds."""
    wanted = {(next((n for n in SMALLS[mma] if n >= shape[1]), SMALLS[mma][-1]), mma) for mma in SMALLS}
    ranked = []
    for number, variant in enumerate(_every(gpu.name, dtype, layout)):
        if (variant.small, variant.mma) not in wanted:
            continue
        for blocks in block_counts(gpu, variant, dtype, layout, shape):
            ranked.append(
                (modelled_s(gpu, variant, dtype, layout, shape, blocks), -variant.mma, number, blocks, variant)
            )
    alike: Counter[tuple[int, ...]] = Counter()
    seen = set()
    taken = 0
    # Matrix instructions first where the model sees no difference.
    for seconds, _, _, blocks, variant in heapq.nsmallest(60 * top, ranked):
        is_shared = blocks > dealt(variant, dtype, layout, shape).tiles
        key = (variant.tiles, variant.unroll, variant.warps_rows, variant.mma, int(is_shared))
        # What is resident tells the compiler of registers alone: one of each is enough.
        whole = (*key, variant.warps_depth, blocks)
        if alike[key] < ALIKE and taken < top and whole not in seen:
            seen.add(whole)
            alike[key] += 1
            taken += 1
            yield variant, blocks, seconds
