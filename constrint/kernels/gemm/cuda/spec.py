"""The parameter space of the CUDA GEMM, for Hopper: tiles in steps of eight columns, clusters, schedules.

The kernel is `source/kernel.cu`, which asserts the rules of `rules.py` at compile time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel, assumed
from constrint.kernels.gemm.cuda.cost import CONSTANTS, FILE, cuda_cost, figures_of, leading_rows
from constrint.kernels.gemm.cuda.shape import (
    LINE_BYTES,
    MAX_PARTS,
    MAX_TILE,
    MIN_TILE,
    MOST_STAGES,
    block_use,
    depth,
    least_smem_bytes,
    leaves_plainly,
    size_rules,
    tile_rules,
)
from constrint.kernels.gemm.product import NEEDS_NVRTC, ROW_ALIGNMENT_BYTES, Product, tma_refusal
from constrint.kernels.gemm.rules import Algebra
from constrint.kernels.gemm.spec import COARSE_SHAPES, FINE_SHAPES, GemmSpec, Stages, spread_shapes
from constrint.kernels.gemm.units import unit
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import Workload

if TYPE_CHECKING:
    from constrint.kernels.gemm.launch import GemmCall

#: Rows and columns of a tile: those that are usual first, then every multiple of eight.
USUAL_WIDTHS = (128, 256, 64, 192, 320, MAX_TILE)
WIDTHS = (*USUAL_WIDTHS, *(width for width in range(312, 0, -MIN_TILE) if width not in USUAL_WIDTHS))
#: Parts of K.
PARTS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, MAX_PARTS)
#: The kind of matrix instruction that the source is written with.
INSTRUCTION = "wgmma"


class CudaSpec(GemmSpec):
    """A producer warp fills a ring for one to three warpgroups; blocks of a cluster load shared slices once."""

    name = "cuda"
    summary = "C[M,N] = A[M,K] @ B[K,N] by clusters with tiles of any multiple of eight columns, CUDA C++"
    order_params = ("group_m",)
    free_params = ()
    counts_ends = True
    instruction = INSTRUCTION
    for_other_gpus = f"it is written for Hopper's {INSTRUCTION}, not for {{dtype}} on {{target}}"
    fixed: ClassVar[Mapping[str, int]] = {"persistent": 1}
    serves_any_rows = True
    #: Measured over predicted time of first choices, the median of 64 random products
    #: (`python -m benchmarks.gemm.cuda.fit`).
    optimism = 1.03
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tile": ("tile_m", "tile_n", "tile_k", "turned"),
        "vectorise": ("consumers", "by_columns", "in_turns"),
        "split": ("split_k", "only_last", "cluster_m", "cluster_n"),
    }
    # The best tile depends on the divisors of the sizes.
    table_shapes: ClassVar[Stages] = (
        ((*spread_shapes(96, 1), *COARSE_SHAPES), 120),
        ((*spread_shapes(2000, 1000), *FINE_SHAPES), 4),
    )

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """The sources."""
        folder = Path(__file__).with_name("source")
        return tuple(sorted(path for path in folder.iterdir() if path.suffix in (".cu", ".cuh")))

    @property
    def compilers(self) -> Mapping[str, str]:
        """NVRTC."""
        from constrint.kernels.launch.cuda.nvrtc import nvrtc_here

        return nvrtc_here()

    def uncalibrated(self) -> str:
        """Return why the cost model's constants are not measured for the kernel as it is; empty where they are."""
        rest = f"its times rest on assumptions, or on a kernel that was changed since ({FILE.name})"
        return "" if CONSTANTS.measured else f"{rest}; matmul does not choose it"

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """See `GemmSpec.assumptions`; clusters lie in GPCs."""
        return (*super().assumptions(gpu, workload), *assumed.lines_of(gpu, assumed.gpcs))

    def inability(self, gpu: GpuModel, product: Product) -> str:
        """Refuse operands that the TMA unit cannot load without a copy."""
        if not product.has_nvrtc:
            return NEEDS_NVRTC
        if product.is_three_pass:
            return "it multiplies fp32 in one pass"
        product = product.with_shared
        if product.a.is_copied or product.b.is_copied:
            return (
                f"it copies no operand: rows start at multiples of {ROW_ALIGNMENT_BYTES} bytes, are no shorter than a "
                f"line of {LINE_BYTES} bytes across K, and lie along K unless elements have 16 bits"
            )
        return tma_refusal(gpu, product)

    def tile_params(self, gpu: GpuModel, dtype: str) -> tuple[Param, ...]:
        """Tile, ring, division of a tile among consumers, cluster, and schedule of tiles."""
        step = f"wgmma has 64 rows and columns in steps of 8; up to {max(WIDTHS)} fit somewhere"
        line = f"rows of a slice are {LINE_BYTES} bytes, by which the TMA unit swizzles"
        stages = (4, 3, *range(5, MOST_STAGES + 1), 2)
        one = "two blocks read a slice once; four share both operands"
        return (
            Param("tile_m", WIDTHS, "rows of C per block", step),
            Param("tile_n", WIDTHS, "columns of C per block", step),
            Param("tile_k", (depth(dtype),), "depth of a slice", line),
            Param("num_stages", stages, "stages of the ring", "more cover no more latency", "st"),
            Param("consumers", (2, 1, 3), "warpgroups that multiply", "registers hold the sums of three", "cw"),
            Param("by_columns", (1, 2), "consumers beside each other", "two share the columns, or all the rows", "bc"),
            Param("in_turns", (0, 1), "1: consumers take tiles in turns", "one stores while one multiplies", "it"),
            Param("cluster_m", (1, 2), "blocks of a cluster above each other", one, "cm"),
            Param("cluster_n", (1, 2), "blocks of a cluster beside each other", one, "cn"),
            Param("turned", (0, 1), "1: wgmma's rows are columns of C", "few rows fill no 64", "t"),
            Param("split_k", PARTS, "parts of a split tile's K", "K of 32 parts fills a GPU with four tiles", "sk"),
            Param("only_last", (0, 1), "1: only the last wave's tiles are split", "full waves need none", "ol"),
            Param("group_m", (8, 4, 16, 1, 2, 32), "rows of tiles walked together", "powers of two up to 32", "gm"),
        )

    def tile_rules(self, gpu: GpuModel, product: Product, v: Vars) -> Iterator[Rule]:
        """Rules of the instruction, the registers and the TMA unit."""
        unit(gpu, product.dtype)
        yield from tile_rules(gpu, product, v, least_smem_bytes(product, v))

    def size_rules(self, gpu: GpuModel, product: Product, v: Mapping[str, Any], algebra: Algebra) -> Iterator[Rule]:
        """Rules on sizes, which count the tiles of all products of a batch."""
        yield from size_rules(gpu, product, v, algebra)

    def table_options(self, product: Product) -> Mapping[str, int]:
        """Layouts, which decide the bytes of a stage; and `bias` for any epilogue, which takes registers."""
        lies = {"transpose_a": int(not product.a.is_k_major), "transpose_b": int(product.b.is_k_major)}
        return lies | {"bias": int(not leaves_plainly(product))}

    def leading_rows(self, gpu: GpuModel, product: Product, columns: Columns) -> NDArray[np.int64]:
        """Among configurations that differ only in how consumers share a tile, those with the shortest step."""
        return leading_rows(gpu, product, columns)

    def block_use(self, gpu: GpuModel, product: Product, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        return block_use(gpu, least_smem_bytes(product, v), v)

    def price(self, gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row; the order of tiles makes no difference."""
        return cuda_cost(gpu, product, columns, blocks_per_sm)

    def figures(self, gpu: GpuModel, workload: Workload, config: Config) -> Mapping[str, float]:
        """Rounds of tiles, bytes of a slice with and without sharing in the cluster, and clocks of a slice."""
        return figures_of(gpu, Product.of(workload), config)

    def call_launches(self, call: GemmCall, config: Config) -> Sequence[Launch]:
        """The launch of one call. Needs torch."""
        from constrint.kernels.gemm.cuda.launch import cuda_launches

        return cuda_launches(call, config)


SPECS = (CudaSpec(),)
