"""What the parameters mean for the kernel: which side is long, how its rows and K are dealt to warps.

Everything here is arithmetic that holds for numbers, columns of numbers and expressions alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import ELEMENT_BYTES, WIDEST_BYTES

#: Threads of a warp, of which four share 64 bytes of a row along K, a vector of 16 bytes each.
WARP, QUAD, LINE_BYTES = 32, 4, 64
#: Rows of the long operand that a matrix instruction has, and of the short one.
ROWS, COLUMNS = 16, 8
#: How an operand is read, as `Mode` in the source: vectors at multiples of 16 bytes, vectors anywhere, or elements.
ALIGNED, SHIFTED, STRIDED = range(3)


@dataclass(frozen=True)
class Layout:
    """How the operands lie, as the kernel sees them; each is a kernel of its own.

    Args:
        is_k_major: Whether the long operand is contiguous along K.
        large: How the long operand is read: `ALIGNED` or `SHIFTED`.
        small: How the short one is read; `STRIDED` where it is not contiguous along K.
    """

    is_k_major: bool = True
    large: int = ALIGNED
    small: int = ALIGNED


def unit_rows(dtype: str, *, is_k_major: bool) -> int:
    """Rows that eight groups of four lanes have at once: two each along K, else those of a vector each."""
    return ROWS if is_k_major else 8 * vector(dtype)


def vector(dtype: str) -> int:
    """Elements of 16 bytes."""
    return WIDEST_BYTES // ELEMENT_BYTES[dtype]


def line(dtype: str) -> int:
    """Elements of 64 bytes, which a warp reads along K at once."""
    return LINE_BYTES // ELEMENT_BYTES[dtype]


@dataclass(frozen=True)
class Shape:
    """A block's tile, as the kernel deals it out.

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
    def of(v: Mapping[str, Any], dtype: str, *, a_is_k_major: bool, b_is_k_major: bool) -> Shape:
        """Of parameters, for operands that lie so."""
        turned, wider = v["turned"], v["tile_n"] - v["tile_m"]
        rows, small = v["tile_m"] + turned * wider, v["tile_n"] - turned * wider
        of_a, of_b = (unit_rows(dtype, is_k_major=is_k_major) for is_k_major in (a_is_k_major, b_is_k_major))
        unit, warps_rows = of_a + turned * (of_b - of_a), v["num_warps"] // v["warps_k"]
        tiles, unroll = rows // (unit * warps_rows), v["tile_k"] // (line(dtype) * v["warps_k"])
        # Along K a lane has two rows of a group; else as many vectors along K as a vector has elements.
        held = (2 if is_k_major else vector(dtype) for is_k_major in (a_is_k_major, b_is_k_major))
        of_a, of_b = held
        vectors = unroll * tiles * (of_a + turned * (of_b - of_a))
        # Matrix instructions deal sums to all lanes; else four lanes have the same, each a part of K.
        sums = rows // warps_rows * small // (8 + (WARP - 8) * v["mma"])
        return Shape(rows, small, warps_rows, v["warps_k"], tiles, unroll, vectors, sums)

    @staticmethod
    def of_product(v: Mapping[str, Any], p: Product) -> Shape:
        """Of parameters, for a product."""
        return Shape.of(v, p.dtype, a_is_k_major=p.a.is_k_major, b_is_k_major=p.b.is_k_major)


@dataclass(frozen=True)
class Dealt:
    """How a product is dealt out.

    Args:
        tiles: Tiles of rows.
        steps: Steps along K of each.
        columns: Groups of rows of the short operand; the long one is read once for each.
        blocks: Blocks that share the steps of one group.
        fan_in: Neighbours among blocks that share a tile, whose sums are added first; 0: all are added at once.
    """

    tiles: int
    steps: int
    columns: int
    blocks: int
    fan_in: int = 0

    @staticmethod
    def of(shape: Shape, config: Mapping[str, int], sizes: tuple[int, int, int], blocks: int) -> Dealt:
        """Of a tile, for a product of so many (rows, small, depth); no block is without a step."""
        rows, small, depth = sizes
        tiles, steps = math.ceil(rows / shape.rows), math.ceil(depth / config["tile_k"])
        columns = math.ceil(small / shape.small)
        return Dealt(tiles, steps, columns, min(blocks, tiles * steps), config["fan_in"])

    @property
    def units(self) -> int:
        """Steps of all tiles, of one group."""
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
        """Counters of a tile: of those who come to it, and to each group of neighbours."""
        return 1 + (math.ceil(self.contributors / self.fan_in) if self.fan_in else 0)


def asked_blocks(config: Mapping[str, int], tiles: int, num_sms: int) -> int:
    """Blocks that a configuration asks for: so many for each tile, or as many as the device holds."""
    return num_sms * config["resident"] if config["persistent"] else tiles * config["split_k"]
