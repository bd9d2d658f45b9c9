"""The tile of a skinny GEMM configuration, the schedule of its steps, and the resources of one block.

All figures are arithmetic on the parameters, whether these are numbers, columns of numbers or expressions. The compiler
gets the number of blocks that an SM is to hold (`__launch_bounds__`) and gives threads no more registers than that
leaves. The registers of sums, of vectors in flight and of addresses are counted here; `tile_rules` limits
them. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.rules import Algebra
from constrint.kernels.gemm.units import ELEMENT_BYTES, WIDEST_BYTES
from constrint.model import Expr, any_of, divides, implies, maximum, minimum
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.limits import BlockUse
from constrint.select.spec import Rule, Vars

#: Threads of a warp, of which four share 64 bytes of a row along K, a vector of 16 bytes each.
WARP, QUAD, LINE_BYTES = 32, 4, 64
#: Rows of the long operand that a matrix instruction has, and of the short one.
ROWS, COLUMNS = 16, 8
#: Modes of reading an operand, `Mode` in the source: vectors at multiples of 16 bytes, vectors anywhere, or elements.
ALIGNED, SHIFTED, STRIDED = range(3)
#: Bits of `SkinnyLayout.ragged`.
RAGGED_LARGE, RAGGED_SMALL = 1, 2
#: Registers of a thread beside those that are counted here.
OTHER_REGISTERS = 40
#: Registers of every four lines of 8-bit integers that a warp loads at a time, and of the bytes of a short operand that
#: is read element by element, as compiled kernels show.
BEGUN_REGISTERS, GATHERED_REGISTERS = 8, 16
#: Registers are granted in steps, and thread 255 of 256 at most; static shared memory beside the sums.
REGISTER_STEP, FLAG_BYTES = 8, 16


@dataclass(frozen=True)
class SkinnyLayout:
    """Modes in which the kernel reads both operands; it is compiled for each layout.

    Args:
        is_k_major: Whether the long operand is contiguous along K.
        large: Mode of the long operand: `ALIGNED` or `SHIFTED`.
        small: Mode of the short operand; `STRIDED` where it is not contiguous along K.
        ragged: `RAGGED_LARGE` or `RAGGED_SMALL` or both, where an operand that is read in vectors ends within one: the
            vector with its end is then read in parts.
    """

    is_k_major: bool = True
    large: int = ALIGNED
    small: int = ALIGNED
    ragged: int = 0


def unit_rows(dtype: str, *, is_k_major: bool) -> int:
    """Rows of a warp's unit of eight groups of four lanes: two rows a group along K, else a vector of rows a group."""
    return ROWS if is_k_major else 8 * vector(dtype)


def vector(dtype: str) -> int:
    """Elements of a vector of 16 bytes."""
    return WIDEST_BYTES // ELEMENT_BYTES[dtype]


def line(dtype: str) -> int:
    """Elements of a line of 64 bytes, which a warp reads along K at once."""
    return LINE_BYTES // ELEMENT_BYTES[dtype]


@dataclass(frozen=True)
class SkinnyTile:
    """A block's tile and its division among warps and threads.

    Args:
        rows: Rows of the long operand that a block has.
        small: Rows of the short operand that sums are kept for.
        warps_rows, warps_k: Warps of a block beside each other, and along K.
        tiles: Groups of `unit_rows` rows of a warp.
        unroll: Lines of 64 bytes along K that a warp loads at a time.
        vectors: Vectors of 16 bytes of the long operand that a thread has under way.
        sums: Sums of a thread.
    """

    rows: Any
    small: Any
    warps_rows: Any
    warps_k: Any
    tiles: Any
    unroll: Any
    vectors: Any
    sums: Any

    @staticmethod
    def of(v: Mapping[str, Any], dtype: str, *, a_is_k_major: bool, b_is_k_major: bool) -> SkinnyTile:
        """Derive the tile from a configuration's parameters and the operands' layouts."""
        turned, wider = v["turned"], v["tile_n"] - v["tile_m"]
        rows, small = v["tile_m"] + turned * wider, v["tile_n"] - turned * wider
        of_a, of_b = (unit_rows(dtype, is_k_major=is_k_major) for is_k_major in (a_is_k_major, b_is_k_major))
        unit, warps_rows = of_a + turned * (of_b - of_a), v["num_warps"] // v["warps_k"]
        tiles, unroll = rows // (unit * warps_rows), v["tile_k"] // (line(dtype) * v["warps_k"])
        # Along K a lane holds two rows of a group, otherwise as many vectors along K as a vector has elements.
        held = (2 if is_k_major else vector(dtype) for is_k_major in (a_is_k_major, b_is_k_major))
        of_a, of_b = held
        vectors = unroll * tiles * (of_a + turned * (of_b - of_a))
        # Matrix instructions spread sums over all lanes. Without them, four lanes have the same sums, each a part of K.
        sums = rows // warps_rows * small // (8 + (WARP - 8) * v["mma"])
        return SkinnyTile(rows, small, warps_rows, v["warps_k"], tiles, unroll, vectors, sums)

    @staticmethod
    def of_product(v: Mapping[str, Any], p: Product) -> SkinnyTile:
        """Derive the tile from a configuration's parameters and a product."""
        return SkinnyTile.of(v, p.dtype, a_is_k_major=p.a.is_k_major, b_is_k_major=p.b.is_k_major)


@dataclass(frozen=True)
class StepSchedule:
    """The schedule of a grid: how blocks share the steps of all tiles.

    Args:
        tiles: Tiles along the rows of the long operand.
        steps: Steps along K of a tile.
        columns: Groups of rows of the short operand; the long operand is read once for each group.
        blocks: Blocks that share the steps of one group.
        fan_in: Neighbouring blocks of a tile whose sums are added first; 0: all are added at once.
    """

    tiles: int
    steps: int
    columns: int
    blocks: int
    fan_in: int = 0

    @staticmethod
    def of(shape: SkinnyTile, config: Mapping[str, int], sizes: tuple[int, int, int], blocks: int) -> StepSchedule:
        """Derive the schedule of a tile for sizes (rows, small, depth), with at most one block for each step."""
        rows, small, depth = sizes
        tiles, steps = math.ceil(rows / shape.rows), math.ceil(depth / config["tile_k"])
        columns = math.ceil(small / shape.small)
        return StepSchedule(tiles, steps, columns, min(blocks, tiles * steps), config["fan_in"])

    @property
    def units(self) -> int:
        """Steps of all tiles of one group."""
        return self.tiles * self.steps

    @property
    def is_whole(self) -> bool:
        """Whether every block has whole tiles."""
        return self.units % self.blocks == 0 and self.units // self.blocks % self.steps == 0

    @property
    def contributors(self) -> int:
        """Blocks that share a tile, at most."""
        if self.is_whole:
            return 1
        return min(math.ceil(self.steps * self.blocks / self.units) + 1, self.blocks, self.steps)

    @property
    def counters(self) -> int:
        """Counters of a tile: one of finished blocks, and one for each group of neighbours."""
        return 1 + (math.ceil(self.contributors / self.fan_in) if self.fan_in else 0)


def asked_blocks(config: Mapping[str, int], tiles: int, num_sms: int) -> int:
    """Blocks that a configuration asks for: `split_k` for each tile, or as many as the device holds if persistent."""
    return num_sms * config["resident"] if config["persistent"] else tiles * config["split_k"]


def launched_registers(gpu: GpuModel, v: Vars) -> Expr:
    """Registers that the compiler may give a thread, so that an SM holds `resident` blocks."""
    whole = gpu.sm.num_partitions * gpu.register_file.capacity
    left = whole // (WARP * v["num_warps"] * v["resident"]) // REGISTER_STEP * REGISTER_STEP
    return minimum(gpu.sm.max_registers_per_thread, left)


def needed_registers(product: Product, v: Vars) -> Expr:
    """Registers of sums, vectors in flight and addresses, by count; the compiler's number may differ."""
    shape, turned, mma = SkinnyTile.of_product(v, product), v["turned"], v["mma"]
    sides = (product.a, product.b)
    # An operand whose rows start anywhere takes two loads for each vector.
    shifted = [1 + (side.width_bytes < WIDEST_BYTES) for side in sides]
    doubled = shifted[0] + turned * (shifted[1] - shifted[0])
    majors = [3 + side.is_k_major for side in sides]
    addresses = shape.tiles * (majors[0] + turned * (majors[1] - majors[0]))
    # Vectors of the short operand for matrix instructions, or single numbers of both operands for FMAs.
    of_matrices, of_numbers = shape.small // 2 * minimum(shape.unroll, 2), 7 * shape.small + 16
    operands = of_numbers + mma * (of_matrices - of_numbers)
    # 8-bit floats are widened to fp16 before they are multiplied. Of 8-bit integers the compiler begins several lines
    # at once where it loads four or more.
    widened = 48 if product.dtype == "fp8" else 0
    # Where the short operand is read element by element, the bytes of a vector are there before they are one.
    gathered = [0 if side.is_k_major else GATHERED_REGISTERS for side in sides]
    of_short = gathered[1] + turned * (gathered[0] - gathered[1])
    begun = BEGUN_REGISTERS * (shape.unroll // 4) + of_short if product.dtype == "int8" else 0
    vectors = 4 * doubled * shape.vectors * v["num_stages"]
    taken: Expr = shape.sums + vectors + addresses + operands + widened + begun + OTHER_REGISTERS
    return taken


def dynamic_smem_bytes(shape: SkinnyTile, num_warps: Any, *, most: Any = max) -> Any:
    """Dynamic shared memory in bytes: the sums of all warps along K, at least four sums of each thread."""
    return 4 * most(shape.warps_k * shape.small * (shape.rows + QUAD), QUAD * WARP * num_warps)


def smem_bytes(product: Product, v: Vars) -> Expr:
    """Shared memory of a block in bytes, with the flag by which a block learns that it is the last of a tile."""
    taken: Expr = dynamic_smem_bytes(SkinnyTile.of_product(v, product), v["num_warps"], most=maximum) + FLAG_BYTES
    return taken


def block_use(gpu: GpuModel, product: Product, v: Vars) -> BlockUse:
    """Warps, registers and shared memory of one block; nothing of it is estimated."""
    registers = launched_registers(gpu, v)
    return BlockUse(
        warps=v["num_warps"],
        registers_per_thread=registers,
        smem_bytes=smem_bytes(product, v),
        least_registers=registers,
        spilling=None,
    )


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
#: Less for a target of which a kernel at 92.2 % spilled, by NVRTC 13.5.
TARGET_CLEAR_PERCENT = {"sm_120a": 92}
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
    usual = TARGET_CLEAR_PERCENT.get(gpu.arch.target, USUAL_CLEAR_PERCENT)
    percent = CLEAR_PERCENT.get(dtype, usual)
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
    filled = algebra.any_of(v["split_k"] == 1, tiles * product.batch * v["split_k"] <= MOST_ROUNDS * slots)
    yield Rule(filled, "split_k_fills", rounds, REDUNDANT)
    if product.batch > 1:
        fills = "the products of a batch fill the device; blocks share the steps of one of them"
        yield Rule(v["persistent"] == 0, "persistent_alone", fills, REDUNDANT)
    many = "blocks that share all steps evenly have more than one each"
    yield Rule(algebra.implies(v["persistent"] == 1, tiles * steps > slots), "persistent_many_steps", many, REDUNDANT)
    blocks = tiles * v["split_k"] + v["persistent"] * slots
    counted = f"steps times blocks are counted in 32 bits: less than {MOST_COUNTED}"
    yield Rule((tiles * steps + 1) * (blocks + 1) < MOST_COUNTED, "counted", counted, CERTAIN)


def _power(size: int) -> int:
    """The power of two that is no smaller."""
    return 1 << (size - 1).bit_length()
