"""The parameter space of gated pairs in Triton: that of the pointer kernel for 2 N columns. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.gated.spec import GatedSpec, product_of_pair
from constrint.kernels.gemm.pointer.spec import PointerSpec
from constrint.kernels.gemm.rules import EXPRESSIONS
from constrint.kernels.gemm.units import unit
from constrint.model import any_of
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, KernelSpec, Launch, Param, Rule, Vars
from constrint.select.workload import Workload

#: Parameters of the pointer kernel that have one value here.
FIXED = {"split_k": 1, "persistent": 0}
#: Largest values: beyond them what is loaded of three operands is spilled, as compiles for sm_80, sm_90 and CDNA show.
MOST = {"num_warps": 8, "tile_k": 64}
#: Sums of a thread beside which a deep slice of three operands does not fit, and threads of a warp on NVIDIA's GPUs.
MOST_SUMS, WARP = 128, 32
#: Fewest columns of both factors of a tile: each half is one of Triton's matrix products.
LEAST_COLUMNS = 64


class GatedPointerSpec(GatedSpec):
    """The pointer kernel with sums of both factors."""

    name = "pointer"
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = PointerSpec.actions
    summary = "C[M,N] = activation(A[M,K] @ gate[K,N]) * (A @ up[K,N]) in one launch, Triton"
    order_params = PointerSpec.order_params

    def __init__(self) -> None:
        self._gemm = PointerSpec()

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """Its kernel, and those of the GEMM that it shares functions with."""
        return (Path(__file__).with_name("kernel.py"), *self._gemm.device_files)

    @property
    def compilers(self) -> Mapping[str, str]:
        """Triton."""
        return self._gemm.compilers

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise UnsupportedError where the GPU has no unit for the dtype."""
        unit(gpu, workload.dtype)
        reason = self._gemm.refusal(gpu, product_of_pair(workload, has_end=False))
        if reason:
            raise UnsupportedError(f"{self.full_name}: {reason}.")

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """Those of the pointer kernel; `tile_n` counts columns of both factors."""
        for param in self._gemm.tile_params(gpu, workload.dtype):
            if param.name in FIXED:
                param = replace(param, values=(FIXED[param.name],), because="a block has one tile and all of its K")
            elif param.name in MOST:
                param = replace(param, values=tuple(value for value in param.values if value <= MOST[param.name]))
            yield param

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Those of the pointer kernel, and on halves of tiles."""
        product = product_of_pair(workload, has_end=False)
        yield from self._gemm.tile_rules(gpu, product, v)
        # Fewer columns than a tile has at least are padded to these.
        sizes = {**workload.sizes, "n": max(workload.sizes["n"], LEAST_COLUMNS // 2)}
        padded = product_of_pair(replace(workload, sizes=sizes), has_end=False)
        yield from self._gemm.size_rules(gpu, padded, v, EXPRESSIONS)
        because = f"each half of a tile's columns is one of the factors: at least {LEAST_COLUMNS} of both"
        yield Rule(v["tile_n"] >= LEAST_COLUMNS, "halves", because, CERTAIN)
        matrix = unit(gpu, workload.dtype)
        sums = v["tile_m"] * v["tile_n"]
        spilled = "operands of two products beside most sums are spilled, as compiles for sm_80 and CDNA show"
        if matrix.kind == "mma":
            few = any_of(v["tile_n"] <= v["tile_m"], sums < MOST_SUMS * WARP * v["num_warps"])
            yield Rule(few, "operands_beside_sums", spilled, REDUNDANT)
        elif matrix.kind == "mfma":
            few = any_of(v["tile_k"] <= 32, sums < MOST_SUMS * 2 * WARP * v["num_warps"])
            yield Rule(few, "operands_beside_sums", spilled, REDUNDANT)
        yield from self._gemm.promise_rules(gpu, self.use(gpu, workload, v), v)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Those of a block of the pointer kernel."""
        own = {name: v[name] for name in v if name not in self._gemm.free_params}
        return self._gemm.block_use(gpu, product_of_pair(workload, has_end=False), own)

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """The pointer kernel's for 2 N columns."""
        return self._gemm.price(gpu, product_of_pair(workload, has_end=False), columns, blocks_per_sm)

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """The one launch, of silu."""
        from constrint.kernels.gemm.gated.launch import GatedCall
        from constrint.kernels.gemm.gated.pointer.launch import gated_launch

        return [gated_launch(gpu, GatedCall(**inputs, **outputs), config)]


SPECS: tuple[KernelSpec, ...] = (GatedPointerSpec(),)
