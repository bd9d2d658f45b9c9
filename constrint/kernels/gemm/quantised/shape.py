"""The blocks of the quantised GEMM, how they share its work, the rules that follow, and their resources. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.model import any_of, ceildiv, const, maximum, minimum
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.limits import BlockUse
from constrint.select.spec import Rule, Vars

#: Rows of W of a warp's read, and its bytes; rows of a row of tiles that weights are padded to.
WARP_ROWS, READ_BYTES, PADDED_ROWS = 16, 512, 128
WARP = 32
#: Most rows of X, and rows of a matrix instruction.
MOST_ROWS, NARROW = 16, 8
#: Weights are padded along K to a multiple of this many numbers, by their bits.
STEP = {4: 1024, 8: 512}
#: Numbers along K of one read of a warp, by their bits.
READ = {4: 64, 8: 32}
#: Reads of a warp in turn, at most, where X lies in turns: with four of them 4 to 8 tiles spill.
MOST_X_TILES = 2
#: Vectors of X, 16 bytes each, that a thread multiplies by one read for 8 rows of X, by the bits of W.
VECTORS = {4: 2, 8: 1}
#: Bytes of a scale and a zero, and of a sum.
SCALE_BYTES, SUM_BYTES = 4, 4
#: Registers of a thread beside those that are counted, and more of them for each further 8 rows of X.
OTHER_REGISTERS, WIDE_REGISTERS = 56, 8
WARPS = (16, 8, 4)
#: Turns of a warp in shared memory, one of which is multiplied while the others are under way; 0: turns in registers.
STAGES = (0, 2, 3, 4, 6, 8)
#: Other registers of a thread that copies: addresses in shared memory, and the turn that is copied.
COPYING_REGISTERS = 10


def columns_of(m: int) -> int:
    """Rows of X that sums are kept for."""
    return NARROW if m <= NARROW else MOST_ROWS


def tiles_of(n: int) -> int:
    """Tiles of 16 rows of W."""
    return -(-n // WARP_ROWS)


def takes(bits: int, group: int) -> bool:
    """Whether the kernel takes such weights: a group has whole reads of a warp, a power of two of them."""
    if bits not in READ or group % READ[bits]:
        return False
    reads = group // READ[bits]
    return reads & (reads - 1) == 0


def padded(n: int, k: int, bits: int) -> tuple[int, int]:
    """Rows and numbers along K of packed weights."""
    return -(-n // PADDED_ROWS) * PADDED_ROWS, -(-k // STEP[bits]) * STEP[bits]


def packed_bytes(n: int, k: int, bits: int, group: int) -> int:
    """Bytes of packed weights with their scales and zeros."""
    rows, depth = padded(n, k, bits)
    return rows * (depth * bits // 8 + -(-depth // group) * SCALE_BYTES)


def smem_bytes(v: Mapping[str, Any], m: int, bits: int) -> Any:
    """Shared memory of a block: the sums of its warps, and turns of theirs where these lie there, with X or without."""
    of_sums = v["rows"] * WARP_ROWS * columns_of(m) * SUM_BYTES
    of_turn = v["tiles"] * (v["rows"] + v["x_turns"] * (columns_of(m) // NARROW * VECTORS[bits])) * READ_BYTES
    return v["warps"] * (of_sums + v["stages"] * of_turn)


def launched_registers(gpu: GpuModel, v: Mapping[str, Any]) -> Any:
    """Registers that the compiler may give a thread, so that an SM holds `resident` blocks."""
    whole = gpu.sm.num_partitions * gpu.register_file.capacity
    return minimum(const(gpu.sm.max_registers_per_thread), whole // (WARP * v["warps"] * v["resident"]) // 8 * 8)


def block_use(gpu: GpuModel, v: Vars, m: int, bits: int) -> BlockUse:
    """Warps, registers and shared memory of one block."""
    registers = launched_registers(gpu, v)
    return BlockUse(
        warps=v["warps"],
        registers_per_thread=registers,
        smem_bytes=smem_bytes(v, m, bits),
        least_registers=registers,
        spilling=None,
    )


def held_registers(v: Mapping[str, Any], m: int, bits: int, group: int) -> Any:
    """Registers of a thread: reads with their scales, vectors of X for these and the next, and sums."""
    narrow, is_staged = columns_of(m) // NARROW, minimum(const(1), v["stages"])
    of_tile = (
        4 * v["tiles"] * (1 - is_staged) + 2 * maximum(const(1), v["tiles"] // max(1, group // READ[bits])) + 4 * narrow
    )
    copying = is_staged * (4 * v["tiles"] + COPYING_REGISTERS)
    other = OTHER_REGISTERS + WIDE_REGISTERS * (narrow - 1) + copying
    vectors = v["tiles"] * narrow * 4 * VECTORS[bits]
    return other + v["rows"] * of_tile + vectors * (2 - v["x_turns"])


def rules(gpu: GpuModel, sizes: Mapping[str, int], bits: int, group: int, v: Vars) -> Iterator[Rule]:
    """Every rule of the kernel."""
    m, n, k = (sizes[name] for name in ("m", "n", "k"))
    smem = (smem_bytes(v, m, bits) + gpu.sm.smem_reserved_bytes_per_block) * v["resident"]
    there = gpu.sm.smem_bytes_per_sm
    fits = f"an SM of {gpu.name} has {there:,} bytes of {gpu.terms.smem} for the blocks that it is to hold"
    yield Rule(smem <= there, "resident_smem", fits, CERTAIN)
    most = f"a block of {gpu.name} has up to {gpu.sm.max_smem_bytes_per_block:,} bytes of {gpu.terms.smem}"
    yield Rule(smem_bytes(v, m, bits) <= gpu.sm.max_smem_bytes_per_block, "block_smem", most, CERTAIN)
    held = held_registers(v, m, bits, group)
    clear = "vectors under way, those of X and sums fit the registers that the blocks of an SM leave a thread"
    yield Rule(held <= launched_registers(gpu, v), "registers_under_way", clear, CERTAIN)
    portable = gpu.device.max_cluster_blocks_portable or 1
    yield Rule(v["split_k"] <= portable, "cluster", f"{gpu.name} has clusters of up to {portable}", CERTAIN)
    _, depth = padded(n, k, bits)
    reads = depth // READ[bits]
    shared = "every warp of a cluster has reads of its own"
    own = v["split_k"] * v["warps"] * v["tiles"] <= reads
    yield Rule(any_of(v["split_k"] * v["warps"] == min(WARPS), own), "own_reads", shared, REDUNDANT)
    slots = gpu.device.sm_count * v["resident"]
    lies = "vectors of X lie in turns of shared memory, which there are, and pay for more than 8 rows"
    yield Rule(v["x_turns"] <= minimum(v["stages"], int(m > NARROW)), "x_in_turns", lies, REDUNDANT)
    x_tiles = max(1, min(MOST_X_TILES, group // READ[bits]))
    holds = f"vectors of X of more than {x_tiles} reads, and sums of several groups, leave too few registers"
    yield Rule(any_of(v["x_turns"] == 0, v["tiles"] <= x_tiles), "x_tiles", holds, REDUNDANT)
    numbers = "numbers of 8 bits lose their zeros where they are widened"
    yield Rule(v["of_sums"] <= int(bits == min(READ)), "zeros_of_sums", numbers, CERTAIN)
    filled = "K is divided where tiles alone leave blocks idle"
    yield Rule(any_of(v["split_k"] == 1, tiles_of(n) < 2 * slots), "split_fills", filled, REDUNDANT)
    few = "a block takes no more tiles at a time than it has: it would read beyond the weights"
    blocks = minimum(const(tiles_of(n)), slots // v["split_k"])
    yield Rule(any_of(v["rows"] == 1, v["rows"] <= ceildiv(const(tiles_of(n)), blocks)), "rows_in_share", few, CERTAIN)
