"""The parameter space of the skinny GEMM in CUDA C++: how rows and K of the long operand are divided among warps.

The kernel is `source/kernel.cu`. It uses `mma.sync` and plain loads, so that it runs on any NVIDIA GPU of compute
capability 8.0 or later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product as combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import NEEDS_NVRTC, Product
from constrint.kernels.gemm.rules import Algebra
from constrint.kernels.gemm.skinny.cost import CONSTANTS, FILE, skinny_cost
from constrint.kernels.gemm.skinny.shape import (
    FEWEST_WARPS,
    MOST_SHORT,
    MOST_SIZE,
    block_use,
    line,
    size_rules,
    tile_rules,
)
from constrint.kernels.gemm.spec import GemmSpec, Shapes, Stages, spread_shapes
from constrint.kernels.gemm.units import unit
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import Workload

if TYPE_CHECKING:
    from constrint.kernels.gemm.launch import GemmCall

#: The kind of matrix instruction that the source is written with.
INSTRUCTION = "mma"
#: Both sides of a tile: rows of the long operand, and those of the short one up to 64.
SIDES = (64, 32, 16, 128, 8, 256, 512, 1024, 2048, 4, 2, 1)
#: Lines of 64 bytes along K of a block.
LINES = (8, 16, 4, 32, 2, 64, 1, 128)
#: The longest short side of which times were measured: `matmul` leaves longer ones, up to 64, to other kernels.
MEASURED_SHORT = 16
#: Parts of K.
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)


#: Short sides of the table's shapes; a side between two of them takes the tile of the larger one.
SHORT = (1, 2, 4, 8, 16, 32, 64)
#: A long side that is longer than any tile, and a K that is longer than any step.
LARGE = 1 << 16


def _both(shapes: list[tuple[int, int, int]]) -> Shapes:
    """Add every shape with M and N exchanged, so that either side of C is the short one."""
    return tuple(dict.fromkeys((*shapes, *((n, m, k) for m, n, k in shapes))))


#: Shapes whose spaces together hold every configuration: with few tiles, many blocks share one.
SAMPLES: Shapes = _both([(short, long, LARGE) for short in SHORT for long in (64, 512, 4096, LARGE)])
#: Long sides and depths over their whole range, because both decide how many blocks share a tile.
_SPREAD = tuple((n, k) for _, n, k in spread_shapes(48, 1))
_COARSE = _both(list(combinations((1, 4, 8, 16, 32, 64), (64, 1000, 8192, 1 << 18), (64, 2048, 32768))))
_FINE = _both(
    [
        *((short, n, k) for short in SHORT for n, k in _SPREAD),
        *combinations(SHORT, (4096, 6144, 11008, 28672, 50257, 1 << 20), (64, 1024, 4096, 16384)),
        *combinations(SHORT, (1, 16, 64, 100), (4096, 65536, 1 << 20)),
    ]
)
STAGES: Stages = ((_COARSE, 100), (_FINE, 2))


class SkinnySpec(GemmSpec):
    """Warps read the long operand once, straight into registers; the short operand comes from caches."""

    name = "skinny"
    summary = f"C[M,N] = A[M,K] @ B[K,N] with one side of up to {MOST_SHORT}, at the speed of memory, CUDA C++"
    order_params = ()
    free_params = ()
    counts_ends = True
    instruction = INSTRUCTION
    for_other_gpus = f"it is written for {INSTRUCTION}.sync and loads of NVIDIA's sm_80 and later, not for {{target}}"
    #: Measured over predicted time of 20 first choices for products drawn at random, the median
    #: (`benchmarks/results/h200/gemm_drawn.csv`): small products, and long operands across K, which no fit has seen.
    optimism = 1.14
    batch_optimism = 1.0
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tile": ("tile_m", "tile_n", "tile_k", "turned"),
        "vectorise": ("num_warps", "warps_k", "mma"),
        "split": ("split_k", "persistent", "fan_in"),
        "pipeline": ("num_stages", "resident"),
    }
    #: Values of `num_stages` and `fan_in` in the space: those that were measured. The kernel takes two stages and any
    #: fan-in, too.
    steps_ahead: ClassVar[tuple[int, ...]] = (1,)
    fan_ins: ClassVar[tuple[int, ...]] = (0,)
    table_samples: ClassVar[Shapes] = SAMPLES
    table_shapes: ClassVar[Stages] = STAGES

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """Its sources, and the epilogue that it shares with the CUDA GEMM."""
        from constrint.kernels.gemm.skinny.source import FOLDERS, SHARED

        own = (path for path in FOLDERS[0].iterdir() if path.suffix in (".cu", ".cuh"))
        return (*sorted(own), *(FOLDERS[1] / name for name in SHARED))

    @property
    def compilers(self) -> Mapping[str, str]:
        """NVRTC."""
        from constrint.kernels.launch.cuda.nvrtc import nvrtc_here

        return nvrtc_here()

    def uncalibrated(self) -> str:
        """Whether the constants of the cost model are measured."""
        return "" if CONSTANTS.measured else f"its times rest on assumptions ({FILE.name}); matmul does not choose it"

    def serves(self, product: Product) -> bool:
        """Whether one side is as short as those that were measured."""
        return min(product.m, product.n) <= MEASURED_SHORT

    def inability(self, gpu: GpuModel, product: Product) -> str:
        """Operands that lie along no axis, and sizes beyond 32 bits."""
        if not product.has_nvrtc:
            return NEEDS_NVRTC
        if max(product.m, product.n, product.k) > MOST_SIZE:
            return f"it counts rows in 32 bits, beyond their end: sizes of up to {MOST_SIZE}"
        long = product.b if product.n >= product.m else product.a
        return "it reads a long operand whose elements follow each other along an axis" if long.is_scattered else ""

    def tile_params(self, gpu: GpuModel, dtype: str) -> tuple[Param, ...]:
        """The tile, how warps share it, how blocks share K."""
        power = "powers of two: groups of rows and lines of 64 bytes along K are dealt evenly"
        blocks = "what resides on an SM is told to the compiler, which leaves threads so many registers"
        return (
            Param("tile_m", SIDES, "rows of C per block", power),
            Param("tile_n", SIDES, "columns of C per block", power),
            Param("tile_k", tuple(line(dtype) * lines for lines in LINES), "depth of a block's step", power),
            Param("num_warps", (8, 4, 16, FEWEST_WARPS, 32), "warps of a block", "a block has up to 32 of them"),
            Param("warps_k", (8, 4, 2, 1, 16), "warps that share a step along K", power, "wk"),
            Param(
                "mma",
                (1, 0) if dtype != "tf32" else (0,),
                "1: matrix instructions multiply",
                "matrix instructions, or FMAs of numbers one by one",
                "mma",
            ),
            Param("resident", (2, 1, 4, 3, 6, 8), "blocks that an SM is to hold", blocks, "res"),
            Param("turned", (1, 0), "1: the long side is N", "M or N is the short side", "t"),
            Param("split_k", PARTS, "blocks that share a tile", "shares of a tile fill a GPU with few of them", "sk"),
            Param("num_stages", self.steps_ahead, "steps whose loads are under way", "others are not measured", "st"),
            Param(
                "fan_in",
                self.fan_ins,
                "neighbours whose sums are added first; 0: none",
                "others are not measured",
                "fi",
            ),
            Param("persistent", (0, 1), "1: resident blocks share all steps evenly", "no last wave", "per"),
        )

    def tile_rules(self, gpu: GpuModel, product: Product, v: Vars) -> Iterator[Rule]:
        """Rules of the kernel, its registers and its shared memory."""
        unit(gpu, product.dtype)
        yield from tile_rules(gpu, product, v)

    def size_rules(self, gpu: GpuModel, product: Product, v: Mapping[str, Any], algebra: Algebra) -> Iterator[Rule]:
        """Rules on sizes."""
        yield from size_rules(gpu, product, v, algebra)

    def table_options(self, product: Product) -> Mapping[str, int]:
        """Layouts, which decide the meaning of a tile."""
        return {"transpose_a": int(not product.a.is_k_major), "transpose_b": int(product.b.is_k_major)}

    def block_use(self, gpu: GpuModel, product: Product, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        return block_use(gpu, product, v)

    def price(self, gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row."""
        return skinny_cost(gpu, product, columns, blocks_per_sm)

    def compiled_as(self, workload: Workload) -> Workload:
        """The workload itself: the short side decides how operands are read."""
        return workload

    def call_launches(self, call: GemmCall, config: Config) -> Sequence[Launch]:
        """The launch of one call. Needs torch."""
        from constrint.kernels.gemm.skinny.launch import skinny_launches

        return skinny_launches(call, config)


SPECS = (SkinnySpec(),)
