"""The parameter space of gated pairs: that of the CUDA GEMM for 2 N columns, half of a tile's being of either factor.

A tile of `tile_n` columns gives `tile_n` / 2 columns of C. No torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.shape import LINE_BYTES
from constrint.kernels.gemm.cuda.spec import CudaSpec
from constrint.kernels.gemm.product import ROW_ALIGNMENT_BYTES, Product
from constrint.kernels.gemm.rules import EXPRESSIONS
from constrint.kernels.gemm.spec import GemmSpec
from constrint.kernels.gemm.units import ELEMENT_BYTES
from constrint.model import all_of, any_of
from constrint.model.constraint import CERTAIN
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, KernelSpec, Launch, Param, Rule, Vars
from constrint.select.workload import Size, Workload

#: Parameters of the CUDA GEMM that have one value here: wgmma's columns are those of B, and a consumer has both halves.
FIXED = {"turned": 0, "by_columns": 1}
#: Columns of wgmma come in steps of 8; a half of a tile has whole steps.
HALVES = 16
#: Sizes (m, n, k) that are tuned by default: MLPs of language models.
USUAL_SHAPES = ((4096, 14336, 4096), (2048, 11008, 4096), (512, 14336, 4096), (8192, 3072, 768), (4096, 5504, 2048))
SIZES = (
    Size("m", 4096, "rows of A and C"),
    Size("n", 4096, "columns of both factors, and of C"),
    Size("k", 4096, "columns of A, rows of both factors' B"),
)
OPTIONS = (
    Size("transpose_b", 0, "1: gate and up lie in memory by columns (contiguous along K)", 0, 1),
    Size("bias", 0, "1: a row of N elements is added to each factor", 0, 1),
)


def product_of_pair(workload: Workload, *, has_end: bool) -> Product:
    """The product of 2 N columns that stands for a pair.

    Args:
        workload: The pair.
        has_end: Whether its epilogue counts, which takes registers; else results are those of the product.
    """
    sizes, options = workload.sizes, {"transpose_b": workload.options.get("transpose_b", 0)}
    product = Product.of(Workload("gemm", {**sizes, "n": 2 * sizes["n"]}, workload.dtype, options))
    return replace(product, has_bias=has_end)


class GatedSpec(KernelSpec):
    """The CUDA GEMM's kernel whose tiles hold columns of both factors."""

    operation = "gated"
    name = "cuda"
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = CudaSpec.actions
    summary = "C[M,N] = activation(A[M,K] @ gate[K,N]) * (A @ up[K,N]) in one launch, CUDA C++"
    sizes = SIZES
    options = OPTIONS
    dtypes = ("bf16", "fp16")
    order_params: tuple[str, ...] = ("group_m",)

    def __init__(self) -> None:
        self._gemm: GemmSpec = CudaSpec()

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """The sources of the CUDA GEMM."""
        return self._gemm.device_files

    @property
    def compilers(self) -> Mapping[str, str]:
        """NVRTC."""
        return self._gemm.compilers

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise UnsupportedError for GPUs other than Hopper, and for operands and results that the TMA unit refuses."""
        reason = self._gemm.refusal(gpu, product_of_pair(workload, has_end=True))
        if not reason and workload.sizes["n"] * ELEMENT_BYTES[workload.dtype] % ROW_ALIGNMENT_BYTES:
            reason = f"results leave through the TMA unit, in rows of multiples of {ROW_ALIGNMENT_BYTES} bytes"
        if reason:
            raise UnsupportedError(f"{self.full_name}: {reason}.")

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """Those of the CUDA GEMM; `tile_n` counts columns of both factors."""
        for param in self._gemm.tile_params(gpu, workload.dtype):
            if param.name in FIXED:
                param = replace(param, values=(FIXED[param.name],), because="a thread has sums of both factors")
            yield param

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Those of the CUDA GEMM, and on halves of tiles, which are loaded as tiles are."""
        product = product_of_pair(workload, has_end=True)
        yield from self._gemm.tile_rules(gpu, product, v)
        yield from self._gemm.size_rules(gpu, product, v, EXPRESSIONS)
        because = "each half of a tile's columns is one of the factors, in boxes that blocks of a cluster share"
        if workload.options.get("transpose_b", 0):
            alone = all_of(v["cluster_m"] == 1, v["tile_n"] % HALVES == 0)
            halves = any_of(alone, v["tile_n"] % (2 * HALVES) == 0)
        else:
            halves = v["tile_n"] % (2 * LINE_BYTES // ELEMENT_BYTES[workload.dtype]) == 0
        yield Rule(halves, "halves", because, CERTAIN)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Those of a block of the CUDA GEMM."""
        return self._gemm.block_use(gpu, product_of_pair(workload, has_end=True), v)

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """The CUDA GEMM's for 2 N columns: finishing a result takes as long as storing another one."""
        return self._gemm.price(gpu, product_of_pair(workload, has_end=False), columns, blocks_per_sm)

    def roofline_s(self, gpu: GpuModel, workload: Workload) -> float:
        """max(operations / the device's peak, compulsory bytes / DRAM bandwidth)."""
        return self._gemm.roofline_s(gpu, product_of_pair(workload, has_end=False).workload)

    def moved_bytes(self, workload: Workload) -> int:
        """Bytes of A, of both B and of C, each counted once."""
        m, n, k = (workload.sizes[name] for name in ("m", "n", "k"))
        return ELEMENT_BYTES[workload.dtype] * (m * k + 2 * k * n + m * n)

    def num_operations(self, workload: Workload) -> int:
        """2 x M x 2 N x K."""
        m, n, k = (workload.sizes[name] for name in ("m", "n", "k"))
        return 4 * m * n * k

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Those of the CUDA GEMM, and one on the end."""
        ends = "activating and multiplying a pair of sums takes as long as storing one more result"
        product = product_of_pair(workload, has_end=False)
        return (*self._gemm.assumptions(gpu, product.workload), ends)

    def usual_workloads(self, gpu: GpuModel) -> Iterable[Workload]:
        """MLPs of language models."""
        dtype = self.default_workload(gpu).dtype
        for m, n, k in USUAL_SHAPES:
            yield Workload(self.operation, {"m": m, "n": n, "k": k}, dtype, {"transpose_b": 1})

    def num_terms(self, workload: Workload) -> int:
        """K, the number of products in each factor's sum."""
        return workload.sizes["k"]

    # Launch and check. Needs torch.

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        """A (M, K), gate and up (K, N) with columns of unit length on average, biases (N,)."""
        from constrint.kernels.gemm.gated.reference import random_inputs

        return random_inputs(workload, device=device, seed=seed)

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """C (M, N), empty."""
        return {"out": inputs["a"].new_empty((workload.sizes["m"], workload.sizes["n"]))}

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """The one launch, of silu."""
        from constrint.kernels.gemm.gated.launch import GatedCall, gated_launch

        return [gated_launch(gpu, GatedCall(**inputs, **outputs), config)]

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """C in fp64."""
        from constrint.kernels.gemm.gated.reference import gated_reference

        return {"out": gated_reference(**{name: t.double() for name, t in inputs.items()})}


SPECS = (GatedSpec(),)
