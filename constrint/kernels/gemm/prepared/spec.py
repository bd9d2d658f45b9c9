"""The parameter space of a tf32 product whose operands are copied first: that of the CUDA GEMM for what it multiplies.

wgmma takes tf32 along K alone: operands that lie across K, or that the TMA unit cannot load, are copied along K.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.cost import cuda_cost, figures_of, leading_rows
from constrint.kernels.gemm.cuda.shape import leaves_plainly
from constrint.kernels.gemm.cuda.spec import CudaSpec
from constrint.kernels.gemm.measured import MEASURED
from constrint.kernels.gemm.product import MatrixLayout, Product
from constrint.kernels.gemm.rules import Algebra
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns, Later
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Rule, Vars
from constrint.select.workload import Workload

if TYPE_CHECKING:
    from constrint.kernels.gemm.launch import GemmCall

#: Bytes of copies, at most: a call takes them beside its operands.
MOST_BYTES = 1 << 32


def multiplied(product: Product) -> Product:
    """The product of the copies."""
    return replace(product, a=MatrixLayout(), b=MatrixLayout())


def copy_s(gpu: GpuModel, product: Product) -> float:
    """Seconds in which operands are copied: a launch, and their bytes, read and written, at the rate of copies."""
    rate = gpu.memory.dram.bandwidth_bytes_per_s * MEASURED.pack_share
    return MEASURED.pack_s + 2 * product.copied_bytes / rate


class PreparedSpec(CudaSpec):
    """Operands are copied by a kernel of their own; `gemm.cuda` multiplies them."""

    name = "prepared"
    summary = "C[M,N] = A[M,K] @ B[K,N] of tf32 in any order of axes, copied along K first, CUDA C++"
    dtypes = ("tf32",)
    for_other_dtypes = "it copies operands of tf32"

    def inability(self, gpu: GpuModel, product: Product) -> str:
        """Operands that need no copy; then whatever `gemm.cuda` does not multiply."""
        if product.is_three_pass:
            return "it multiplies fp32 in one pass"
        if not (product.a.is_copied or product.b.is_copied):
            return "no operand has to be copied"
        if product.a.is_expanded or product.b.is_expanded:
            return "it would copy an operand that is repeated in memory as often"
        if product.a.is_scattered or product.b.is_scattered:
            return "it copies operands whose elements follow each other along an axis"
        if product.batch > 1:
            return "it copies the operands of one product"
        if product.copied_bytes > MOST_BYTES:
            return f"copies would take more than {MOST_BYTES >> 30} GiB"
        return super().inability(gpu, multiplied(product))

    def table_options(self, product: Product) -> Mapping[str, int]:
        """The operands that are copied, and `bias` for any epilogue."""
        copied = {f"{name}.is_copied": int(getattr(product, name).is_copied) for name in ("a", "b")}
        return {"bias": int(not leaves_plainly(product)), **copied}

    # All that follows is of the product of the copies.

    def tile_rules(self, gpu: GpuModel, product: Product, v: Vars) -> Iterator[Rule]:
        """Rules of the instruction, the registers and the TMA unit."""
        yield from super().tile_rules(gpu, multiplied(product), v)

    def size_rules(self, gpu: GpuModel, product: Product, v: Mapping[str, Any], algebra: Algebra) -> Iterator[Rule]:
        """Rules on sizes."""
        yield from super().size_rules(gpu, multiplied(product), v, algebra)

    def leading_rows(self, gpu: GpuModel, product: Product, columns: Columns) -> NDArray[np.int64]:
        """See `CudaSpec.leading_rows`."""
        return leading_rows(gpu, multiplied(product), columns)

    def block_use(self, gpu: GpuModel, product: Product, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        return super().block_use(gpu, multiplied(product), v)

    def price(self, gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row: the copies, then the product."""
        costs, first_s = cuda_cost(gpu, multiplied(product), columns, blocks_per_sm), copy_s(gpu, product)

        def parts() -> dict[str, Any]:
            return {**costs.parts_s, "DRAM": costs.parts_s["DRAM"] + first_s}

        return CostColumns(costs.seconds + first_s, Later(parts))

    def figures(self, gpu: GpuModel, workload: Workload, config: Config) -> Mapping[str, float]:
        """See `CudaSpec.figures`; and the time in which operands are copied."""
        product = Product.of(workload)
        return {**figures_of(gpu, multiplied(product), config), "copy_us": 1e6 * copy_s(gpu, product)}

    def call_launches(self, call: GemmCall, config: Config) -> Sequence[Launch]:
        """The launches of one call. Needs torch and triton."""
        from constrint.kernels.gemm.prepared.launch import prepared_launches

        return prepared_launches(call, config)


SPECS = (PreparedSpec(),)
