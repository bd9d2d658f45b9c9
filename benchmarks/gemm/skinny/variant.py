"""One way to compute a product with a short side: how rows and K are dealt to warps; compiled without a GPU."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

from constrint.hwmodels import GpuModel
from constrint.kernels.launch.cuda import CudaSource

FOLDER = Path(__file__).parent
#: Bytes of an element; the order is that of DTYPE in the source.
DTYPES = {"fp16": 2, "bf16": 2, "fp32": 4, "fp8": 1, "int8": 1}
#: How an operand is read, as `Mode` in the source.
ALIGNED, SHIFTED, STRIDED = range(3)
WARP, VECTOR_BYTES, LINE_BYTES = 32, 16, 64
#: Registers of a thread beside sums, vectors and addresses, those that may be used, and those of an SM.
OTHER_REGISTERS, MOST_REGISTERS, REGISTERS_PER_SM = 40, 255, 65536


@dataclass(frozen=True)
class Layout:
    """How the operands lie; each is a kernel of its own.

    Args:
        is_k_major: Whether the long operand is contiguous along K.
        large: How the long operand is read: `ALIGNED` or `SHIFTED`.
        small: How the short one is read; `STRIDED` where it is not contiguous along K.
    """

    is_k_major: bool = True
    large: int = ALIGNED
    small: int = ALIGNED


@dataclass(frozen=True)
class Variant:
    """A kernel of `kernel.cu`.

    Args:
        tiles: Groups of 8 lanes' rows of a warp: 16 rows each where the long operand lies along K, else 8 vectors.
        unroll: Lines of 64 bytes along K that a warp loads at a time.
        warps_rows, warps_depth: Warps of a block beside each other, and along K.
        small: Rows of the short operand that sums are kept for.
        mma: Whether matrix instructions multiply.
        resident: Blocks on an SM that registers are to suffice for.
    """

    tiles: int
    unroll: int
    warps_rows: int
    warps_depth: int
    small: int
    mma: int
    resident: int

    def __str__(self) -> str:
        how = "mma" if self.mma else "fma"
        warps = f"{self.warps_rows}x{self.warps_depth}"
        return f"{how}{self.small} t{self.tiles} u{self.unroll} w{warps} r{self.resident}"

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return WARP * self.warps_rows * self.warps_depth

    def warp_rows(self, dtype: str, layout: Layout) -> int:
        """Rows of the long operand that a warp has."""
        return self.tiles * (16 if layout.is_k_major else 8 * VECTOR_BYTES // DTYPES[dtype])

    def rows(self, dtype: str, layout: Layout) -> int:
        """Rows of the long operand that a block has."""
        return self.warps_rows * self.warp_rows(dtype, layout)

    def depth(self, dtype: str) -> int:
        """Elements along K of a block's step."""
        return LINE_BYTES // DTYPES[dtype] * self.unroll * self.warps_depth

    def vectors(self, dtype: str, layout: Layout) -> int:
        """Vectors of 16 bytes that a thread has under way."""
        return self.unroll * self.tiles * (2 if layout.is_k_major else VECTOR_BYTES // DTYPES[dtype])

    def sums(self, dtype: str, layout: Layout) -> int:
        """Sums of a thread."""
        return self.warp_rows(dtype, layout) * self.small // (WARP if self.mma else 8)

    def chain(self, dtype: str, depth: int) -> int:
        """Additions that a sum sees one after the other, at most: a lane's along K, and those of lanes and warps."""
        lines = math.ceil(depth / self.depth(dtype)) * self.unroll
        return lines * (2 if self.mma else VECTOR_BYTES // DTYPES[dtype]) + self.warps_depth + 2

    def least_registers(self, dtype: str, layout: Layout) -> int:
        """Registers that sums, vectors under way and addresses take."""
        doubled = 2 if layout.large == SHIFTED else 1
        addresses = self.tiles * (4 if layout.is_k_major else 3)
        # Vectors of the short operand, e4m3 that is made fp16, and numbers that are unpacked.
        made = self.small // 2 * min(self.unroll, 2) if self.mma else 7 * self.small + 16
        made += 48 if dtype == "fp8" else 0
        return self.sums(dtype, layout) + 4 * doubled * self.vectors(dtype, layout) + addresses + made + OTHER_REGISTERS

    def smem_bytes(self, dtype: str, layout: Layout) -> int:
        """Dynamic shared memory: the sums of all warps along K, or four of each thread."""
        return 4 * max(self.warps_depth * self.small * (self.rows(dtype, layout) + 4), 4 * self.threads)

    def faults(self, gpu: GpuModel, dtype: str, layout: Layout) -> list[str]:
        """Why it cannot be, or cannot be on this GPU."""
        sm = gpu.sm
        smem = self.smem_bytes(dtype, layout) + sm.smem_reserved_bytes_per_block + 16
        registers = min(MOST_REGISTERS, REGISTERS_PER_SM // (self.threads * self.resident) // 8 * 8)
        rules = {
            "matrix instructions take no fp32": not (self.mma and dtype == "fp32"),
            "a matrix instruction takes eight rows of the short operand": not self.mma or self.small % 8 == 0,
            "every number is at least 1": min(self.tiles, self.unroll, self.warps_rows, self.warps_depth) > 0
            and self.small > 0
            and self.resident > 0,
            "a block has up to 1,024 threads": self.threads <= sm.max_threads_per_block,
            "blocks of an SM have so many threads": self.threads * self.resident <= sm.max_threads_per_sm,
            "sums and vectors fit registers": self.least_registers(dtype, layout) <= registers,
            "sums of warps fit shared memory": smem <= sm.max_smem_bytes_per_block
            and smem * self.resident <= sm.smem_bytes_per_sm,
        }
        return [rule for rule, holds in rules.items() if not holds]

    def source(self, dtype: str, layout: Layout) -> CudaSource:
        """The kernel for operands that lie so."""
        macros = {field.name.upper(): int(getattr(self, field.name)) for field in fields(self)}
        macros |= {"DTYPE": list(DTYPES).index(dtype), "K_MAJOR": int(layout.is_k_major)}
        macros |= {"LARGE_MODE": layout.large, "SMALL_MODE": layout.small}
        return CudaSource(_kernel(), "skinny", macros, ("-std=c++17",), (FOLDER,), "skinny.cu", is_settled=True)


@lru_cache(maxsize=1)
def _kernel() -> str:
    return (FOLDER / "kernel.cu").read_text(encoding="utf-8")


def variants(gpu: GpuModel, dtype: str, layout: Layout) -> Iterator[Variant]:
    """Every variant that can run."""
    smalls = [(n, 0) for n in (1, 2, 4, 8, 16)] + [(n, 1) for n in (8, 16, 32, 64)]
    shapes = itertools.product((1, 2, 4), (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8, 16), smalls, (1, 2, 3, 4, 6, 8))
    for tiles, unroll, warps_rows, warps_depth, (small, mma), resident in shapes:
        variant = Variant(tiles, unroll, warps_rows, warps_depth, small, mma, resident)
        if variant.threads >= 64 and not variant.faults(gpu, dtype, layout):
            yield variant


@dataclass(frozen=True)
class Dealt:
    """How a product is dealt out.

    Args:
        tiles: Tiles of rows.
        steps: Steps along K of each.
        columns: Groups of rows of the short operand; the long one is read once for each.
    """

    tiles: int
    steps: int
    columns: int

    @property
    def units(self) -> int:
        """Steps of all tiles, of one group."""
        return self.tiles * self.steps

    def contributors(self, blocks: int) -> int:
        """Blocks that share a tile, at most."""
        if self.is_whole(blocks):
            return 1
        return min(math.ceil(self.steps * blocks / self.units) + 1, blocks, self.steps)

    def is_whole(self, blocks: int) -> bool:
        """Whether every block has whole tiles."""
        return self.units % blocks == 0 and self.units // blocks % self.steps == 0


def dealt(variant: Variant, dtype: str, layout: Layout, shape: tuple[int, int, int]) -> Dealt:
    """Tiles and steps of a product of so many (rows, small, depth)."""
    rows, small, depth = shape
    return Dealt(
        math.ceil(rows / variant.rows(dtype, layout)),
        math.ceil(depth / variant.depth(dtype)),
        math.ceil(small / variant.small),
    )
