"""The tile of a configuration in terms of wgmma, its ring of slices, the rules that follow, and a block's resources.

All figures are arithmetic on the parameters, whether these are expressions, numbers or columns of numbers. No torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.shape import WARPGROUP_WARPS, launched_registers
from constrint.kernels.gemm.product import MatrixLayout, Product
from constrint.kernels.gemm.rules import Algebra
from constrint.kernels.gemm.units import WIDEST_BYTES
from constrint.model import Expr, any_of
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.limits import BlockUse
from constrint.select.spec import Rule, Vars

#: Depth of a slice, rows of a consumer, and rows of W in a line of 128 bytes where it does not lie along K.
DEPTH, OWN_ROWS, SLAB = 32, 64, 32
#: Bytes of a slice of one row of W; of one column of X, as it is and in three parts.
ROW_BYTES, COLUMN_BYTES, PARTS_BYTES = 128, 128, 3 * 64
#: Alignment of a stage, which the ring takes once more in front of it, and static memory of barriers and flags.
STAGE_ALIGNMENT, STATIC_BYTES = 1024, 256
#: The deepest ring.
MOST_STAGES = 8
#: The most columns, and the most beside three consumers, whose threads have fewer registers for two sets of sums.
MOST_COLUMNS, MOST_COLUMNS_OF_THREE = 128, 96
#: Tiles and their parts are numbered by 32-bit integers.
MAX_UNITS = 2**31 - 1
#: The longest parts of K that are split off.
MAX_PARTS = 32


def columns_of(v: Mapping[str, Any]) -> Any:
    """Columns of wgmma in a tile: columns of C, or rows of C where the kernel is turned."""
    return v["tile_n"] + v["turned"] * (v["tile_m"] - v["tile_n"])


def rows_of(v: Mapping[str, Any]) -> Any:
    """Rows of wgmma in a tile."""
    return v["tile_m"] + v["turned"] * (v["tile_n"] - v["tile_m"])


def loaded_bytes(v: Mapping[str, Any], *, is_three_pass: bool) -> Any:
    """Bytes of a stage that the TMA unit loads."""
    return rows_of(v) * ROW_BYTES + columns_of(v) * (PARTS_BYTES if is_three_pass else COLUMN_BYTES)


def stage_bytes(v: Mapping[str, Any], *, is_three_pass: bool) -> Any:
    """Bytes of a stage with what aligns the next one."""
    loaded = loaded_bytes(v, is_three_pass=is_three_pass)
    return (loaded + STAGE_ALIGNMENT - 1) // STAGE_ALIGNMENT * STAGE_ALIGNMENT


def dynamic_smem_bytes(v: Mapping[str, Any], *, is_three_pass: bool) -> Any:
    """Dynamic shared memory of a block."""
    return STAGE_ALIGNMENT + v["num_stages"] * stage_bytes(v, is_three_pass=is_three_pass)


def block_use(gpu: GpuModel, product: Product, v: Vars) -> BlockUse:
    """Warps with the producer's, registers and shared memory of one block; nothing of it is estimated."""
    registers: Expr = launched_registers(gpu, v["consumers"])
    return BlockUse(
        warps=WARPGROUP_WARPS * (v["consumers"] + 1),
        registers_per_thread=registers,
        smem_bytes=dynamic_smem_bytes(v, is_three_pass=product.is_three_pass) + STATIC_BYTES,
        least_registers=registers,
        spilling=None,
    )


def is_loadable(operand: MatrixLayout) -> bool:
    """Whether the TMA unit loads an operand as it is, in any order of axes."""
    return operand.width_bytes == WIDEST_BYTES and not operand.is_scattered and not operand.is_expanded


def serves_rows(product: Product, rows: MatrixLayout, columns: MatrixLayout) -> bool:
    """Whether one operand can be wgmma's rows, and the other one its columns."""
    if not is_loadable(rows):
        return False
    # tf32 is multiplied as it is: along K by gemm.cuda, and its columns lie along K.
    return product.is_three_pass or (not rows.is_k_major and columns.is_k_major and is_loadable(columns))


def tile_rules(gpu: GpuModel, product: Product, v: Vars) -> Iterator[Rule]:
    """The rules that hold for all sizes with the same layouts."""
    columns, three = columns_of(v), product.is_three_pass
    rows = f"each consumer has {OWN_ROWS} rows of wgmma"
    yield Rule(rows_of(v) == OWN_ROWS * v["consumers"], "instruction_rows", rows, CERTAIN)
    step = f"wgmma has columns in steps of 8; sums of up to {MOST_COLUMNS} fit registers"
    yield Rule(columns % 8 == 0, "instruction_columns", step, CERTAIN)
    yield Rule(columns <= MOST_COLUMNS, "most_columns", step, CERTAIN)
    if three:
        fewer = f"three consumers have registers for two sets of sums of {MOST_COLUMNS_OF_THREE} columns"
        most = any_of(v["consumers"] < 3, columns <= MOST_COLUMNS_OF_THREE)
        yield Rule(most, "columns_of_three", fewer, CERTAIN)
    for turned, of_rows, of_columns in ((0, product.a, product.b), (1, product.b, product.a)):
        if not serves_rows(product, of_rows, of_columns):
            because = "the TMA unit loads wgmma's rows as they are; for tf32 they lie across K, and columns along it"
            yield Rule(v["turned"] != turned, f"rows_loaded{turned}", because, CERTAIN)
    smem = dynamic_smem_bytes(v, is_three_pass=three) + STATIC_BYTES
    more = smem + stage_bytes(v, is_three_pass=three) > gpu.sm.max_smem_bytes_per_block
    full = f"a block is alone on its SM: fewer stages than fit, up to {MOST_STAGES}, load less far ahead for nothing"
    yield Rule(any_of(v["num_stages"] == MOST_STAGES, more), "ring_full", full, REDUNDANT)


def size_rules(gpu: GpuModel, product: Product, v: Mapping[str, Any], algebra: Algebra) -> Iterator[Rule]:
    """The rules on sizes, over expressions or columns."""
    m, n, slices = product.m, product.n, -(-product.k // DEPTH)
    padding = "a larger tile would compute nothing but padding"
    for size, name, is_columns in ((m, "tile_m", 1), (n, "tile_n", 0)):
        narrow = algebra.implies(v["turned"] == is_columns, v[name] <= _up(size, 16))
        yield Rule(narrow, f"{name}_columns_in_size", padding, REDUNDANT)
        tall = algebra.implies(v["turned"] != is_columns, v[name] <= _up(size, OWN_ROWS))
        yield Rule(tall, f"{name}_rows_in_size", padding, REDUNDANT)
    if slices < MAX_PARTS:
        yield Rule(v["split_k"] <= slices, "split_k_in_k", "every part of K has a slice", CERTAIN)
    tiles = algebra.ceildiv(m, v["tile_m"]) * algebra.ceildiv(n, v["tile_n"])
    counted = f"tiles and their parts are counted in 32 bits: up to {MAX_UNITS}"
    yield Rule(tiles * v["split_k"] <= MAX_UNITS, "units", counted, CERTAIN)
    filled = "tiles that fill the GPU twice are not split"
    yield Rule(algebra.any_of(v["split_k"] == 1, tiles < 2 * gpu.device.sm_count), "split_fills", filled, REDUNDANT)


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
