"""Shared memory (LDS) that Triton 3.9 gives a block of `kernel.py`, as integer expressions.

It is the operand pipeline, or the staging of the store to C if that is larger. The rules are read off Triton's layouts
and checked against compiled kernels (`tests/data/triton_gemm_space.csv`; `benchmarks/registers.py check`).
"""

from __future__ import annotations

from collections.abc import Hashable

from constrint.hwmodels import DotUnit, GpuModel
from constrint.kernels.gemm.units import (
    ALL_ALIGNED,
    ELEMENT_BYTES,
    MIN_COPY_BYTES,
    OUTPUT_BYTES,
    PARTIAL_BYTES,
    WIDEST_BYTES,
    Aligned,
    Vars,
    async_share,
    is_upcast,
    store_staging,
    threads,
    unit,
)
from constrint.model import Expr, Var, ceildiv, const, maximum, minimum

#: gfx950 pads LDS once per copy of a whole wave: 64 lanes of 16 bytes.
PAD_INTERVAL_BYTES = 1024


def pointer_smem_bytes(gpu: GpuModel, dtype: str, matrix: DotUnit, v: Vars, aligned: Aligned) -> Expr:
    """Bytes per block of the pointer-load kernel."""
    element = ELEMENT_BYTES[dtype]
    a, b = v["tile_m"] * v["tile_k"] * element, v["tile_n"] * v["tile_k"] * element
    if matrix.kind == "fma":
        # Operands pass through shared memory one after the other, widened to fp32.
        output = OUTPUT_BYTES[dtype] + minimum(1, v["split_k"] - 1) * (PARTIAL_BYTES - OUTPUT_BYTES[dtype])
        return maximum(maximum(a, b) * (4 // element), v["tile_m"] * v["tile_n"] * output)
    copies_a = _is_copied(gpu, element, a, v, width=aligned.a)
    copies_b = _is_copied(gpu, element, b, v, width=aligned.b)
    if gpu.arch.target == "gfx950":
        return maximum(
            _gfx950(dtype, v, (copies_a, copies_b)),
            _amd_staging(gpu, dtype, v, is_vectorised=aligned.c == WIDEST_BYTES),
        )
    if matrix.kind == "wmma":
        behind = maximum(1, v["num_stages"] - 1)
        is_pipelined = minimum(1, v["num_stages"] - 1)
        pipeline = is_pipelined * behind * (a + b) + (1 - is_pipelined) * maximum(a, b)
        return maximum(pipeline, _amd_staging(gpu, dtype, v, is_vectorised=aligned.c == WIDEST_BYTES))
    if matrix.kind == "mfma":
        return maximum(
            _mfma(v["num_stages"], a, b, copies_a, copies_b),
            _amd_staging(gpu, dtype, v, is_vectorised=aligned.c == WIDEST_BYTES),
        )
    staging = store_staging(gpu, dtype, matrix, v, is_vectorised=aligned.c == WIDEST_BYTES)
    return maximum(_nvidia(dtype, matrix, v, (a, b), (copies_a, copies_b), aligned), staging)


def _is_copied(gpu: GpuModel, element: int, operand: Expr, v: Vars, *, width: int) -> Expr:
    """1 where an operand's loads can run ahead of their use: each thread loads at least four contiguous bytes."""
    if element >= MIN_COPY_BYTES or width < MIN_COPY_BYTES:
        return const(int(element >= MIN_COPY_BYTES))
    return minimum(1, operand // (MIN_COPY_BYTES * threads(gpu, v)))


def _buffers(is_copied: Expr, stages: Expr, otherwise: Expr | int = 1) -> Expr:
    """Buffers of an operand: one per stage where it is copied asynchronously, else as many as stated."""
    return is_copied * stages + (1 - is_copied) * otherwise


def _nvidia(
    dtype: str, matrix: DotUnit, v: Vars, operands: tuple[Expr, Expr], copied: tuple[Expr, Expr], aligned: Aligned
) -> Expr:
    """The operand pipeline: mma.sync holds the stage it computes in registers, wgmma and tcgen05 read it in place."""
    (a, b), (copies_a, copies_b), stages = operands, copied, v["num_stages"]
    behind = maximum(1, stages - 1)
    copies_b_mma, single_b = copies_b, 1
    if ELEMENT_BYTES[dtype] == 1:
        # Where each thread has one row of 8-bit B of 16 bytes, B is not pipelined. fp8 that is multiplied as fp16 is
        # widened, which takes twice the buffer.
        num_threads = v["num_warps"] * 32
        rows_fit = minimum(1, v["tile_k"] // num_threads) * minimum(1, num_threads // v["tile_k"])
        if aligned.b == WIDEST_BYTES:
            copies_b_mma = copies_b * (1 - rows_fit * minimum(1, 16 // v["tile_n"]))
        single_b = 1 + is_upcast(matrix, dtype)
    pipeline = _buffers(copies_a, behind) * a + _buffers(copies_b_mma, behind, single_b) * b
    if is_upcast(matrix, dtype):
        # Without a pipeline both are converted on the way, one after the other.
        has_pipeline = minimum(1, stages - 1) * maximum(copies_a, copies_b)
        pipeline = has_pipeline * pipeline + (1 - has_pipeline) * maximum(a, b)
    if matrix.fallback is None:
        return pipeline
    if matrix.kind == "tcgen05":
        two = minimum(2, stages)
        direct = _buffers(copies_a, stages, two) * a + _buffers(copies_b, stages, two) * b + 8 * two  # its mbarriers
    else:
        # 8-bit row-major B has to be transposed on the way into wgmma, through one buffer.
        of_b = const(1) if ELEMENT_BYTES[dtype] == 1 else _buffers(copies_b, stages)
        direct = _buffers(copies_a, stages) * a + of_b * b
    use = async_share(matrix, v)
    return use * direct + (1 - use) * pipeline


def _mfma(stages: Expr, a: Expr, b: Expr, copies_a: Expr, copies_b: Expr) -> Expr:
    behind = maximum(1, stages - 1)
    both = _buffers(copies_a, behind) * a + _buffers(copies_b, behind) * b
    # One stage, or nothing to pipeline: A and B share one buffer.
    is_pipelined = minimum(1, stages - 1) * maximum(copies_a, copies_b)
    return is_pipelined * both + (1 - is_pipelined) * maximum(a, b)


def _gfx950(dtype: str, v: Vars, copied: tuple[Expr, Expr]) -> Expr:
    """Direct-to-LDS copies keep every stage; the copied data are padded against bank conflicts.

    The padding depends on the instruction's rows, `matrix_instr_nonkdim`; without it, the larger of both.
    """
    if "matrix_instr_nonkdim" not in v:
        either = [_gfx950(dtype, {**v, "matrix_instr_nonkdim": const(rows)}, copied) for rows in (16, 32)]
        return maximum(*either)
    element, stages = ELEMENT_BYTES[dtype], v["num_stages"]
    a, b = v["tile_m"] * v["tile_k"] * element, v["tile_n"] * v["tile_k"] * element
    sizes = [
        stages * operand + is_copied * pad * (ceildiv(stages * operand, PAD_INTERVAL_BYTES) - 1)
        for operand, pad, is_copied in zip((a, b), (_pad_a(dtype, v), _pad_b(dtype, v)), copied, strict=True)
    ]
    # The larger one comes first, the other one at a multiple of 16; only A's padding can be odd.
    odd = 16 * ceildiv(sizes[0], 16) - sizes[0]
    both = sizes[0] + sizes[1] + odd * minimum(1, maximum(0, sizes[0] - sizes[1]))
    is_pipelined = minimum(1, stages - 1)
    return is_pipelined * both + (1 - is_pipelined) * maximum(a, b)


def _pad_a(dtype: str, v: Vars) -> Expr:
    """Bytes of padding per interval for row-major A (K is contiguous).

    The rule of Triton 3.9's padded layout for asynchronous copies on CDNA4, with its widths in bytes: what is read
    16 bytes at a time or transposed sees 64 banks of 4 bytes, anything else 32. A layout is used only if the tile
    has enough rows to stagger.
    """
    element, tile_k = ELEMENT_BYTES[dtype], v["tile_k"]
    is_32 = v["matrix_instr_nonkdim"] // 32
    # One lane holds 16 bytes of K where the instruction with the larger k fits the tile, else 8.
    k_16 = {"fp8": 128, "int8": 64}.get(dtype, 32)
    k_32 = {"fp8": 64, "int8": 32}.get(dtype, 16)
    is_wide = minimum(1, is_32 * (tile_k // k_32) + (1 - is_32) * (tile_k // k_16))
    row_bytes = tile_k * element
    wide = 32 - 16 * is_32
    # Rows that one interval holds, times the rows that are staggered within it.
    rows_per_interval = PAD_INTERVAL_BYTES // row_bytes
    rows_wide = rows_per_interval * (minimum(row_bytes, 256) // wide)
    rows_narrow = rows_per_interval * (minimum(row_bytes, 128) // 8)
    fits_wide = minimum(1, v["tile_m"] // maximum(1, rows_wide)) * minimum(1, row_bytes // wide)
    fits_narrow = minimum(1, 2 * v["tile_m"] // maximum(1, rows_narrow))
    pad = is_wide * fits_wide * wide + (1 - is_wide) * fits_narrow * 8
    if element > 1:
        return pad
    # Rows of a single 16-byte copy: M counts as the contiguous dimension.
    is_flat = 1 - minimum(1, tile_k // 32)
    return (1 - is_flat) * pad + is_flat * 32 * minimum(1, v["tile_m"] // 64)


def _pad_b(dtype: str, v: Vars) -> Expr:
    """Bytes of padding per interval for row-major B (N is contiguous), which is read transposed."""
    row_bytes = v["tile_n"] * ELEMENT_BYTES[dtype]
    pad = 16 * ELEMENT_BYTES[dtype] * (1 + v["matrix_instr_nonkdim"] // 32)
    staggered = minimum(row_bytes, 256) // pad
    rows = maximum(1, PAD_INTERVAL_BYTES // row_bytes * staggered)
    fits = minimum(1, v["tile_k"] // rows) * minimum(1, staggered)
    # Two-way conflicts are accepted, at the cost of half the stagger.
    fits_halved = minimum(1, 2 * v["tile_k"] // rows) * minimum(1, staggered // 2)
    return pad * maximum(fits, fits_halved)


def _amd_staging(gpu: GpuModel, dtype: str, v: Vars, *, is_vectorised: bool) -> Expr:
    """Bytes in which a finished split-K tile is re-ordered for the store to C: an upper bound.

    The sums come back from the workspace in another layout than the one in which they are stored, if rows of C are not
    known to be aligned, and at times if operands have 8 bits. A pass moves 64 bytes per thread.
    """
    if is_vectorised and ELEMENT_BYTES[dtype] > 1:
        return const(0)
    tile_bytes = v["tile_m"] * v["tile_n"] * OUTPUT_BYTES[dtype]
    return minimum(1, v["split_k"] - 1) * minimum(tile_bytes, 64 * threads(gpu, v))


#: Expressions for plain variables, by everything that decides them: building one takes as long as solving.
_KNOWN: dict[tuple[Hashable, ...], Expr] = {}


def smem_bytes(gpu: GpuModel, dtype: str, v: Vars, aligned: Aligned = ALL_ALIGNED) -> Expr:
    """Shared memory (LDS) of one block in bytes: the operand pipeline, or the store's staging if that is larger."""
    matrix = unit(gpu, dtype)
    if not all(isinstance(variable, Var) and variable.name == name for name, variable in v.items()):
        return pointer_smem_bytes(gpu, dtype, matrix, v, aligned)
    key = (gpu.arch.target, gpu.sm.warp_size, dtype, matrix, aligned, tuple(v))
    if key not in _KNOWN:
        _KNOWN[key] = pointer_smem_bytes(gpu, dtype, matrix, v, aligned)
    return _KNOWN[key]
