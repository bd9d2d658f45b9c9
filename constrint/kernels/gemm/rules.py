"""Rules that the GEMM's kernels share: on the grid, on the epilogue, and on tiles of matrix instructions.

Each rule on sizes is stated once, over expressions or over columns of numbers. Over expressions it becomes a constraint
of a space; over columns it tests a whole table of configurations against a shape in microseconds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from constrint.hwmodels import DotUnit, GpuModel
from constrint.kernels.gemm.product import Product, has_tma
from constrint.kernels.gemm.units import ELEMENT_BYTES, PASS_BYTES, Vars, threads, unit
from constrint.model import Expr, any_of, ceildiv, divides, implies, maximum, minimum
from constrint.model.constraint import CERTAIN, ESTIMATED, REDUNDANT
from constrint.select.spec import Rule

#: Blocks along the first grid dimension, on both vendors.
MAX_GRID_BLOCKS = 2**31 - 1
#: Neighbouring tiles that an XCD takes at a time; 0: tiles are dealt one by one. The last value is so large that in
#: most grids each XCD gets a single run.
XCD_CHUNKS = (64, 0, 32, 512)
#: Largest value of a tile parameter.
MAX_TILE = {"tile_m": 256, "tile_n": 384, "tile_k": 1024}
#: Rows of tiles that others found best for fewer rows, where no TMA kernel competes (201 of 1,975 published ones).
ROWS_IN_USE = 64
#: Shared memory that an added bias takes beside a tile: one row in 32 bits, aligned.
BIAS_ALIGNMENT_BYTES = 1024
#: Sums per thread up to which registers are left for a matrix that is added, or for both parts of fp32 operands.
MOST_SUMS_BESIDE = 64
WHOLE = "each warp owns at least one whole matrix instruction; more warps would repeat work"


class Algebra(NamedTuple):
    """The functions that the rules need beside operators: one set for expressions, one for columns of numbers."""

    ceildiv: Callable[[Any, Any], Any]
    implies: Callable[[Any, Any], Any]
    any_of: Callable[[Any, Any], Any]


EXPRESSIONS = Algebra(ceildiv, implies, any_of)
#: For booleans, `a <= b` is "a implies b".
COLUMNS = Algebra(lambda a, b: -(-a // b), operator.le, operator.or_)


def grid_rules(
    gpu: GpuModel, sizes: Mapping[str, int], v: Mapping[str, Any], algebra: Algebra, fixed: Mapping[str, int]
) -> Iterator[Rule]:
    """Every rule for a product of these sizes over the parameters `v`; those on the order of tiles come last.

    Args:
        gpu: The hardware model.
        sizes: M, N and K.
        v: The parameters of a kernel.
        algebra: `EXPRESSIONS` or `COLUMNS`, whichever `v` holds.
        fixed: `split_k` and `persistent` of a kernel that has no such parameters.
    """
    m, n, k = (sizes[s] for s in ("m", "n", "k"))
    padding = "a larger tile would compute nothing but padding"
    rows = 16 if has_tma(gpu) else ROWS_IN_USE
    for size, name, smallest in ((m, "tile_m", rows), (n, "tile_n", 16), (k, "tile_k", 32)):
        limit = max(smallest, 1 << (size - 1).bit_length())
        if limit < MAX_TILE[name]:
            yield Rule(v[name] <= limit, f"{name}_in_size", padding, REDUNDANT)
    splits = v.get("split_k", fixed.get("split_k", 1))
    if "split_k" in v:
        steps = algebra.ceildiv(k, v["tile_k"])
        yield Rule(splits <= steps, "split_k_in_k", "every split of K gets at least one tile of K", REDUNDANT)
    iterations = algebra.ceildiv(k, v["tile_k"] * splits)
    filled = "the main loop is at least as long as the pipeline ahead of it"
    yield Rule(v["num_stages"] <= iterations + 1, "stages_filled", filled, REDUNDANT)
    rows, columns = algebra.ceildiv(m, v["tile_m"]), algebra.ceildiv(n, v["tile_n"])
    tiles = rows * columns
    yield Rule(tiles * splits <= MAX_GRID_BLOCKS, "grid", f"a grid has at most {MAX_GRID_BLOCKS} blocks", CERTAIN)
    many = "a persistent block needs more than one tile to walk"
    if "persistent" in v:
        is_persistent = v["persistent"] == 1
        whole = "the persistent loop walks whole tiles"
        yield Rule(algebra.implies(is_persistent, splits == 1), "persistent_whole_k", whole, CERTAIN)
        enough = algebra.implies(is_persistent, tiles > gpu.device.sm_count)
        yield Rule(enough, "persistent_many_tiles", many, REDUNDANT)
    elif fixed.get("persistent"):
        yield Rule(tiles > gpu.device.sm_count, "persistent_many_tiles", many, REDUNDANT)
    if "group_m" in v:
        group = algebra.any_of(v["group_m"] == 1, v["group_m"] < 2 * rows)
        repeats = "a group of more rows than the grid has repeats a smaller one"
        yield Rule(group, "group_in_grid", repeats, REDUNDANT)
    if "xcd_chunk" in v:
        yield from _chunk_rules(gpu.device.num_xcds, tiles, v["xcd_chunk"], algebra)


def _chunk_rules(num_xcds: int, tiles: Any, chunk: Any, algebra: Algebra) -> Iterator[Rule]:
    few = "with fewer tiles than XCDs every XCD has one tile in any order"
    yield Rule(algebra.implies(chunk >= 1, tiles > num_xcds), "chunk_many_tiles", few, REDUNDANT)
    cycle = algebra.any_of(chunk == max(XCD_CHUNKS), chunk * num_xcds <= tiles)
    one_run = "a grid with no whole cycle of chunks gives every XCD one run, as 512 does"
    yield Rule(cycle, "chunk_in_grid", one_run, REDUNDANT)


def end_rules(gpu: GpuModel, product: Product, v: Mapping[str, Any]) -> Iterator[Rule]:
    """Estimated rules of a matrix to add, and of fp32 in three passes, over expressions or columns of numbers."""
    if product.has_source or product.is_three_pass:
        most = MOST_SUMS_BESIDE * gpu.sm.warp_size * v["num_warps"]
        because = "the sums leave registers for a matrix to add, or for both parts of fp32 operands"
        yield Rule(v["tile_m"] * v["tile_n"] <= most, "sums_beside", because, ESTIMATED)


def end_smem_bytes(gpu: GpuModel, product: Product, v: Vars, beside: int, plain: Expr) -> Expr:
    """Shared memory with a bias, a matrix to add and fp32 in three passes: an upper bound.

    The matrix passes through the pipeline's memory into the accumulator's layout, on AMD 64 bytes a thread at a time.

    Args:
        gpu: The hardware model.
        product: The product.
        v: The parameters of a kernel.
        beside: Bytes an element of the matrix that a persistent block holds beside the next tile's loads.
        plain: Shared memory without all this.
    """
    area = v["tile_m"] * v["tile_n"]
    if product.is_three_pass:
        # Both parts of B's slice lie beside it.
        plain = plain + 2 * v["tile_n"] * v["tile_k"] * ELEMENT_BYTES[product.dtype]
    if product.has_bias:
        plain = maximum(plain, 4 * v["tile_n"] + BIAS_ALIGNMENT_BYTES)
    if product.has_source:
        staged = area * product.output_bytes
        if unit(gpu, product.dtype).kind in ("mfma", "wmma"):
            staged = minimum(staged, PASS_BYTES * threads(gpu, v))
        plain = maximum(plain + beside * v["persistent"] * area, staged)
    return plain


def instruction_rules(gpu: GpuModel, unit: DotUnit, v: Vars) -> Iterator[Rule]:
    """Tiles are whole instructions, and every warp has one of its own."""
    empty = "a smaller tile leaves part of the matrix instruction empty, which"
    for m, n, k in unit.shapes:
        depth = Rule(divides(k, v["tile_k"]), f"instruction_k{m}", f"the matrix instruction takes k = {k}", CERTAIN)
        if unit.fallback is not None:
            yield depth
            continue
        rules = [
            Rule(m <= v["tile_m"], f"instruction_m{m}", f"{empty} takes m = {m}", REDUNDANT),
            Rule(n <= v["tile_n"], f"instruction_n{m}", f"{empty} takes n = {n}", REDUNDANT),
            depth,
        ]
        if "kpack" in v:
            packed = divides(k * v["kpack"], v["tile_k"])
            together = f"kpack slices of k = {k} are read from LDS together; of fewer slices, 2 is the same as 1"
            rules.append(Rule(packed, f"kpack{m}", together, REDUNDANT))
        for rule in rules:
            chosen = "matrix_instr_nonkdim" in v and len(unit.shapes) > 1
            yield rule._replace(condition=implies(v["matrix_instr_nonkdim"] == m, rule.condition)) if chosen else rule
    if unit.fallback is not None:
        # The fallback, mma.sync m16n8, sets the smallest share of a warp.
        yield Rule(16 * 8 * v["num_warps"] <= v["tile_m"] * v["tile_n"], "warps_busy", WHOLE, REDUNDANT)
