"""Rules and registers that the GEMM's kernels share: on the grid, the epilogue, and tiles of matrix instructions.

Each rule on sizes is stated once, over expressions or over columns of numbers. Over expressions it becomes a constraint
of a space; over columns it tests a whole table of configurations against a shape in microseconds.

A Triton kernel needs the larger of two weighted sums of registers: those of its loop over K, and those of its epilogue.
The estimate gives the occupancy, and by a curve the chance of spilling. `benchmarks/registers.py fit --kernel gemm`
fits weights and curves to the kernels of `benchmarks/resources/gemm.py`, per target, instruction and element size. One
figure is exact: the accumulators that are live at the end of the loop.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from constrint.hwmodels import DotUnit, GpuModel
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import (
    ALL_ALIGNED,
    ELEMENT_BYTES,
    MIN_COPY_BYTES,
    PASS_BYTES,
    WIDEST_BYTES,
    Aligned,
    Vars,
    async_share,
    is_upcast,
    mma_warp_rows,
    threads,
    unit,
)
from constrint.kernels.resources import registers
from constrint.kernels.resources.registers import END, Family, RegisterModel, either, load_models, name_of_weights
from constrint.model import Expr, Var, any_of, ceildiv, const, divides, implies, maximum, minimum
from constrint.model.constraint import CERTAIN, ESTIMATED, REDUNDANT
from constrint.select.limits import Spilling
from constrint.select.spec import Rule

#: Blocks along the first grid dimension, on both vendors.
MAX_GRID_BLOCKS = 2**31 - 1
#: Neighbouring tiles that an XCD takes at a time; 0: tiles are dealt one by one. The last value is so large that in
#: most grids each XCD gets a single run.
XCD_CHUNKS = (64, 0, 32, 512)
#: Largest value of a tile parameter.
MAX_TILE = {"tile_m": 256, "tile_n": 384, "tile_k": 1024}
#: Rows of tiles that others found best for fewer rows (201 of 1,975 published ones).
ROWS_IN_USE = 64
#: Rows of the smallest matrix instruction.
LEAST_ROWS = 16
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
    gpu: GpuModel,
    sizes: Mapping[str, int],
    v: Mapping[str, Any],
    algebra: Algebra,
    fixed: Mapping[str, int],
    rows_in_use: int,
) -> Iterator[Rule]:
    """Every rule for a product of these sizes over the parameters `v`; those on the order of tiles come last.

    Args:
        gpu: The hardware model.
        sizes: M, N and K.
        v: The parameters of a kernel.
        algebra: `EXPRESSIONS` or `COLUMNS`, whichever `v` holds.
        fixed: `split_k` and `persistent` of a kernel that has no such parameters.
        rows_in_use: Rows of a tile that products with fewer rows may take.
    """
    m, n, k = (sizes[s] for s in ("m", "n", "k"))
    padding = "a larger tile would compute nothing but padding"
    for size, name, smallest in ((m, "tile_m", rows_in_use), (n, "tile_n", 16), (k, "tile_k", 32)):
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


def instruction_rules(gpu: GpuModel, unit: DotUnit, v: Vars, *, pads_rows: bool = False) -> Iterator[Rule]:
    """Tiles are whole instructions, and every warp has one of its own.

    Args:
        gpu: The hardware model.
        unit: The matrix unit.
        v: The parameters of a kernel.
        pads_rows: Whether tiles may have fewer rows than the smallest instruction.
    """
    empty = "a smaller tile leaves part of the matrix instruction empty, which"
    for m, n, k in unit.shapes:
        depth = Rule(divides(k, v["tile_k"]), f"instruction_k{m}", f"the matrix instruction takes k = {k}", CERTAIN)
        if unit.fallback is not None:
            yield depth
            continue
        whole = Rule(m <= v["tile_m"], f"instruction_m{m}", f"{empty} takes m = {m}", REDUNDANT)
        rules = [
            *(() if pads_rows and m == LEAST_ROWS else (whole,)),
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


#: Bytes along K that one step of the matrix instruction takes of an operand.
STEP_BYTES = 32
#: AMD: words of partial sums that a thread loads ahead at the end of a split tile.
MOST_PARTIAL_WORDS = 128
#: AMD: registers that are free at that time beside twice the accumulators.
PARTIAL_ADDRESSES = 24
#: The fitted weights by name.
REGISTER_MODELS: Mapping[str, RegisterModel] = load_models("gemm")


class TermKind(NamedTuple):
    """The facts that decide the terms, beside the configuration.

    Args:
        instruction: "fma", "mma", "wgmma", "tcgen05", "mfma" or "wmma"; "mma" where a unit falls back to it.
        dtype: Element type of A and B.
        warp_size: Threads per warp.
        aligned: Widths of loads and stores that the rows allow.
        is_widened: Whether fp8 is multiplied as fp16.
        has_descriptors: Whether tiles come and go through tensor descriptors instead of pointers.
    """

    instruction: str
    dtype: str
    warp_size: int
    aligned: Aligned
    is_widened: bool
    has_descriptors: bool

    @property
    def is_direct(self) -> bool:
        """Whether the matrix unit reads operands from shared memory instead of registers."""
        return self.instruction in ("wgmma", "tcgen05")

    @property
    def is_amd(self) -> bool:
        """Whether loads wait in registers for their turn in LDS."""
        return self.instruction in ("mfma", "wmma")


def kinds_of(gpu: GpuModel, dtype: str, aligned: Aligned, *, has_descriptors: bool = False) -> tuple[TermKind, ...]:
    """The kinds that configurations for a dtype may be of: the unit's own, and the one it falls back to."""
    matrix = unit(gpu, dtype)
    own = TermKind(matrix.kind, dtype, gpu.sm.warp_size, aligned, False, has_descriptors)
    if matrix.fallback is None:
        return (own,)
    return own, own._replace(instruction=matrix.fallback, is_widened=is_upcast(matrix, dtype))


def families(gpu: GpuModel, kind: TermKind) -> tuple[Family, ...]:
    """Families whose weights a kind may take: of its own element type first, then of wider groups of types."""
    if kind.instruction == "fma":
        return (Family("fma"),)
    marks = ("descriptor " if kind.has_descriptors else "") + ("widened " if kind.is_widened else "")
    is_half = ELEMENT_BYTES[kind.dtype] == 2
    elements = ["16" if is_half else kind.dtype]
    if not marks:
        if ELEMENT_BYTES[kind.dtype] == 1:
            elements.append("8-bit")
        # Operands of other widths than 16 bits pass through registers on their way to a unit that reads shared memory.
        if not kind.is_direct:
            elements.append("any")
        elif not is_half:
            elements.append("turned")
    names = [f"{kind.instruction} {marks}{element}" for element in elements]
    return tuple(Family(f"{gpu.traits.code_family} {name}", f"{gpu.compiler_target} {name}") for name in names)


def model_key(gpu: GpuModel, kind: TermKind, available: Collection[str]) -> str:
    """Name of the weights for a kind on a GPU: of its target if there are such, else of the target's family."""
    return name_of_weights(families(gpu, kind), available)


def registers_per_thread(
    gpu: GpuModel, dtype: str, v: Vars, aligned: Aligned = ALL_ALIGNED, *, has_descriptors: bool = False
) -> Expr:
    """Estimated 32-bit registers per thread (on CDNA the total of the unified file)."""
    kinds = kinds_of(gpu, dtype, aligned, has_descriptors=has_descriptors)
    figures = [weighted(REGISTER_MODELS[model_key(gpu, kind, REGISTER_MODELS)].estimate, kind, v) for kind in kinds]
    if len(figures) == 1:
        return figures[0]
    use = async_share(unit(gpu, dtype), v)
    return use * figures[0] + (1 - use) * figures[1]


def spilling(
    gpu: GpuModel, dtype: str, v: Vars, aligned: Aligned = ALL_ALIGNED, *, has_descriptors: bool = False
) -> Spilling:
    """Return the spill curve for the instruction that each configuration uses."""
    kinds = kinds_of(gpu, dtype, aligned, has_descriptors=has_descriptors)
    curves = [REGISTER_MODELS[model_key(gpu, kind, REGISTER_MODELS)].spilling for kind in kinds]
    return curves[0] if len(curves) == 1 else either(async_share(unit(gpu, dtype), v), *curves)


def least_registers(gpu: GpuModel, dtype: str, v: Vars) -> Expr:
    """Registers that a thread needs whatever the compiler does: its sums, and one for the address they go to.

    All sums are live where the loop over K ends, and the first one cannot be stored without an address. tcgen05 keeps
    its sums in tensor memory.
    """
    matrix = unit(gpu, dtype)
    sums = ceildiv(v["tile_m"] * v["tile_n"], v["num_warps"] * gpu.sm.warp_size)
    if matrix.kind == "tcgen05":
        sums = (1 - async_share(matrix, v)) * sums
    return sums + 1


def weighted(weights: Mapping[str, int], kind: TermKind, v: Vars) -> Expr:
    """The larger of the two sums of a kind's weighted terms, in whole registers."""
    if all(isinstance(variable, Var) and variable.name == name for name, variable in v.items()):
        return _weighted_of_names(tuple(weights.items()), kind, tuple(v))
    return registers.weighted(weights, register_terms(kind, v))


@lru_cache(maxsize=1024)
def _weighted_of_names(weights: tuple[tuple[str, int], ...], kind: TermKind, names: tuple[str, ...]) -> Expr:
    """Expressions for plain variables are kept: building one takes as long as solving."""
    return registers.weighted(dict(weights), register_terms(kind, {name: Var(name) for name in names}))


def register_terms(kind: TermKind, v: Vars) -> dict[str, Expr]:
    """Return the terms of a thread's registers, in 32-bit registers or counts; terms that are always 0 are omitted."""
    accumulators = ceildiv(v["tile_m"] * v["tile_n"], v["num_warps"] * kind.warp_size)
    if kind.instruction == "fma":
        return {"base": const(1), "accumulators": accumulators, "operands": v["tile_k"] * (16 + accumulators)}
    common = {
        "base": const(1),
        "accumulators": accumulators,
        "persistent": v["persistent"],
        "persistent_accumulators": v["persistent"] * accumulators,
    }
    loop: dict[str, Expr] = {**common, "pipelined": minimum(1, v["num_stages"] - 1)}
    if not kind.has_descriptors:
        loop |= _load_terms(kind, v)
    return loop | _fragment_terms(kind, v) | _end_terms(kind, v, common)


def _end_terms(kind: TermKind, v: Vars, common: Mapping[str, Expr]) -> dict[str, Expr]:
    """Terms of the epilogue: sums on their way to C or to the workspace and back."""
    splits, accumulators = minimum(1, v["split_k"] - 1), common["accumulators"]
    terms: dict[str, Expr] = {**common, "split": splits, "split_accumulators": splits * accumulators}
    if kind.aligned.c < WIDEST_BYTES and not kind.has_descriptors:
        terms |= {"ragged": const(1), "ragged_accumulators": accumulators}
    if kind.is_amd:
        ahead = minimum(MOST_PARTIAL_WORDS, accumulators * v["split_k"])
        terms["partials"] = splits * maximum(0, ahead - 2 * accumulators - PARTIAL_ADDRESSES)
    return {END + name: term for name, term in terms.items()}


def _load_terms(kind: TermKind, v: Vars) -> dict[str, Expr]:
    """Terms of loads: pointers, and words on their way from global to shared memory."""
    element, num_threads = ELEMENT_BYTES[kind.dtype], v["num_warps"] * kind.warp_size
    pipelined = minimum(1, v["num_stages"] - 1)
    terms: dict[str, Expr] = {}
    for name, tile, width in (("a", v["tile_m"], kind.aligned.a), ("b", v["tile_n"], kind.aligned.b)):
        operand = tile * v["tile_k"] * element
        words = ceildiv(operand, 4 * num_threads)
        terms[f"unpipelined_{name}"] = (1 - pipelined) * words
        if kind.is_amd:
            terms[f"pipelined_{name}"] = pipelined * words
        # One pointer per load, as wide as rows are aligned; narrow ones cannot be copied past the registers.
        loads = ceildiv(operand, width * num_threads)
        what = "loads" if width >= MIN_COPY_BYTES else "narrow"
        terms[f"{what}_{name}"] = loads
        terms[f"persistent_{what}_{name}"] = v["persistent"] * loads
        if width < WIDEST_BYTES:
            terms[f"ragged_{name}"] = const(1)
    return terms


def _fragment_terms(kind: TermKind, v: Vars) -> dict[str, Expr]:
    """Terms of operands in registers: of one warp, for one step of the instruction and for all of tile_k."""
    element = ELEMENT_BYTES[kind.dtype]
    if kind.is_direct and (element == 2 or kind.has_descriptors):
        return {}
    rows = minimum(v["num_warps"], maximum(1, v["tile_m"] // 16)) if kind.is_direct else mma_warp_rows(v)
    columns = maximum(1, v["num_warps"] // rows)
    own = {"a": maximum(16, v["tile_m"] // rows), "b": maximum(8, v["tile_n"] // columns)}
    lanes = 4 * kind.warp_size
    step = minimum(v["tile_k"], STEP_BYTES // element)
    pipelined = minimum(1, v["num_stages"] - 1)
    terms: dict[str, Expr] = {}
    for name, share in own.items():
        terms[f"step_{name}"] = ceildiv(share * step * element, lanes)
        terms[f"whole_{name}"] = ceildiv(share * v["tile_k"] * element, lanes)
        terms[f"persistent_whole_{name}"] = v["persistent"] * terms[f"whole_{name}"]
        # Row-major B of 8- or 32-bit elements is gathered from shared memory element by element; 8-bit A may be, too.
        if element != 2 and not kind.has_descriptors:
            terms[f"gathered_step_{name}"] = pipelined * terms[f"step_{name}"]
            terms[f"gathered_whole_{name}"] = pipelined * terms[f"whole_{name}"]
    return terms
