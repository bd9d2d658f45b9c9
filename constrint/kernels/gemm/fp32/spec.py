"""The parameter space of the fp32 GEMM in CUDA C++ for Hopper: its tile, its ring, and parts of K.

fp32 that keeps its precision is multiplied as six products of bf16, tf32 as it is. wgmma takes one operand's rows from
registers, which may therefore lie in any order of axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.fp32.cost import CONSTANTS, FILE, fp32_cost
from constrint.kernels.gemm.fp32.shape import (
    DEPTH,
    MAX_PARTS,
    MOST_COLUMNS,
    MOST_STAGES,
    OWN_ROWS,
    block_use,
    serves_rows,
    size_rules,
    tile_rules,
)
from constrint.kernels.gemm.product import NEEDS_NVRTC, Product
from constrint.kernels.gemm.rules import Algebra
from constrint.kernels.gemm.spec import GemmSpec
from constrint.kernels.gemm.units import unit
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars

if TYPE_CHECKING:
    from constrint.kernels.gemm.launch import GemmCall

#: The kind of matrix instruction that the source is written with.
INSTRUCTION = "wgmma"
#: Sides of a tile: rows of wgmma in steps of 64, columns in steps of 8 up to 64 and of 16 beyond.
SIDES = (128, 64, 192, 96, 112, 80, 48, 32, 56, 40, 24, 16, 8)
#: Parts of K.
PARTS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, MAX_PARTS)


class Fp32Spec(GemmSpec):
    """A producer loads fp32; consumers split their rows of it in registers and multiply them from there."""

    name = "fp32"
    summary = "C[M,N] = A[M,K] @ B[K,N] of fp32: exact by six products of bf16, or as tf32 in any order, CUDA C++"
    dtypes = ("tf32",)
    order_params = ()
    free_params = ()
    counts_ends = True
    instruction = INSTRUCTION
    for_other_gpus = f"it is written for Hopper's {INSTRUCTION}, not for {{target}}"
    for_other_dtypes = "it is for fp32 operands"
    fixed: ClassVar[Mapping[str, int]] = {"persistent": 1}
    optimism = 1.0
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tile": ("tile_m", "tile_n", "tile_k", "turned"),
        "vectorise": ("consumers",),
        "split": ("split_k",),
    }

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """Its source, those of the CUDA GEMM that it includes, and the kernel that splits an operand."""
        from constrint.kernels.gemm.fp32.source import FOLDERS, SHARED

        of_parts = (Path(__file__).with_name("kernel.py"),)
        return (FOLDERS[0] / "kernel.cu", FOLDERS[0] / "tiles.cuh", *(FOLDERS[1] / name for name in SHARED), *of_parts)

    @property
    def compilers(self) -> Mapping[str, str]:
        """NVRTC."""
        from constrint.kernels.launch.cuda.nvrtc import nvrtc_here

        return nvrtc_here()

    def uncalibrated(self) -> str:
        """Whether the constants of the cost model are measured."""
        return "" if CONSTANTS.measured else f"its times rest on assumptions ({FILE.name}); matmul does not choose it"

    def inability(self, gpu: GpuModel, product: Product) -> str:
        """Several products, and rows that no TMA unit loads."""
        if not product.has_nvrtc:
            return NEEDS_NVRTC
        if product.batch > 1:
            return "it computes one product at a time"
        if not (serves_rows(product, product.a, product.b) or serves_rows(product, product.b, product.a)):
            if product.is_three_pass:
                return "the TMA unit loads neither operand as it is"
            return "it multiplies tf32 where one operand lies along K and the other one across"
        return ""

    def tile_params(self, gpu: GpuModel, dtype: str) -> tuple[Param, ...]:
        """Tile, ring, consumers, which side wgmma's rows are, parts of K."""
        step = f"wgmma's rows are {OWN_ROWS} for each consumer, its columns up to {MOST_COLUMNS}"
        stages = (4, 5, 6, 3, 7, MOST_STAGES, 2)
        return (
            Param("tile_m", SIDES, "rows of C per block", step),
            Param("tile_n", SIDES, "columns of C per block", step),
            Param("tile_k", (DEPTH,), "depth of a slice", "a line of 128 bytes"),
            Param("num_stages", stages, "stages of the ring", "more cover no more latency", "st"),
            Param("consumers", (2, 1, 3), "warpgroups that multiply", "registers hold the sums of three", "cw"),
            Param("turned", (1, 0), "1: wgmma's rows are columns of C", "rows are split in registers", "t"),
            Param("split_k", PARTS, "parts of a tile's K", "parts of few tiles fill a GPU", "sk"),
        )

    def tile_rules(self, gpu: GpuModel, product: Product, v: Vars) -> Iterator[Rule]:
        """Rules of the instruction, the registers and the TMA unit."""
        unit(gpu, product.dtype)
        yield from tile_rules(gpu, product, v)

    def size_rules(self, gpu: GpuModel, product: Product, v: Mapping[str, Any], algebra: Algebra) -> Iterator[Rule]:
        """Rules on sizes."""
        yield from size_rules(gpu, product, v, algebra)

    def table_options(self, product: Product) -> Mapping[str, int]:
        """Precision, and layouts, which decide whose rows are wgmma's."""
        lies = {"transpose_a": int(not product.a.is_k_major), "transpose_b": int(product.b.is_k_major)}
        return lies | {"three_pass": int(product.is_three_pass)}

    def block_use(self, gpu: GpuModel, product: Product, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        return block_use(gpu, product, v)

    def price(self, gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row."""
        return fp32_cost(gpu, product, columns, blocks_per_sm)

    def call_launches(self, call: GemmCall, config: Config) -> Sequence[Launch]:
        """The launches of one call. Needs torch, and triton where an operand is split first."""
        from constrint.kernels.gemm.fp32.launch import fp32_launches

        return fp32_launches(call, config)


SPECS = (Fp32Spec(),)
