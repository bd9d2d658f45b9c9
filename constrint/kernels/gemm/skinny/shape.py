"""The tile of a skinny GEMM configuration, the schedule of its steps, and the resources of one block.

All figures are arithmetic on the parameters, whether these are numbers, columns of numbers or expressions. The compiler
gets the number of blocks that an SM is to hold (`__launch_bounds__`) and gives threads no more registers than that
leaves. The registers of sums, of vectors in flight and of addresses are counted here; `rules.py` limits them. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import ELEMENT_BYTES, WIDEST_BYTES
from constrint.model import Expr, maximum, minimum
from constrint.select.limits import BlockUse
from constrint.select.spec import Vars

#: Threads of a warp, of which four share 64 bytes of a row along K, a vector of 16 bytes each.
WARP, QUAD, LINE_BYTES = 32, 4, 64
#: Rows of the long operand that a matrix instruction has, and of the short one.
ROWS, COLUMNS = 16, 8
#: Modes of reading an operand, `Mode` in the source: vectors at multiples of 16 bytes, vectors anywhere, or elements.
ALIGNED, SHIFTED, STRIDED = range(3)
#: Registers of a thread beside those that are counted here.
OTHER_REGISTERS = 40
#: Registers are granted in steps, and thread 255 of 256 at most; static shared memory beside the sums.
REGISTER_STEP, FLAG_BYTES = 8, 16


@dataclass(frozen=True)
class SkinnyLayout:
    """Modes in which the kernel reads both operands; it is compiled for each layout.

    Args:
        is_k_major: Whether the long operand is contiguous along K.
        large: Mode of the long operand: `ALIGNED` or `SHIFTED`.
        small: Mode of the short operand; `STRIDED` where it is not contiguous along K.
    """

    is_k_major: bool = True
    large: int = ALIGNED
    small: int = ALIGNED


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
    # 8-bit floats are widened to fp16 before they are multiplied.
    widened = 48 if product.dtype == "fp8" else 0
    taken: Expr = (
        shape.sums + 4 * doubled * shape.vectors * v["num_stages"] + addresses + operands + widened + OTHER_REGISTERS
    )
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
