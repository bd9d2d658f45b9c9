"""The blocks of the quantised GEMM, how they share its work, the rules that follow, and their resources. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.model import const, minimum
from constrint.model.constraint import CERTAIN
from constrint.select.limits import BlockUse
from constrint.select.spec import Rule, Vars

#: Warps of a block, rows of W of a warp and of a block, and bytes that a warp reads at a time.
WARPS, WARP_ROWS, READ_BYTES = 8, 16, 512
ROWS, THREADS = WARPS * WARP_ROWS, 32 * WARPS
#: Most rows of X, and rows of a matrix instruction.
MOST_ROWS, NARROW = 16, 8
#: Weights are padded along K to a multiple of this many numbers, by their bits: whole chunks of any configuration.
STEP = {4: 1024, 8: 512}
#: Numbers along K of one read of a warp, by their bits.
READ = {4: 64, 8: 32}
#: Bytes of a scale and a zero.
SCALE_BYTES = 4
#: Bytes behind a row of X in shared memory, which spread rows over its banks.
GAP = {4: 16, 8: 64}
STATIC_BYTES = 16
#: Registers of a thread beside those that are counted.
OTHER_REGISTERS = 40


def columns_of(m: int) -> int:
    """Rows of X that sums are kept for."""
    return NARROW if m <= NARROW else MOST_ROWS


def chunk_of(v: Mapping[str, Any], bits: int) -> Any:
    """Numbers along K of a chunk."""
    return v["tiles"] * READ[bits]


def takes(bits: int, group: int) -> bool:
    """Whether the kernel takes such weights: a group has whole reads of a warp, a power of two of them."""
    if bits not in READ or group % READ[bits]:
        return False
    reads = group // READ[bits]
    return reads & (reads - 1) == 0


def padded(n: int, k: int, bits: int) -> tuple[int, int]:
    """Rows and numbers along K of packed weights."""
    return -(-n // ROWS) * ROWS, -(-k // STEP[bits]) * STEP[bits]


def packed_bytes(n: int, k: int, bits: int, group: int) -> int:
    """Bytes of packed weights with their scales and zeros."""
    rows, depth = padded(n, k, bits)
    return rows * (depth * bits // 8 + -(-depth // group) * SCALE_BYTES)


def smem_bytes(v: Mapping[str, Any], m: int, bits: int) -> Any:
    """Shared memory of a block: two chunks of X."""
    return 2 * columns_of(m) * (chunk_of(v, bits) * 2 + GAP[bits]) + STATIC_BYTES


def launched_registers(gpu: GpuModel, v: Mapping[str, Any]) -> Any:
    """Registers that the compiler may give a thread, so that an SM holds `resident` blocks."""
    whole = gpu.sm.num_partitions * gpu.register_file.capacity
    return minimum(const(gpu.sm.max_registers_per_thread), whole // (THREADS * v["resident"]) // 8 * 8)


def block_use(gpu: GpuModel, v: Vars, m: int, bits: int) -> BlockUse:
    """Warps, registers and shared memory of one block."""
    registers = launched_registers(gpu, v)
    return BlockUse(
        warps=const(WARPS),
        registers_per_thread=registers,
        smem_bytes=smem_bytes(v, m, bits),
        least_registers=registers,
        spilling=None,
    )


def rules(gpu: GpuModel, m: int, bits: int, group: int, v: Vars) -> Iterator[Rule]:
    """Every rule of the kernel."""
    threads = "threads of a block are dealt whole vectors of a chunk of X"
    yield Rule(columns_of(m) * chunk_of(v, bits) % (8 * THREADS) == 0, "vectors", threads, CERTAIN)
    smem = (smem_bytes(v, m, bits) + gpu.sm.smem_reserved_bytes_per_block) * v["resident"]
    there = gpu.sm.smem_bytes_per_sm
    fits = f"an SM of {gpu.name} has {there:,} bytes of {gpu.terms.smem} for the blocks that it is to hold"
    yield Rule(smem <= there, "resident_smem", fits, CERTAIN)
    columns = columns_of(m)
    taken = OTHER_REGISTERS + 4 * v["tiles"] + v["tiles"] * columns // 4 + 4 * (columns - NARROW)
    # A scale and a zero of both rows for each group of a chunk.
    taken = taken + 2 * v["tiles"] // max(1, group // READ[bits])
    clear = "vectors under way, those of X and sums fit the registers that the blocks of an SM leave a thread"
    yield Rule(taken <= launched_registers(gpu, v), "registers_under_way", clear, CERTAIN)
