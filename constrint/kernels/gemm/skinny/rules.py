"""The rules of the skinny GEMM, each stated once: limits of the kernel and its registers, and rules on sizes.

Rules on sizes are stated over expressions or over columns of numbers (`Algebra`), as in the other kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.rules import Algebra
from constrint.kernels.gemm.skinny.shape import (
    COLUMNS,
    ROWS,
    WARP,
    SkinnyTile,
    launched_registers,
    line,
    needed_registers,
    smem_bytes,
    unit_rows,
)
from constrint.model import any_of, divides, implies
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.spec import Rule, Vars

#: The longest short side, and the longest without matrix instructions.
MOST_SHORT, MOST_SHORT_BY_NUMBERS = 64, 16
#: Most groups of rows of a warp, lines along K of one load, and warps beside each other, as far as measured.
MOST_TILES, MOST_UNROLL, MOST_WARPS_ROWS = 4, 8, 8
#: Fewest warps of a block: fewer leave an SM too few bytes in flight.
FEWEST_WARPS = 2
#: Percent of a thread's registers that the counted ones may take without spilling, as compiled kernels show
#: (`tests/kernels/gemm/test_skinny_compiled.py`).
CLEAR_PERCENT = {"fp8": 75, "int8": 83, "tf32": 60}
USUAL_CLEAR_PERCENT = 93
#: Most rounds of blocks with split K: more only add hand-overs.
MOST_ROUNDS = 4
#: Limit of steps times blocks, which the kernel counts in 32 bits, and the largest size.
MOST_COUNTED, MOST_SIZE = 2**31, 2**30


def tile_rules(gpu: GpuModel, product: Product, v: Vars) -> Iterator[Rule]:
    """The rules that hold for all sizes with the same alignments."""
    shape, dtype = SkinnyTile.of_product(v, product), product.dtype
    yield from _dealing_rules(product, v, shape)
    if dtype == "tf32":
        no_matrices = "matrix instructions round fp32; this kernel multiplies it as it is"
        yield Rule(v["mma"] == 0, "fp32_by_numbers", no_matrices, CERTAIN)
    eight = f"a matrix instruction takes {COLUMNS} rows of the short operand"
    yield Rule(implies(v["mma"] == 1, shape.small % COLUMNS == 0), "instruction_columns", eight, CERTAIN)
    longest = f"sums of up to {MOST_SHORT} rows of the short operand fit registers; it is no kernel for longer sides"
    yield Rule(shape.small <= MOST_SHORT, "short_tile", longest, CERTAIN)
    by_number = f"beyond {MOST_SHORT_BY_NUMBERS} rows matrix instructions multiply far faster"
    short = implies(v["mma"] == 0, shape.small <= MOST_SHORT_BY_NUMBERS)
    yield Rule(short, "short_tile_by_numbers", by_number, REDUNDANT if dtype != "tf32" else CERTAIN)
    threads = WARP * v["num_warps"] * v["resident"]
    most = gpu.sm.max_threads_per_sm
    yield Rule(threads <= most, "resident_threads", f"an SM of {gpu.name} has at most {most} threads", CERTAIN)
    smem = (smem_bytes(product, v) + gpu.sm.smem_reserved_bytes_per_block) * v["resident"]
    there = gpu.sm.smem_bytes_per_sm
    fits = f"an SM of {gpu.name} has {there:,} bytes of {gpu.terms.smem} for the blocks that it is to hold"
    yield Rule(smem <= there, "resident_smem", fits, CERTAIN)
    percent = CLEAR_PERCENT.get(dtype, USUAL_CLEAR_PERCENT)
    clear = (
        f"sums, vectors under way and addresses take up to {percent} % of the registers that the blocks of an SM leave "
        "a thread: beyond, the compiler spills some"
    )
    needed, left = needed_registers(product, v), launched_registers(gpu, v)
    yield Rule(100 * needed <= percent * left, "registers_under_way", clear, CERTAIN)
    few = "neighbours add their sums first where there are more of them than would be added last"
    alone = any_of(v["fan_in"] == 0, v["split_k"] > 2 * v["fan_in"])
    yield Rule(alone, "fan_in_of_many", few, REDUNDANT)
    once = "blocks that share all steps evenly share tiles, however many there are"
    yield Rule(implies(v["persistent"] == 1, v["split_k"] == 1), "persistent_whole_k", once, REDUNDANT)


def _dealing_rules(product: Product, v: Vars, shape: SkinnyTile) -> Iterator[Rule]:
    """Rules on dealing rows and K to warps."""
    dealt = "warps are dealt to rows and to K evenly"
    yield Rule(divides(v["warps_k"], v["num_warps"]), "warps_dealt", dealt, CERTAIN)
    beside = f"warps beside each other, up to {MOST_WARPS_ROWS}, share nothing: more of them are more blocks"
    yield Rule(v["num_warps"] <= MOST_WARPS_ROWS * v["warps_k"], "most_warps_rows", beside, REDUNDANT)
    for turned, name, side in ((0, "tile_m", product.a), (1, "tile_n", product.b)):
        unit = unit_rows(product.dtype, is_k_major=side.is_k_major)
        lies = "along K" if side.is_k_major else "along its rows, in vectors of 16 bytes"
        whole = f"the long operand lies {lies}: a warp has whole groups of {unit} rows"
        is_whole = v[name] * v["warps_k"] % (unit * v["num_warps"]) == 0
        yield Rule(implies(v["turned"] == turned, is_whole), f"{name}_whole", whole, CERTAIN)
    few = f"up to {MOST_TILES} groups of rows of a warp: more leave no registers for what is under way"
    yield Rule(shape.tiles <= MOST_TILES, "most_tiles", few, REDUNDANT)
    lines = f"along K a warp loads whole lines of {line(product.dtype)} elements, up to {MOST_UNROLL} at a time"
    yield Rule(divides(line(product.dtype) * v["warps_k"], v["tile_k"]), "lines_whole", lines, CERTAIN)
    yield Rule(v["tile_k"] <= MOST_UNROLL * line(product.dtype) * v["warps_k"], "most_lines", lines, REDUNDANT)


def size_rules(gpu: GpuModel, product: Product, v: Mapping[str, Any], algebra: Algebra) -> Iterator[Rule]:
    """The rules on sizes, over expressions or columns."""
    is_turned = product.n >= product.m
    short, long = (product.m, product.n) if is_turned else (product.n, product.m)
    of_short, of_long = ("tile_m", "tile_n") if is_turned else ("tile_n", "tile_m")
    longer = "what is read once is the operand of the longer side"
    yield Rule(v["turned"] == int(is_turned), "turned_to_the_long_side", longer, REDUNDANT)
    once = f"the long operand is read once: one tile has the whole short side, of up to {MOST_SHORT}"
    yield Rule(v[of_short] >= short, "short_side", once, CERTAIN)
    padding = "a larger tile would compute nothing but padding"
    yield Rule(
        v[of_short] <= _power(short) + v["mma"] * max(0, COLUMNS - _power(short)), "short_in_size", padding, REDUNDANT
    )
    widest = unit_rows(product.dtype, is_k_major=False)
    if long < widest * MOST_TILES * MOST_WARPS_ROWS:
        yield Rule(v[of_long] <= max(widest, ROWS, _power(long)), "long_in_size", padding, REDUNDANT)
    if product.k < line(product.dtype) * MOST_UNROLL * WARP:
        yield Rule(v["tile_k"] <= max(2 * line(product.dtype), _power(product.k)), "tile_k_in_k", padding, REDUNDANT)
    tiles, steps = algebra.ceildiv(long, v[of_long]), algebra.ceildiv(product.k, v["tile_k"])
    yield Rule(v["split_k"] <= steps, "split_k_in_k", "every part of K has a step", REDUNDANT)
    slots = gpu.device.sm_count * v["resident"]
    rounds = f"more than {MOST_ROUNDS} rounds of blocks need no splitting"
    filled = algebra.any_of(v["split_k"] == 1, tiles * v["split_k"] <= MOST_ROUNDS * slots)
    yield Rule(filled, "split_k_fills", rounds, REDUNDANT)
    many = "blocks that share all steps evenly have more than one each"
    yield Rule(algebra.implies(v["persistent"] == 1, tiles * steps > slots), "persistent_many_steps", many, REDUNDANT)
    blocks = tiles * v["split_k"] + v["persistent"] * slots
    counted = f"steps times blocks are counted in 32 bits: less than {MOST_COUNTED}"
    yield Rule((tiles * steps + 1) * (blocks + 1) < MOST_COUNTED, "counted", counted, CERTAIN)


def _power(size: int) -> int:
    """The power of two that is no smaller."""
    return 1 << (size - 1).bit_length()
