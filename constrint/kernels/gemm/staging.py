"""Shared memory in which a finished tile is re-ordered for its store, as an integer expression (NVIDIA).

The pointer and the descriptor kernel share it; checked with their shared memory against compiled kernels.
"""

from __future__ import annotations

from constrint.hwmodels import DotUnit, GpuModel
from constrint.kernels.gemm.units import OUTPUT_BYTES, PARTIAL_BYTES, Vars, async_share, mma_warp_rows, threads
from constrint.model import Expr, ceildiv, const, maximum, minimum

#: Lanes of tensor memory, which hold a row of an accumulator each.
TENSOR_MEMORY_LANES = 128
#: Columns of tensor memory, of 32 bits: Triton's driver refuses a kernel that takes more.
TENSOR_MEMORY_COLUMNS = 512


def store_staging(gpu: GpuModel, dtype: str, found: DotUnit, v: Vars, *, is_vectorised: bool) -> Expr:
    """Bytes in which the accumulator is re-ordered for coalesced stores (NVIDIA): to C, or whole to the workspace."""
    splits = minimum(1, v["split_k"] - 1)
    to_c = _reordered(gpu, found, v, OUTPUT_BYTES[dtype], is_vectorised=is_vectorised)
    return (1 - splits) * to_c + splits * _reordered(gpu, found, v, PARTIAL_BYTES, is_vectorised=True)


def _reordered(gpu: GpuModel, found: DotUnit, v: Vars, output: int, *, is_vectorised: bool) -> Expr:
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
    use = async_share(found, v) if found.fallback is not None else const(0)
    warp_rows = use * minimum(v["num_warps"], v["tile_m"] // 16) + (1 - use) * mma_warp_rows(v)
    # One row of mma.sync and wgmma sits in two registers, eight rows apart.
    common_rows = (1 + minimum(1, 8 // rows_stored)) * maximum(1, v["tile_m"] // maximum(16 * warp_rows, rows_stored))
    columns_computed = 8 * maximum(1, v["num_warps"] // warp_rows)
    common_columns = maximum(1, v["tile_n"] // maximum(columns_computed, stored))
    # Both sides hold pairs of columns, if the store is vectorised at all.
    needed: Expr | int = 16 // output // (2 if is_vectorised else 1)
    if found.kind == "wgmma" and output < PARTIAL_BYTES and is_vectorised:
        needed = use + (1 - use) * needed
    passes = maximum(1, common_rows * common_columns // needed)
    if found.kind == "tcgen05":
        # The accumulator comes from tensor memory a row per lane: whole vectors are common, if a row is long enough.
        # Of 64 rows only half the lanes have one, so that it has to be twice as long.
        rows = minimum(TENSOR_MEMORY_LANES, v["tile_m"])
        is_long = minimum(1, v["tile_n"] * rows // (8 * TENSOR_MEMORY_LANES * v["num_warps"]))
        whole = 1 + is_long * (minimum(vector, 4 if output == PARTIAL_BYTES else 2) - 1)
        passes = use * whole * maximum(1, v["tile_m"] // num_threads) + (1 - use) * passes
    return ceildiv(v["tile_m"] * v["tile_n"] * output, passes)
