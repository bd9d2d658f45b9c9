"""The parameter space of the GEMM in CUDA C++ for operands whose rows start anywhere: nothing is copied in memory.

Its consumers, its tiles and the rules on both are those of `gemm.cuda`, which refuses such operands. It stands beside
`source/kernel.cu`, whose producer gathers lines of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.resources import block_use
from constrint.kernels.gemm.cuda.rules import tile_rules
from constrint.kernels.gemm.cuda.spec import CudaSpec
from constrint.kernels.gemm.cuda.unaligned.constants import CONSTANTS, FILE
from constrint.kernels.gemm.cuda.unaligned.cost import UnalignedModel, unaligned_cost
from constrint.kernels.gemm.cuda.unaligned.gathered import Gathered, can_gather, line_blocks
from constrint.kernels.gemm.cuda.unaligned.resources import least_smem_bytes
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import unit
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import Workload

if TYPE_CHECKING:
    from constrint.kernels.gemm.launch import Call

#: Slices of which lines are copied or moved at a time.
RAW_STAGES = (2, 3, 4)


class UnalignedSpec(CudaSpec):
    """All warps of the producer copy lines of an operand to shared memory, and move them to where they belong."""

    name = "unaligned"
    gathers = True
    summary = "C[M,N] = A[M,K] @ B[K,N] of operands whose rows start anywhere, without a copy of them, CUDA C++"

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """The sources: its own, and the consumers'."""
        folders = Path(__file__).with_name("source"), Path(__file__).parents[1] / "source"
        files = (path for folder in folders for path in folder.iterdir())
        return tuple(sorted(path for path in files if path.suffix in (".cu", ".cuh")))

    def uncalibrated(self) -> str:
        """Why `matmul` does not choose it by itself: where its constants were not measured."""
        return "" if CONSTANTS.measured else f"its times rest on assumptions ({FILE.name}); matmul does not choose it"

    def refusal(self, gpu: GpuModel, product: Product) -> str:
        """What the CUDA GEMM refuses for other reasons than where rows start, and operands that it takes."""
        gathered = Gathered.of(product)
        if not gathered.any:
            return "the TMA unit loads both operands as they are, which takes less"
        for operand, is_gathered in ((product.a, gathered.a), (product.b, gathered.b)):
            if is_gathered and not can_gather(operand, product.dtype):
                return (
                    "it gathers operands whose elements follow each other: along K, or along M or N where they have "
                    "16 bits"
                )
        return super().refusal(gpu, product)

    def _stated(self, gpu: GpuModel, product: Product) -> Any:
        """What holds for all sizes of products of which the same operands are gathered."""
        gathered = Gathered.of(product)
        a, b = replace(product.a, is_copied=gathered.a), replace(product.b, is_copied=gathered.b)
        return super()._stated(gpu, replace(product, a=a, b=b))

    def tile_params(self, gpu: GpuModel, dtype: str) -> tuple[Param, ...]:
        """Those of the CUDA GEMM without clusters, and how many slices are under way."""
        alone = "what threads copy reaches one block"
        ahead = "one is moved while the others are under way"
        params = []
        for param in super().tile_params(gpu, dtype):
            if param.name in ("cluster_m", "cluster_n"):
                params.append(replace(param, values=(1,), because=alone))
                continue
            params.append(param)
            if param.name == "num_stages":
                params.append(Param("raw_stages", RAW_STAGES, "slices as they lie in memory", ahead, "rs"))
        return tuple(params)

    def tile_rules(self, gpu: GpuModel, product: Product, v: Vars) -> Iterator[Rule]:
        """What the instruction and the registers take; the ring is as full as lines that are under way leave it."""
        unit(gpu, product.dtype)
        yield from tile_rules(gpu, product, v, least_smem_bytes(product, v))

    def table_options(self, product: Product) -> Mapping[str, int]:
        """As of the CUDA GEMM, and which operands are gathered: their lines take shared memory."""
        gathered = Gathered.of(product)
        return {**super().table_options(product), "a.is_copied": int(gathered.a), "b.is_copied": int(gathered.b)}

    def leading_rows(self, gpu: GpuModel, product: Product, columns: Columns) -> NDArray[np.int64]:
        """All: nothing tells which of these others beat for no size."""
        return np.arange(len(columns["tile_m"]))

    def block_use(self, gpu: GpuModel, product: Product, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        return block_use(gpu, least_smem_bytes(product, v), v)

    def price(self, gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row; the order of tiles makes no difference."""
        return unaligned_cost(gpu, product, columns, blocks_per_sm)

    def figures(self, gpu: GpuModel, workload: Workload, config: Config) -> Mapping[str, float]:
        """Those of the CUDA GEMM, and the clocks of gathering and of shared memory for a slice."""
        product = Product.of(workload)
        one = {name: np.array([value]) for name, value in config.items()}
        model = UnalignedModel(gpu, product, one)
        clks = {"gather": model.gather_clk, "smem": model.smem_clk, "latency": model.latency_clk}
        told = {f"{name}_clk_per_slice": float(np.asarray(clk).reshape(-1)[0]) for name, clk in clks.items()}
        blocks = float(np.asarray(line_blocks(one, product)).reshape(-1)[0])
        return {**super().figures(gpu, workload, config), "line_blocks": blocks, **told}

    def call_launches(self, call: Call, config: Config) -> Sequence[Launch]:
        """The launch of one call. Needs torch."""
        from constrint.kernels.gemm.cuda.unaligned.launch import unaligned_launches

        return unaligned_launches(call, config)


SPECS = (UnalignedSpec(),)
