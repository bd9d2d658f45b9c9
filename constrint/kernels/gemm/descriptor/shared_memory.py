"""Shared memory that a block of the descriptor kernel takes, as an integer expression.

Read off Triton 3.6 and 3.9 and checked against compiled kernels (`tests/data/triton_gemm_descriptor.csv`).
"""

from __future__ import annotations

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.tma.operands import rest_columns
from constrint.kernels.gemm.units import (
    ELEMENT_BYTES,
    PARTIAL_BYTES,
    Vars,
    async_share,
    is_upcast,
    store_staging,
    unit,
)
from constrint.model import Expr, ceildiv, const, maximum, minimum

#: Buffers that the TMA unit fills start at multiples of this many bytes.
BUFFER_ALIGNMENT_BYTES = 1024
BARRIER_BYTES = 8


def least_smem_bytes(gpu: GpuModel, product: Product, v: Vars) -> Expr | None:
    """Shared memory under Triton 3.9, for 32-bit outputs alone: there Triton 3.6 takes more. Otherwise None."""
    return descriptor_smem_bytes(gpu, product, v, is_shared=True) if product.output_bytes == PARTIAL_BYTES else None


def descriptor_smem_bytes(gpu: GpuModel, product: Product, v: Vars, *, is_shared: bool = False) -> Expr:
    """Shared memory of one block: operand pipeline, barriers, and the output tile on its way to the TMA unit.

    The output shares the pipeline's memory, except where the next tile's loads are already in flight (a persistent
    grid) and, as Triton 3.6 has it, where it is 32 bits wide (3.9: `is_shared`).
    """
    dtype, output = product.dtype, product.output_bytes
    matrix, element = unit(gpu, dtype), ELEMENT_BYTES[dtype]
    use = async_share(matrix, v) if matrix.fallback is not None else const(0)
    # mma.sync keeps the stage being computed in registers; wgmma and tcgen05 read it from shared memory.
    buffers = v["num_stages"] - (1 - use)
    rest = rest_columns(v["tile_n"])
    widest = v["tile_n"] - rest
    pipeline: Expr = const(0)
    for width in (v["tile_m"], widest, rest):
        operand = buffers * width * v["tile_k"] * element
        pipeline = pipeline + BUFFER_ALIGNMENT_BYTES * ceildiv(operand, BUFFER_ALIGNMENT_BYTES)
    held = pipeline + _barrier_bytes(matrix.kind, buffers, use, minimum(1, rest), is_upcast=is_upcast(matrix, dtype))
    if not product.a.is_tma_k_major:
        # A and B are waited for separately.
        held = held + 16 * ceildiv(BARRIER_BYTES * buffers, 16)
    splits = minimum(1, v["split_k"] - 1)
    apart: Expr
    if output == PARTIAL_BYTES and not is_shared:
        # Only where a block stores its one tile in halves do both of them share the pipeline's memory.
        halves = (1 - v["persistent"]) * (v["epilogue_subtile"] - 1)
        whole = v["tile_m"] * v["tile_n"] * output
        apart = (1 - splits) * (1 - halves)
        stored = halves * whole + (1 - halves) * (whole // v["epilogue_subtile"])
    else:
        # The smaller part of a tile in two parts uses the memory of the larger one.
        apart, stored = v["persistent"], v["tile_m"] * widest * output // v["epilogue_subtile"]
    if matrix.kind == "tcgen05":
        # Halves of sums of 64 rows are re-ordered through half as much again, of 32 bits through up to as much again.
        is_low = use * (1 - minimum(1, v["tile_m"] // 128)) * (v["epilogue_subtile"] - 1)
        stored = stored + v["persistent"] * is_low * (stored if output == PARTIAL_BYTES else stored // 2)
    staging = splits * store_staging(gpu, output, matrix, {**v, "tile_n": widest}, is_vectorised=True)
    return apart * (held + stored) + (1 - apart) * maximum(maximum(held, stored), staging)


def _barrier_bytes(kind: str, buffers: Expr, use: Expr, has_rest: Expr, *, is_upcast: bool) -> Expr:
    """One barrier per buffer; a second set, with the first one padded, where two operands are waited for separately.

    That is so for the second part of a tile's columns, and for B where mma.sync multiplies fp8 as fp16.
    """
    one = BARRIER_BYTES * buffers
    direct = 16 * ceildiv(one + 16, 16) if kind == "tcgen05" else one
    padded = 16 * ceildiv(one, 16)
    first = direct if kind == "tcgen05" else padded
    return use * (direct + has_rest * first) + (1 - use) * (one + padded * int(is_upcast))
