"""Arithmetic units of a Triton GEMM on a GPU, widths of elements and accesses, how warps share a tile, and
whether a GPU's model has the figures that times were measured with.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import NamedTuple

from constrint.errors import ConstrintError, UnsupportedError
from constrint.hwmodels import DotUnit, GpuModel, load_gpu
from constrint.model import Expr, ceildiv, const, maximum, minimum

#: Bytes of one element of A and B.
ELEMENT_BYTES: Mapping[str, int] = {"fp16": 2, "bf16": 2, "fp8": 1, "tf32": 4, "int8": 1}
#: Bytes of one element of C: 16-bit results for 16- and 8-bit floats, full width for tf32 and int8.
OUTPUT_BYTES: Mapping[str, int] = {"fp16": 2, "bf16": 2, "fp8": 2, "tf32": 4, "int8": 4}
#: Partial sums of a split-K grid are stored in 32 bits.
PARTIAL_BYTES = 4
#: Triton checks sizes and strides for being multiples of this number, and for nothing else.
ALIGNED_ELEMENTS = 16
#: Bytes of the widest load or store of one thread.
WIDEST_BYTES = 16
#: Bytes of a line of the L2, and of a sector: the part of a line that moves at once.
LINE_BYTES = 128
SECTOR_BYTES = 32
#: AMD: bytes of a thread that move at once where a tile changes its layout through LDS, at most.
PASS_BYTES = 64
#: An asynchronous copy moves at least four bytes per thread; narrower loads are not pipelined.
MIN_COPY_BYTES = 4

#: Hopper's matrix unit adds fp8 products in fewer than 24 bits. So its sums are added to fp32 registers after this many
#: elements of K ("promoted"); libraries use the same interval.
FP8_PROMOTION_INTERVAL = 128

Vars = Mapping[str, Expr]
#: Lanes of tensor memory, which hold a row of an accumulator each.
TENSOR_MEMORY_LANES = 128
#: Columns of tensor memory, of 32 bits: Triton's driver refuses a kernel that takes more.
TENSOR_MEMORY_COLUMNS = 512


class Aligned(NamedTuple):
    """Bytes of the widest aligned access to the rows of A, B and C: 16, 8, 4, 2 or 1.

    A matrix of 2-byte elements with rows of 1,004 elements (2,008 bytes) allows 8.
    """

    a: int = WIDEST_BYTES
    b: int = WIDEST_BYTES
    c: int = WIDEST_BYTES


#: Matrices whose rows allow the widest accesses.
ALL_ALIGNED = Aligned()


def row_hint(*strides: int) -> int:
    """The power of two, 8 at most, that divides all strides in elements, for kernels in Triton, which see 16 alone.

    1 where they see it, so that one kernel serves all such rows.
    """
    divisor = gcd(16, *strides)
    return 1 if divisor == 16 else divisor


def width_bytes(length: int, element: int) -> int:
    """Bytes of the widest aligned access to contiguous rows: gcd(16, length x element bytes)."""
    return gcd(WIDEST_BYTES, length * element)


def unit(gpu: GpuModel, dtype: str) -> DotUnit:
    """Find the unit that a Triton kernel uses on this GPU.

    Raises:
        UnsupportedError: When the GPU has no instruction for the dtype, or Triton does not use it.
    """
    if not gpu.matrix_shapes(dtype):
        usable = [d for d in ELEMENT_BYTES if gpu.matrix_shapes(d)]
        raise UnsupportedError(
            f"{gpu.name} has no matrix instruction for {dtype} ({gpu.arch.target}). "
            + (f"It has them for: {', '.join(usable)}." if usable else "It has none for a GEMM.")
        )
    matrix = gpu.dot_unit(dtype)
    if matrix is None:
        usable = [d for d in ELEMENT_BYTES if gpu.dot_unit(d)]
        raise UnsupportedError(
            f"Triton does not compile a {dtype} GEMM for {gpu.arch.target}. Use {' or '.join(usable)}."
        )
    return matrix


def async_share(matrix: DotUnit, v: Vars) -> Expr:
    """1 where the tile uses wgmma or tcgen05, 0 where it falls back to mma.

    Both need 64 rows and four warps; Triton uses tcgen05 with at most eight.
    """
    if matrix.fallback is None:
        return const(1)
    share = minimum(1, v["tile_m"] // 64) * minimum(1, v["num_warps"] // 4)
    return share * (1 - minimum(1, v["num_warps"] // 16)) if matrix.kind == "tcgen05" else share


def needs_k_major(dtype: str) -> bool:
    """Whether wgmma and its successors take both operands contiguous along K only: all but 16-bit ones."""
    return ELEMENT_BYTES[dtype] != 2


def promotion_interval(gpu: GpuModel, dtype: str, tile_k: int) -> int | None:
    """Elements of K after which sums move to fp32 registers; None where the unit itself adds in fp32."""
    is_narrow = dtype == "fp8" and gpu.arch.target.startswith("sm_90")
    return min(FP8_PROMOTION_INTERVAL, tile_k) if is_narrow else None


def straddling(gpu: GpuModel, step_bytes: int, over_lines: float, over_sectors: float) -> float:
    """Slowdown of loads from rows that are aligned to `step_bytes` only.

    Args:
        gpu: The hardware model.
        step_bytes: The largest number of bytes that divides every row's address.
        over_lines: Factor for rows that straddle lines of the L2 but no sectors.
        over_sectors: Factor for rows that straddle sectors, too.
    """
    l2 = gpu.memory.l2
    if l2.sector_bytes is None or l2.line_bytes is None or step_bytes >= l2.line_bytes:
        return 1.0
    return over_lines if step_bytes >= l2.sector_bytes else over_sectors


def threads(gpu: GpuModel, v: Vars) -> Expr:
    """Threads per block."""
    return v["num_warps"] * gpu.sm.warp_size


def is_upcast(matrix: DotUnit, dtype: str) -> bool:
    """Whether the fallback multiplies fp8 as fp16: mma.sync has 8-bit floats on Ada and consumer Blackwell only."""
    return matrix.fallback is not None and dtype == "fp8"


def mma_warp_rows(v: Vars) -> Expr:
    """Warps along M of an mma.sync tile.

    Triton halves the longer of tile_m / 16 and tile_n / 8 for every doubling of the warps, tile_m when they are equal.
    """
    reps_m, reps_n = maximum(1, v["tile_m"] // 16), maximum(1, v["tile_n"] // 8)
    taller, wider = maximum(1, reps_m // reps_n), maximum(1, reps_n // reps_m)
    # Once both are equal, further doublings go to M and N in turns, to M first: 2, 4 -> 2; 8, 16 -> 4.
    left = maximum(1, v["num_warps"] // (taller * wider))
    turns = 1 + minimum(1, left // 2) + 2 * minimum(1, left // 8)
    return minimum(v["num_warps"], taller) * turns


def store_staging(gpu: GpuModel, output: int, matrix: DotUnit, v: Vars, *, is_vectorised: bool) -> Expr:
    """Bytes in which the accumulator is re-ordered for coalesced stores (NVIDIA): to C, or whole to the workspace.

    `output` is bytes per element of C.
    """
    splits = minimum(1, v["split_k"] - 1)
    to_c = _reordered(gpu, matrix, v, output, is_vectorised=is_vectorised)
    return (1 - splits) * to_c + splits * _reordered(gpu, matrix, v, PARTIAL_BYTES, is_vectorised=True)


def _reordered(gpu: GpuModel, matrix: DotUnit, v: Vars, output: int, *, is_vectorised: bool) -> Expr:
    """Bytes of one pass from the matrix instruction's layout to that of the store; `output` is bytes per element.

    Triton converts the tile in several passes through the same memory. A pass can be spared for every row and column
    that one thread holds both before and after the conversion, except for those that make up its accesses of 16 bytes.
    `wgmma` with 16-bit results stores through stmatrix and needs none for its accesses.
    """
    num_threads = threads(gpu, v)
    widest = 16 // output if is_vectorised else 1
    vector = maximum(1, minimum(widest, v["tile_m"] * v["tile_n"] // num_threads))
    stored = num_threads * vector
    rows_stored = maximum(1, stored // v["tile_n"])
    use = async_share(matrix, v) if matrix.fallback is not None else const(0)
    warp_rows = use * minimum(v["num_warps"], maximum(1, v["tile_m"] // 16)) + (1 - use) * mma_warp_rows(v)
    # One row of mma.sync and wgmma sits in two registers, eight rows apart.
    common_rows = (1 + minimum(1, 8 // rows_stored)) * maximum(1, v["tile_m"] // maximum(16 * warp_rows, rows_stored))
    columns_computed = 8 * maximum(1, v["num_warps"] // warp_rows)
    common_columns = maximum(1, v["tile_n"] // maximum(columns_computed, stored))
    # Both sides hold pairs of columns, if the store is vectorised at all.
    needed: Expr | int = 16 // output // (2 if is_vectorised else 1)
    if matrix.kind == "wgmma" and output < PARTIAL_BYTES and is_vectorised:
        needed = use + (1 - use) * needed
    passes = maximum(1, common_rows * common_columns // needed)
    if matrix.kind == "tcgen05":
        # The accumulator comes from tensor memory a row per lane: whole vectors are common, if a row is long enough.
        # With 64 rows only half the lanes have a row, so that a row has to be twice as long.
        rows = minimum(TENSOR_MEMORY_LANES, v["tile_m"])
        is_long = minimum(1, v["tile_n"] * rows // (8 * TENSOR_MEMORY_LANES * v["num_warps"]))
        whole = 1 + is_long * (minimum(vector, 4 if output == PARTIAL_BYTES else 2) - 1)
        passes = use * whole * maximum(1, v["tile_m"] // num_threads) + (1 - use) * passes
    return ceildiv(v["tile_m"] * v["tile_n"] * output, passes)


def is_as_measured(gpu: GpuModel) -> bool:
    """Whether a model has the figures of the GPU of its name, on which times were measured."""
    stored = _AS_MEASURED.get(id(gpu))
    if stored is None or stored[0] is not gpu:
        try:
            is_same = _figures(gpu) == _figures(load_gpu(gpu.name))
        except ConstrintError:  # a model that a user made
            is_same = False
        stored = _AS_MEASURED[id(gpu)] = gpu, is_same
    return stored[1]


#: Results by the identity of the model.
_AS_MEASURED: dict[int, tuple[GpuModel, bool]] = {}


def _figures(gpu: GpuModel) -> tuple[object, ...]:
    """The figures of a GPU that times of products depend on most."""
    device, dram = gpu.device, gpu.memory.dram
    return gpu.arch.target, device.sm_count, device.boost_clock_hz, dram.bandwidth_bytes_per_s
