"""Blocks of the streaming quantised GEMM, their shares, the rules that follow, and resources. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.shape import cluster_slots
from constrint.kernels.gemm.quantised.shape import (
    MOST_ROWS,
    NARROW,
    READ,
    READ_BYTES,
    SUM_BYTES,
    WARP,
    WARP_ROWS,
    columns_of,
    tiles_of,
)
from constrint.model import Var, any_of, ceildiv, const, maximum, minimum
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.limits import BlockUse
from constrint.select.spec import Rule, Vars

#: Bytes of a stage's barriers and of their place; of a scale and a zero of 16 rows; what stages are aligned to.
BARRIER_BYTES, SCALES_BYTES, ALIGNMENT = 128, 64, 128
#: Bytes beyond a row of X in a stage, by the bits of W: rows that are read together begin in other banks.
PADDING = {4: 16, 8: 64}
#: Reads of a chunk along K, at most, and warps that multiply, at least and at most.
MOST_CHUNK, FEWEST_WARPS, MOST_WARPS = 16, 6, 16
#: Warps that copy: one numbers, one scales and X.
COPYING_WARPS = 2
#: Reads whose products take a scale together, at most, by the bits of W: 128 numbers.
MOST_STEP = {4: 2, 8: 4}
#: Registers of a thread beside vectors of X, and of each tile by the matrix instructions of the rows of X: fitted to
#: the compiler's, which reads ahead.
OTHER_REGISTERS, TILE_REGISTERS = 36, {1: 17, 2: 26}
CLUSTERS = (1, 2, 4, 8)
#: Parameters, all of which the kernel is compiled for.
PARAMETERS = ("rows", "row_warps", "k_warps", "tiles", "stages", "split_k")
VARIABLES = {name: Var(name) for name in PARAMETERS}
ROW_WARPS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)


def x_rows_of(m: int) -> int:
    """Rows of X in a stage: the power of two from M on."""
    return min(1 << (m - 1).bit_length(), MOST_ROWS)


def slots_of(gpu: GpuModel, split_k: Any) -> Any:
    """Clusters that run at once, one block on an SM."""
    fours = minimum(const(4), split_k)
    return cluster_slots(gpu, fours) // (split_k // fours)


def stage_bytes(v: Mapping[str, Any], m: int, bits: int, group: int) -> Any:
    """Shared memory of a stage: numbers, scales with zeros, and X."""
    reads = v["tiles"] * v["k_warps"]
    depth = reads * READ[bits]
    rows = v["rows"] * v["row_warps"]
    of_tile = reads * READ_BYTES + maximum(const(1), depth // group) * SCALES_BYTES
    used = rows * of_tile + x_rows_of(m) * (2 * depth + PADDING[bits])
    return (used + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def sums_bytes(v: Mapping[str, Any], m: int) -> Any:
    """Shared memory of the sums of warps."""
    return v["k_warps"] * v["rows"] * v["row_warps"] * WARP_ROWS * columns_of(m) * SUM_BYTES


def share_of(gpu: GpuModel, n: int, v: Mapping[str, Any]) -> Any:
    """Tiles of a block or cluster, at most."""
    return ceildiv(const(tiles_of(n)), minimum(const(tiles_of(n)), slots_of(gpu, v["split_k"])))


def smem_bytes(gpu: GpuModel, v: Mapping[str, Any], m: int, n: int, bits: int, group: int) -> Any:
    """Shared memory of a block. Sums take the place of stages where there is one pass."""
    stages, sums = v["stages"] * stage_bytes(v, m, bits, group), sums_bytes(v, m)
    is_one = minimum(const(1), v["rows"] * v["row_warps"] // share_of(gpu, n, v))
    return BARRIER_BYTES + maximum(stages, sums) + (1 - is_one) * minimum(stages, sums)


def threads_of(v: Mapping[str, Any]) -> Any:
    """Threads of a block: warps that multiply, and those that copy."""
    return WARP * (v["row_warps"] * v["k_warps"] + COPYING_WARPS)


def launched_registers(gpu: GpuModel, v: Mapping[str, Any]) -> Any:
    """Registers that the compiler may give a thread of a block that is alone on its SM: partitions have whole warps."""
    warps = ceildiv(v["row_warps"] * v["k_warps"] + COPYING_WARPS, const(gpu.sm.num_partitions))
    return minimum(const(gpu.sm.max_registers_per_thread), gpu.register_file.capacity // (WARP * warps) // 8 * 8)


def held_registers(v: Mapping[str, Any], m: int, bits: int, group: int) -> Any:
    """Registers of a thread: vectors of X of a step, and the sums, products and numbers of tiles."""
    narrow = columns_of(m) // NARROW
    step = minimum(v["tiles"], const(min(MOST_STEP[bits], group // READ[bits])))
    vectors = step * narrow * 4 * (READ[bits] // 32)
    return OTHER_REGISTERS + TILE_REGISTERS[narrow] * v["rows"] + vectors


def block_use(gpu: GpuModel, v: Vars, sizes: Mapping[str, int], bits: int, group: int) -> BlockUse:
    """Warps, registers and shared memory of one block."""
    registers = launched_registers(gpu, v)
    return BlockUse(
        warps=v["row_warps"] * v["k_warps"] + COPYING_WARPS,
        registers_per_thread=registers,
        smem_bytes=smem_bytes(gpu, v, sizes["m"], sizes["n"], bits, group),
        least_registers=registers,
        spilling=None,
    )


def rules(gpu: GpuModel, sizes: Mapping[str, int], bits: int, group: int, v: Vars) -> Iterator[Rule]:
    """Every rule of the kernel."""
    m, n, k = (sizes[name] for name in ("m", "n", "k"))
    most = f"a block of {gpu.name} has up to {gpu.sm.max_smem_bytes_per_block:,} bytes of {gpu.terms.smem}"
    smem = smem_bytes(gpu, v, m, n, bits, group)
    yield Rule(smem <= gpu.sm.max_smem_bytes_per_block, "block_smem", most, CERTAIN)
    clear = "sums, products and vectors of X fit the registers that a block alone on an SM leaves a thread"
    yield Rule(held_registers(v, m, bits, group) <= launched_registers(gpu, v), "registers", clear, CERTAIN)
    portable = gpu.device.max_cluster_blocks_portable or 1
    yield Rule(v["split_k"] <= portable, "cluster", f"{gpu.name} has clusters of up to {portable}", CERTAIN)
    warps = v["row_warps"] * v["k_warps"]
    some = f"{FEWEST_WARPS} to {MOST_WARPS} warps multiply"
    yield Rule(warps >= FEWEST_WARPS, "fewest_warps", some, REDUNDANT)
    yield Rule(warps <= MOST_WARPS, "most_warps", some, CERTAIN)
    chunk = f"a chunk has up to {MOST_CHUNK} reads, which divide padded rows of weights"
    yield Rule(v["tiles"] * v["k_warps"] <= MOST_CHUNK, "chunk", chunk, CERTAIN)
    taken, share = v["rows"] * v["row_warps"], share_of(gpu, n, v)
    whole = "a cluster adds up sums once: its blocks take all of its tiles at a time"
    yield Rule(any_of(v["split_k"] == 1, taken >= share), "cluster_pass", whole, CERTAIN)
    few = "a block takes few more tiles at a time than it has"
    yield Rule(4 * taken <= 5 * share + 4, "tiles_in_share", few, REDUNDANT)
    chunks = -(-k // READ[bits]) // (v["tiles"] * v["k_warps"])
    deep = "every block of a cluster has chunks of its own"
    yield Rule(any_of(v["split_k"] == 1, v["split_k"] <= chunks), "own_chunks", deep, REDUNDANT)
