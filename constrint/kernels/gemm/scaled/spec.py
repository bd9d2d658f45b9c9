"""The scaled GEMM as an operation, (A * scale_a) @ (B * scale_b) of fp8 on Hopper: space, cost and reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.scaled.cost import scaled_cost
from constrint.kernels.gemm.scaled.shape import BLOCK, DEPTH, MOST_STAGES, block_use, rules
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns, cost_assumptions
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, KernelSpec, Launch, Param, Rule, Vars
from constrint.select.workload import Size, Workload

#: Sides of a tile: rows of wgmma in steps of 64, columns in steps of 8 or more.
SIDES = (128, 64, 192, 160, 96, 112, 80, 48, 32, 24, 16, 8)
PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
INSTRUCTION = "wgmma"


class ScaledSpec(KernelSpec):
    """A producer warp fills a ring; consumers add scaled sums of 128 products in fp32."""

    operation = "scaled_gemm"
    name = "cuda"
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tile": ("tile_m", "tile_n", "tile_k", "turned"),
        "vectorise": ("consumers",),
        "split": ("split_k", "cluster_m", "cluster_n"),
    }
    summary = "C[M,N] = (A[M,K] * scale_a) @ (B[K,N] * scale_b) of fp8, with scales of rows or of blocks, CUDA C++"
    dtypes = ("fp8",)
    sizes = (
        Size("m", 4096, "rows of A and C"),
        Size("n", 4096, "columns of B and C"),
        Size("k", 4096, "columns of A, rows of B"),
    )
    options = (
        Size("blocks", 0, f"1: A has a scale for {DEPTH} numbers of a row, B for {DEPTH} by {BLOCK}", 0, 1),
        Size("wide_output", 0, "1: C has 32 bits an element", 0, 1),
    )

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """Its source, and those that it shares."""
        from constrint.kernels.gemm.scaled.source import FOLDERS, SHARED

        shared = (FOLDERS[1] / SHARED[0], *(FOLDERS[2] / name for name in SHARED[1:]))
        return (FOLDERS[0] / "kernel.cu", *shared)

    @property
    def compilers(self) -> Mapping[str, str]:
        """NVRTC."""
        from constrint.kernels.launch.cuda.nvrtc import nvrtc_here

        return nvrtc_here()

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise UnsupportedError where the GPU has no wgmma."""
        matrix = gpu.dot_unit(workload.dtype)
        if matrix is None or matrix.kind != INSTRUCTION:
            raise UnsupportedError(
                f"{self.full_name} is written for Hopper's {INSTRUCTION}, not for {gpu.arch.target}."
            )

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """Tile, ring, consumers, which side wgmma's rows are, parts of K."""
        step = "wgmma's rows are 64 for each consumer, its columns come in steps of 8"
        return (
            Param("tile_m", SIDES, "rows of C per block", step),
            Param("tile_n", SIDES, "columns of C per block", step),
            Param("tile_k", (DEPTH,), "depth of a slice", "a line of 128 bytes, and a block of scales"),
            Param("num_stages", (4, 5, 6, 3, 7, MOST_STAGES, 2), "stages of the ring", "more cover no more", "st"),
            Param("consumers", (2, 3, 1), "warpgroups that multiply", "registers hold the sums of three", "cw"),
            Param("turned", (0, 1), "1: wgmma's rows are columns of C", "few rows fill no 64", "t"),
            Param("cluster_m", (1, 2), "tiles of a cluster along M", "blocks that share columns load them once", "cm"),
            Param("cluster_n", (1, 2), "tiles of a cluster along N", "blocks that share rows load them once", "cn"),
            Param("split_k", PARTS, "parts of a tile's K", "parts of few tiles fill a GPU", "sk"),
        )

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Rules of the instruction, of registers, of scales and of sizes."""
        yield from rules(gpu, workload.sizes, v, in_blocks=bool(workload.options.get("blocks", 0)))

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        return block_use(gpu, v)

    def moved_bytes(self, workload: Workload) -> int:
        """Bytes of A, B, C and the scales."""
        m, n, k = (workload.sizes[name] for name in ("m", "n", "k"))
        scales = m * -(-k // DEPTH) if workload.options.get("blocks", 0) else m + n
        return m * k + k * n + m * n * _out_bytes(workload) + 4 * scales

    def num_operations(self, workload: Workload) -> int:
        """Multiplications and additions."""
        return 2 * workload.sizes["m"] * workload.sizes["n"] * workload.sizes["k"]

    def roofline_s(self, gpu: GpuModel, workload: Workload) -> float:
        """The least time that the matrix units or the memory need."""
        peak = gpu.peak_flop_per_s(workload.dtype)
        least = super().roofline_s(gpu, workload)
        return least if peak is None else max(least, self.num_operations(workload) / peak)

    def num_terms(self, workload: Workload) -> int:
        """K."""
        return workload.sizes["k"]

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row."""
        in_blocks = bool(workload.options.get("blocks", 0))
        return scaled_cost(gpu, workload.sizes, columns, _out_bytes(workload), in_blocks=in_blocks)

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Those of every kernel, and one on the constants of its model."""
        constants = f"{self.full_name}: its constants were set by a few times on an H100, not fitted"
        return (*cost_assumptions(gpu, workload.dtype), constants)

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        """A and B along K, and positive scales."""
        from constrint.kernels.gemm.scaled.reference import random_operands

        sizes = (workload.sizes[name] for name in ("m", "n", "k"))
        return random_operands(*sizes, in_blocks=bool(workload.options.get("blocks", 0)), device=device, seed=seed)

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """C, empty."""
        from constrint.kernels.gemm.scaled.reference import empty_result

        return {"out": empty_result(inputs["a"], inputs["b"], is_wide=bool(workload.options.get("wide_output", 0)))}

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """The one launch. Needs torch."""
        from constrint.kernels.gemm.scaled.launch import ScaledCall, scaled_launches

        in_blocks = bool(workload.options.get("blocks", 0))
        return scaled_launches(gpu, ScaledCall(**inputs, **outputs), config, in_blocks=in_blocks)

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """C in fp64."""
        from constrint.kernels.gemm.scaled.reference import exact_result

        return {"out": exact_result(inputs)}


def _out_bytes(workload: Workload) -> int:
    return 4 if workload.options.get("wide_output", 0) else 2


SPECS = (ScaledSpec(),)
