"""The parameter space of a product whose operands are rewritten first: that of the CUDA GEMM for what it multiplies.

fp32 that keeps its precision becomes one product of bf16 with six times the depth (`kernel.py`), which takes as long as
three passes of tf32 and has no order of axes to care for. tf32, which wgmma takes along K alone, is copied along K.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.cost import cuda_cost, figures_of, leading_rows
from constrint.kernels.gemm.cuda.shape import leaves_plainly
from constrint.kernels.gemm.cuda.spec import CudaSpec
from constrint.kernels.gemm.measured import MEASURED
from constrint.kernels.gemm.product import MatrixLayout, Product
from constrint.kernels.gemm.rules import Algebra
from constrint.kernels.gemm.units import ELEMENT_BYTES
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns, Later
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import Workload

if TYPE_CHECKING:
    from constrint.kernels.gemm.launch import GemmCall

#: Segments of bf16 along K that a row of fp32 becomes, and the multiple of elements that each is padded to: rows of all
#: segments start at lines of the L2.
SEGMENTS, DEPTH_STEP = 6, 32
#: Bytes of an element's segments.
SEGMENT_BYTES = 2 * SEGMENTS
#: Bytes of rewritten operands, at most: a call takes them beside its operands.
MOST_BYTES = 1 << 32


def padded_depth(k: int) -> int:
    """Elements of a segment."""
    return -(-k // DEPTH_STEP) * DEPTH_STEP


def multiplied(product: Product) -> Product:
    """The product of the rewritten operands."""
    along_k = MatrixLayout()
    if not product.is_three_pass:
        return replace(product, a=along_k, b=along_k)
    depth = SEGMENTS * padded_depth(product.k)
    return replace(product, k=depth, dtype="bf16", a=along_k, b=along_k, is_three_pass=False)


def written_bytes(product: Product) -> int:
    """Bytes of rewritten operands."""
    if not product.is_three_pass:
        return product.copied_bytes
    return (product.m + product.n) * padded_depth(product.k) * SEGMENT_BYTES


def prepare_s(gpu: GpuModel, product: Product) -> float:
    """Seconds in which operands are rewritten: a launch, and their bytes at the rate of copies."""
    read = product.copied_bytes
    if product.is_three_pass:
        read = (product.m + product.n) * product.k * ELEMENT_BYTES[product.dtype]
    rate = gpu.memory.dram.bandwidth_bytes_per_s * MEASURED.pack_share
    return MEASURED.pack_s + (read + written_bytes(product)) / rate


class PreparedSpec(CudaSpec):
    """Operands are rewritten by a kernel of their own; `gemm.cuda` multiplies them."""

    name = "prepared"
    summary = "C[M,N] = A[M,K] @ B[K,N] of fp32, rewritten as bf16 in six segments, or along K for tf32, CUDA C++"
    dtypes = ("tf32",)
    #: The same kernel's.
    optimism = CudaSpec.optimism
    dtype_hints: ClassVar[Mapping[str, str]] = CudaSpec.dtype_hints

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """Sources of the CUDA GEMM, and the kernel that rewrites operands."""
        folder = Path(__file__).parent
        sources = (path for path in (folder.parent / "cuda" / "source").iterdir() if path.suffix in (".cu", ".cuh"))
        return (*sorted(sources), folder / "kernel.py")

    def refusal(self, gpu: GpuModel, product: Product) -> str:
        """Other operands than fp32, and tf32 that needs no copy; then whatever `gemm.cuda` does not multiply."""
        if product.dtype != "tf32":
            return "it rewrites fp32 operands"
        if not product.is_three_pass and not (product.a.is_copied or product.b.is_copied):
            return "no operand has to be rewritten for tf32"
        if product.a.is_expanded or product.b.is_expanded:
            return "it would write an operand that is repeated in memory as often"
        if written_bytes(product) > MOST_BYTES:
            return f"rewritten operands would take more than {MOST_BYTES >> 30} GiB"
        if not product.is_three_pass and (product.a.is_scattered or product.b.is_scattered):
            return "it copies operands whose elements follow each other along an axis"
        if product.batch > 1:
            return "it rewrites the operands of one product"
        return super().refusal(gpu, multiplied(product))

    def table_options(self, product: Product) -> Mapping[str, int]:
        """How operands are rewritten, and `bias` for any epilogue."""
        copied = {f"{name}.is_copied": int(getattr(product, name).is_copied) for name in ("a", "b")}
        if product.is_three_pass:
            copied = dict.fromkeys(copied, 0)
        return {"three_pass": int(product.is_three_pass), "bias": int(not leaves_plainly(product)), **copied}

    # All that follows is of the product of the rewritten operands.

    def tile_params(self, gpu: GpuModel, dtype: str) -> tuple[Param, ...]:
        """Those of `gemm.cuda`; `tile_k`, a line of bytes, has both types' depths."""
        of_bf16, of_tf32 = super().tile_params(gpu, "bf16"), super().tile_params(gpu, "tf32")
        return tuple(
            both if both.name != "tile_k" else replace(both, values=(*both.values, *other.values))
            for both, other in zip(of_bf16, of_tf32, strict=True)
        )

    def tile_rules(self, gpu: GpuModel, product: Product, v: Vars) -> Iterator[Rule]:
        """Rules of the instruction, the registers and the TMA unit."""
        inner = multiplied(product)
        line = next(p for p in super().tile_params(gpu, inner.dtype) if p.name == "tile_k")
        yield Rule(v["tile_k"] == line.values[0], "line", line.because)
        yield from super().tile_rules(gpu, inner, v)

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
        """Predicted time per row: rewriting, then the product."""
        costs, first_s = cuda_cost(gpu, multiplied(product), columns, blocks_per_sm), prepare_s(gpu, product)

        def parts() -> dict[str, Any]:
            return {**costs.parts_s, "DRAM": costs.parts_s["DRAM"] + first_s}

        return CostColumns(costs.seconds + first_s, Later(parts))

    def figures(self, gpu: GpuModel, workload: Workload, config: Config) -> Mapping[str, float]:
        """See `CudaSpec.figures`; and the time in which operands are rewritten."""
        product = Product.of(workload)
        return {**figures_of(gpu, multiplied(product), config), "rewriting_us": 1e6 * prepare_s(gpu, product)}

    def call_launches(self, call: GemmCall, config: Config) -> Sequence[Launch]:
        """The launches of one call. Needs torch and triton."""
        from constrint.kernels.gemm.prepared.launch import prepared_launches

        return prepared_launches(call, config)


SPECS = (PreparedSpec(),)
