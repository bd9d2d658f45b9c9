"""The parameter space of the descriptor (TMA) kernel of `kernel.py`, for GPUs of compute capability 9.0 or later.

Shared memory is read off Triton 3.6 and 3.9 and checked against kernels compiled by Triton 3.6 to 3.9
(`tests/data/triton_gemm_descriptor*.csv`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.descriptor.cost import descriptor_cost
from constrint.kernels.gemm.product import TWO_PART_COLUMNS, Product, rest_columns
from constrint.kernels.gemm.rules import instruction_rules, least_registers, registers_per_thread, spilling
from constrint.kernels.gemm.spec import POWER, TILES, GemmSpec
from constrint.kernels.gemm.units import (
    ELEMENT_BYTES,
    OUTPUT_BYTES,
    PARTIAL_BYTES,
    TENSOR_MEMORY_COLUMNS,
    TENSOR_MEMORY_LANES,
    async_share,
    is_upcast,
    store_staging,
    unit,
)
from constrint.model import Expr, any_of, ceildiv, const, implies, maximum, minimum
from constrint.model.constraint import CERTAIN, ESTIMATED, REDUNDANT
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.toolchain import rules_of, triton_version

if TYPE_CHECKING:
    from constrint.kernels.gemm.launch import GemmCall


class DescriptorSpec(GemmSpec):
    """The kernel that loads and stores tiles through the TMA unit."""

    name = "descriptor"
    summary = "C[M,N] = A[M,K] @ B[K,N] through the TMA unit, Triton"
    serves_any_rows = True
    source_bytes_beside = 2
    needs_tma = True

    def tile_params(self, gpu: GpuModel, dtype: str) -> tuple[Param, ...]:
        """Tile sizes, warps, stages, split-K, persistence, block order, and parts in which a tile is stored."""
        columns: tuple[int, ...] = TILES
        power = POWER
        if unit(gpu, dtype).fallback is not None:
            columns, power = TILES + TWO_PART_COLUMNS, f"{POWER}, or two of them side by side"
        ahead = "TMA loads run ahead of their use; deeper pipelines do not fit anywhere"
        return (
            Param("tile_m", TILES, "rows of C per block", POWER),
            Param("tile_n", columns, "columns of C per block", power),
            Param("tile_k", (64, 32, 128, 16, 256), "depth of one main-loop iteration", POWER),
            Param("num_warps", (4, 8, 2, 16, 1), "warps per block", "Triton takes powers of two", "w"),
            Param("num_stages", (3, 4, 2, 5, 6), "depth of the load pipeline", ahead, "st"),
            Param("split_k", (1, 2, 4, 8, 16, 32), "blocks that share one tile's K", "powers of two up to 32", "sk"),
            Param("persistent", (0, 1), "1: one block per SM walks many tiles", "the kernel has both loops", "p"),
            Param("group_m", (8, 4, 16, 1, 2, 32), "rows of tiles walked together", "powers of two up to 32", "gm"),
            Param(
                "epilogue_subtile",
                (1, 2),
                "parts in which an output tile is staged",
                "an output tile is stored whole or in halves",
                "es",
            ),
        )

    def tile_rules(self, gpu: GpuModel, product: Product, v: Vars) -> Iterator[Rule]:
        """Rules of the matrix instruction, of tiles that are stored in halves, and of tiles in two parts."""
        matrix = unit(gpu, product.dtype)
        yield from instruction_rules(gpu, matrix, v)
        yield from _half_tile_rules(product.dtype, v)
        if matrix.fallback is not None:
            direct = async_share(matrix, v) == 1
            yield from _two_part_rules(direct, v)
            if matrix.kind == "tcgen05":
                fits = v["tile_m"] * v["tile_n"] <= TENSOR_MEMORY_LANES * TENSOR_MEMORY_COLUMNS
                held = f"sums lie in tensor memory: {TENSOR_MEMORY_LANES} lanes of {TENSOR_MEMORY_COLUMNS} columns"
                yield Rule(implies(direct, fits), "tensor_memory", held, CERTAIN)

    def block_use(self, gpu: GpuModel, product: Product, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        dtype, aligned = product.dtype, product.aligned
        return BlockUse(
            v["num_warps"],
            registers_per_thread(gpu, dtype, v, aligned, has_descriptors=True),
            descriptor_smem_bytes(gpu, product, v),
            least_registers=least_registers(gpu, dtype, v),
            least_smem_bytes=least_smem_bytes(gpu, product, v),
            spilling=spilling(gpu, dtype, v, aligned, has_descriptors=True),
        )

    def table_options(self, product: Product) -> Mapping[str, int]:
        """Three passes, which decide how long matrix instructions take."""
        return {"three_pass": 1} if product.is_three_pass else {}

    def price(self, gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row; the order of tiles makes no difference."""
        return descriptor_cost(gpu, product, columns, blocks_per_sm)

    def call_launches(self, call: GemmCall, config: Config) -> Sequence[Launch]:
        """The launches of one call. Needs torch and triton."""
        from constrint.kernels.gemm.descriptor.launch import descriptor_launches

        return descriptor_launches(call, config)


def _half_tile_rules(dtype: str, v: Vars) -> Iterator[Rule]:
    """Rules that allow an output tile to be stored in two halves."""
    halves = v["epilogue_subtile"] == 2
    if OUTPUT_BYTES[dtype] == PARTIAL_BYTES:
        holds = any_of(v["persistent"] == 1, v["split_k"] == 1)
        yield Rule(implies(halves, holds), "subtile_whole_k", "the last block of a split tile stores it whole", CERTAIN)
        one_part = implies(halves, rest_columns(v["tile_n"]) == 0)
        yield Rule(one_part, "subtile_one_part", "a tile in two parts is stored in parts as it is", CERTAIN)
    else:
        staged = "elsewhere an output of 16 bits is staged in the pipeline's memory, whatever its size"
        yield Rule(implies(halves, v["persistent"] == 1), "subtile_persistent", staged, REDUNDANT)
    yield Rule(
        implies(halves, 16 * v["num_warps"] <= v["tile_m"]),
        "subtile_warps",
        "halves of the columns fall to each warp alone only if all warps share out the rows",
        CERTAIN,
    )
    yield Rule(
        implies(halves, v["tile_n"] >= 32), "subtile_columns", "a matrix instruction takes n = 8 or more", CERTAIN
    )


def _two_part_rules(is_direct: Any, v: Vars) -> Iterator[Rule]:
    """Rules that allow a tile to be computed as two Triton blocks side by side, which share A's slices."""
    has_rest = rest_columns(v["tile_n"]) >= 1
    yield Rule(
        implies(has_rest, is_direct),
        "parts_direct",
        "both parts read one slice of A, which only wgmma and tcgen05 do from shared memory",
        CERTAIN,
    )
    yield Rule(
        implies(has_rest, v["persistent"] == 0),
        "parts_not_persistent",
        "the persistent loop ends in one epilogue: with two of them ptxas serialises wgmma",
        CERTAIN,
    )
    sums = v["tile_m"] * v["tile_n"]
    yield Rule(
        implies(has_rest, any_of(v["split_k"] == 1, sums <= 128 * 32 * v["num_warps"])),
        "parts_split",
        "a block that adds up others' sums spills with more than 128 of its own per thread",
        ESTIMATED,
    )


#: Buffers that the TMA unit fills start at multiples of this many bytes.
BUFFER_ALIGNMENT_BYTES = 1024
BARRIER_BYTES = 8


def least_smem_bytes(gpu: GpuModel, product: Product, v: Vars) -> Expr | None:
    """Shared memory under Triton 3.9, for 32-bit outputs alone: there Triton 3.6 to 3.8 take more. Otherwise None."""
    return descriptor_smem_bytes(gpu, product, v, is_shared=True) if product.output_bytes == PARTIAL_BYTES else None


def descriptor_smem_bytes(gpu: GpuModel, product: Product, v: Vars, *, is_shared: bool = False) -> Expr:
    """Shared memory of one block: operand pipeline, barriers, and the output tile on its way to the TMA unit.

    The output shares the pipeline's memory, except where the next tile's loads are already in flight (a persistent
    grid) and, as Triton 3.6 to 3.8 have it, where it is 32 bits wide (3.9: `is_shared`).
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
    keeps_both: Expr = const(0)
    if output == PARTIAL_BYTES and not is_shared:
        # Only where a block stores its one tile in halves do both of them share the pipeline's memory.
        halves = (1 - v["persistent"]) * (v["epilogue_subtile"] - 1)
        whole = v["tile_m"] * v["tile_n"] * output
        apart = (1 - splits) * (1 - halves)
        is_bare = matrix.kind == "tcgen05" and product.batch == 1 and not (product.has_bias or product.has_source)
        keeps = is_bare and rules_of(triton_version()).keeps_both_halves
        keeps_both = v["persistent"] * (v["epilogue_subtile"] - 1) * int(keeps)
        at_once = halves + keeps_both
        stored = at_once * whole + (1 - at_once) * (whole // v["epilogue_subtile"])
    else:
        # The smaller part of a tile in two parts uses the memory of the larger one.
        apart, stored = v["persistent"], v["tile_m"] * widest * output // v["epilogue_subtile"]
    if matrix.kind == "tcgen05":
        # Halves of sums of 64 rows are re-ordered through half as much again, of 32 bits through up to as much again.
        is_low = use * (1 - minimum(1, v["tile_m"] // 128)) * (v["epilogue_subtile"] - 1) * (1 - keeps_both)
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


SPECS = (DescriptorSpec(),)
