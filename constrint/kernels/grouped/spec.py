"""The parameter space of grouped products: that of the CUDA GEMM for a batch, with whole tiles of unequal products.

Rows of A (M, K) are dealt to experts, the first rows to the first one. The device alone knows how many rows each has:
the space and its costs are those of a batch of equal products with the mean number of rows. No torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.shape import least_smem_bytes
from constrint.kernels.gemm.cuda.spec import CudaSpec
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.rules import EXPRESSIONS
from constrint.kernels.gemm.units import ELEMENT_BYTES
from constrint.kernels.grouped.cost import EXPERT_BYTES, MOST_EXPERTS, grouped_cost
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, KernelSpec, Launch, Param, Rule, Vars
from constrint.select.workload import Size, Workload

if TYPE_CHECKING:
    from constrint.kernels.launch.cuda.source_spec import CudaLaunch

#: Parameters of the CUDA GEMM that have one value here: tiles are whole, and tiles of up to 16 rows of them are walked
#: together, so that weights are read once for as many rows of an expert.
FIXED = {"split_k": 1, "only_last": 0, "group_m": 16}
#: The rule that compares `group_m` with the rows of a grid, which are not known here.
OF_GRID = "group_in_grid"
#: Sizes (rows, n, k, experts) that are tuned by default: both products of Mixtral's and DeepSeek's MLPs.
USUAL_SHAPES = (
    *((2048, 14336, 4096, 8), (2048, 4096, 14336, 8), (16384, 14336, 4096, 8)),
    *((8192, 2048, 7168, 32), (8192, 7168, 2048, 32), (512, 2048, 7168, 32)),
)

SIZES = (
    Size("m", 4096, "rows of A and C, of all experts together"),
    Size("n", 4096, "columns of every expert's B, and of C"),
    Size("k", 4096, "columns of A, rows of every B"),
    Size("experts", 8, "products in one launch", 1, MOST_EXPERTS),
)
OPTIONS = (
    Size("transpose_b", 0, "1: every B lies in memory by columns (contiguous along K)", 0, 1),
    Size("bias", 0, "1: a row of N elements of each expert is added", 0, 1),
)


def product_of_group(workload: Workload) -> Product:
    """The batch of equal products that stands for a workload: each has the mean number of rows."""
    sizes = workload.sizes
    mean = -(-sizes["m"] // sizes["experts"])
    options = {"batch": sizes["experts"], **{option.name: workload.options.get(option.name, 0) for option in OPTIONS}}
    return Product.of(Workload("gemm", {"m": mean, "n": sizes["n"], "k": sizes["k"]}, workload.dtype, options))


def bounded_product(workload: Workload) -> Product:
    """The same for rules and resources: tiles in which rows of an expert end are stored by threads, as with a bias."""
    return replace(product_of_group(workload), has_bias=True)


class GroupedSpec(KernelSpec):
    """The CUDA GEMM's kernel whose blocks find the expert of a tile from where experts' rows end, on the device."""

    operation = "grouped"
    name = "cuda"
    summary = "C[rows of e] = A[rows of e, K] @ B[e, K, N] for all experts e in one launch, CUDA C++"
    sizes = SIZES
    options = OPTIONS
    dtypes = ("bf16", "fp16")
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = CudaSpec.actions

    def __init__(self) -> None:
        self._gemm = CudaSpec()

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """The sources of the CUDA GEMM."""
        return self._gemm.device_files

    @property
    def compilers(self) -> Mapping[str, str]:
        """NVRTC."""
        return self._gemm.compilers

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise UnsupportedError for GPUs other than Hopper, and for operands that the TMA unit does not load."""
        reason = self._gemm.refusal(gpu, product_of_group(workload))
        if reason:
            raise UnsupportedError(f"{self.full_name}: {reason}.")

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """Those of the CUDA GEMM; no tile is split."""
        for param in self._gemm.tile_params(gpu, workload.dtype):
            if param.name in FIXED:
                param = replace(param, values=(FIXED[param.name],), because="where rows end is not known before")
            yield param

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Those of the CUDA GEMM for a batch of equal products."""
        product = bounded_product(workload)
        yield from self._gemm.tile_rules(gpu, product, v)
        yield from (r for r in self._gemm.size_rules(gpu, product, v, EXPRESSIONS) if r.name != OF_GRID)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Those of a block of the CUDA GEMM with one buffer for results, and the experts' table."""
        product = bounded_product(workload)
        table = EXPERT_BYTES * workload.sizes["experts"]
        return replace(self._gemm.block_use(gpu, product, v), smem_bytes=least_smem_bytes(product, v) + table)

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """See `cost.py`."""
        return grouped_cost(gpu, product_of_group(workload), columns, blocks_per_sm)

    def roofline_s(self, gpu: GpuModel, workload: Workload) -> float:
        """max(operations / the device's peak, compulsory bytes / DRAM bandwidth)."""
        return self._gemm.roofline_s(gpu, product_of_group(workload).workload)

    def moved_bytes(self, workload: Workload) -> int:
        """Bytes of A, of all B and of C, each counted once."""
        s, element = workload.sizes, ELEMENT_BYTES[workload.dtype]
        return element * (s["m"] * s["k"] + s["experts"] * s["k"] * s["n"] + s["m"] * s["n"])

    def num_operations(self, workload: Workload) -> int:
        """2 x M x N x K."""
        s = workload.sizes
        return 2 * s["m"] * s["n"] * s["k"]

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Those of the CUDA GEMM, and that rows are dealt evenly."""
        even = "every expert has the same number of rows; the device alone knows how many it has"
        return (*self._gemm.assumptions(gpu, product_of_group(workload).workload), even)

    def usual_workloads(self, gpu: GpuModel) -> Iterable[Workload]:
        """Both products of the experts of two language models, for few tokens and for many."""
        dtype = self.default_workload(gpu).dtype
        for m, n, k, experts in USUAL_SHAPES:
            yield Workload(self.operation, {"m": m, "n": n, "k": k, "experts": experts}, dtype)

    def num_terms(self, workload: Workload) -> int:
        """K, the number of products in the sum of an element of C."""
        return workload.sizes["k"]

    # Launch and check. Needs torch.

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        """A (M, K), B (experts, K, N), offsets (experts,): where each expert's rows end; bias (experts, N)."""
        from constrint.kernels.grouped.operands import random_inputs

        return random_inputs(workload, device=device, seed=seed)

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """C (M, N), empty."""
        return {"c": inputs["a"].new_empty((workload.sizes["m"], workload.sizes["n"]))}

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """The one launch."""
        from constrint.kernels.grouped.launch import GroupedCall, grouped_launch

        call = GroupedCall(inputs["a"], inputs["b"], inputs["offsets"], outputs["c"], inputs.get("bias"))
        launch: CudaLaunch = grouped_launch(gpu, call, config)
        return [launch]

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """C in fp64."""
        from constrint.kernels.grouped.reference import grouped_reference

        bias = inputs["bias"].double() if "bias" in inputs else None
        return {"c": grouped_reference(inputs["a"].double(), inputs["b"].double(), inputs["offsets"], bias)}


SPECS = (GroupedSpec(),)
