"""The `library` implementation: torch's own product, which is cuBLAS on NVIDIA's GPUs and hipBLASLt on AMD's.

The library has no parameters. Its time is predicted where it was measured, here or elsewhere, on a GPU of the same
model; on other GPUs it is no candidate, since an unchecked estimate must not win.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.library.cost import (
    ended_s,
    has_ends,
    has_table,
    left_out_error,
    origin_of,
    place_of,
    table_name,
    takes_activation,
)
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.spec import GemmSpec
from constrint.kernels.gemm.units import OUTPUT_BYTES, WIDEST_BYTES
from constrint.model import Problem
from constrint.select.candidate import Config
from constrint.select.cost import PARTS, CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import Workload

if TYPE_CHECKING:
    from constrint.kernels.gemm.launch import GemmCall

LIBRARY = "gemm.library"
#: In the configuration of the library's product that a trial measures: the place of cuBLASLt's algorithm among those of
#: its heuristic; the first one if left out, which takes as long as torch's own call.
ALGORITHM = "algorithm"
#: Reason why the library does not take an activation.
NO_ACTIVATION = "the library has no epilogue that ends in this activation, rounded once"
#: The 8-bit operators of torch take sizes that are multiples of these along K and N, and more rows than this.
FP8_MULTIPLE, INT8_MULTIPLE, INT8_ROWS = 16, 8, 16


class LibrarySpec(GemmSpec):
    """The product by the operator that `torch.matmul` calls."""

    name = "library"
    summary = "C[M,N] = A[M,K] @ B[K,N] by torch's own operator (cuBLAS, hipBLASLt)"
    order_params = ()
    free_params = ()
    has_tiles = False

    # The library has no tiles.

    def tile_params(self, gpu: GpuModel, dtype: str) -> tuple[Param, ...]:
        """None: the library chooses."""
        return ()

    def tile_rules(self, gpu: GpuModel, product: Product, v: Vars) -> Iterator[Rule]:
        """None: `refusal` has the products that the library cannot take."""
        return iter(())

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """None, likewise."""
        return iter(())

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse | None:  # type: ignore[override]
        """None: the library does not say which kernels it launches."""
        return None

    def block_use(self, gpu: GpuModel, product: Product, v: Vars) -> BlockUse:
        """There is none to state.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(f"{self.full_name}: what it launches is the library's secret.")

    def problem(self, gpu: GpuModel, workload: Workload) -> Problem:
        """One point."""
        return Problem(self.full_name)

    def stated_problem(self, gpu: GpuModel, workload: Workload) -> Problem | None:  # type: ignore[override]
        """None: there is nothing to share."""
        return None

    # Memory and time.

    def inability(self, gpu: GpuModel, product: Product) -> str:
        """Why it is no candidate: torch has no such operator, or the product was not measured."""
        reason = library_refusal(gpu, product)
        if reason or ended_s(gpu, product) is not None:
            return reason
        if not has_table(gpu):
            return f"torch's own product was not measured on {gpu.name}: nothing is predicted, so nothing is offered"
        return f"nothing near this product was measured on {gpu.name}: nothing is predicted, so nothing is offered"

    def price(self, gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """The measured time, interpolated; the library does not say what binds it."""
        seconds = ended_s(gpu, product) or float("inf")
        return CostColumns(np.array([seconds]), dict.fromkeys((*PARTS, "spilling"), 0.0) | {"latency": seconds})

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """None: its times are measured ones."""
        return ()

    def evidence(self, gpu: GpuModel, workload: Workload) -> str:
        """The table that the time comes from, and the error of the interpolation."""
        error = left_out_error(gpu, place_of(Product.of(workload)).kind)
        if error is None:
            return ""
        origin = origin_of(gpu.name)
        whose = f"products measured elsewhere ({origin})" if origin else "measured products"
        return (
            f"times of {self.full_name} are interpolated between {whose}, of {table_name(gpu.name)}: off by "
            f"{error.median:.0%} in the median and by up to {error.nine_in_ten:.0%} nine times in ten, on "
            f"{error.num_judged} that were left out"
        )

    # Launch.

    def call_launches(self, call: GemmCall, config: Config) -> Sequence[Launch]:
        """One call of torch's operator."""
        from constrint.kernels.gemm.library.launch import LibraryLaunch

        return [LibraryLaunch(call)]


def library_refusal(gpu: GpuModel | None, product: Product) -> str:
    """Why one call of the library does not compute a product with its whole epilogue; empty where it does."""
    takes_it = takes_activation(product.activation, product.output_bytes, has_aligned_rows=_has_aligned_rows(product))
    if product.activation and not (has_ends(gpu) and takes_it):
        return NO_ACTIVATION
    reason = product.no_library or product.no_library_end or inability(product, takes_ends=has_ends(gpu))
    return reason or ("" if takes_bias(product) else "the library rounds products of such rows before it adds a row")


def takes_bias(product: Product) -> bool:
    """Whether the library adds the bias before it rounds: where rows are aligned."""
    return not product.has_bias or _has_aligned_rows(product)


def _has_aligned_rows(product: Product) -> bool:
    """Whether the rows of A, B and C allow accesses of 16 bytes."""
    return min(product.aligned) == WIDEST_BYTES


def inability(product: Product, *, takes_ends: bool = False) -> str:
    """Why the library does not compute a product in one call, with the accuracy of `matmul`; empty where it does.

    Args:
        product: The product; its activation does not count.
        takes_ends: Whether the library applies whole epilogues; else torch's operators, which add a row or a matrix.
    """
    p = product
    if p.has_bias and p.has_source and not takes_ends:
        return "torch's operators add a row or a matrix, not both"
    if p.has_bias and p.batch > 1 and not takes_ends:
        return "torch's batched operators add no row"
    is_wide = p.output_bytes != OUTPUT_BYTES[p.dtype]
    if is_wide and (p.has_bias or p.has_source or p.dtype in ("fp8", "int8")):
        return "torch's operators give this type of result for plain 16-bit products alone"
    if p.a.is_expanded or p.b.is_expanded:
        return "torch copies operands whose elements are repeated"
    if p.dtype in ("fp8", "int8") and (p.has_bias or p.has_source or p.activation or p.batch > 1):
        return "torch's operators for 8 bits take one plain product"
    if p.dtype == "fp8":
        return _fp8_inability(p)
    if p.dtype == "int8" and (p.m <= INT8_ROWS or p.n % INT8_MULTIPLE or p.k % INT8_MULTIPLE):
        return f"torch._int_mm takes more than {INT8_ROWS} rows, and multiples of {INT8_MULTIPLE} columns of both"
    return ""


def _fp8_inability(p: Product) -> str:
    if not p.a.is_k_major or not p.b.is_k_major:
        return "torch._scaled_mm takes A by rows and B by columns"
    if p.n % FP8_MULTIPLE or p.k % FP8_MULTIPLE or min(p.a.width_bytes, p.b.width_bytes) < WIDEST_BYTES:
        return f"torch._scaled_mm takes multiples of {FP8_MULTIPLE} columns, in rows that begin at such bytes"
    return ""


SPECS = (LibrarySpec(),)
