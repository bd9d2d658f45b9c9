"""The parameter space of the producer kernel, for Hopper.

It stands beside `kernel.py` so that a reviewer can check the rules against the code; `tile.py` deals out a tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.producer.cost import producer_cost
from constrint.kernels.gemm.producer.shared_memory import producer_smem_bytes
from constrint.kernels.gemm.producer.tile import (
    CONSUMER_WARPS,
    DTYPES,
    MAX_ROWS,
    MIN_ROWS,
    PRODUCER_WARPS,
    REGISTERS,
    ROW_BYTES,
    can_store,
    has_producer,
    most_sums,
    turns,
)
from constrint.kernels.gemm.product import ROW_ALIGNMENT_BYTES, Product
from constrint.kernels.gemm.spec import GemmSpec
from constrint.kernels.gemm.tma.operands import tma_refusal
from constrint.kernels.gemm.units import ELEMENT_BYTES
from constrint.model import const
from constrint.model.constraint import CERTAIN
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars

if TYPE_CHECKING:
    from constrint.kernels.gemm.launch import Call


class ProducerSpec(GemmSpec):
    """A producer warp fills a ring through the TMA unit; two warpgroups multiply."""

    name = "producer"
    summary = "C[M,N] = A[M,K] @ B[K,N] with a warp that loads for all others, Gluon"
    dtypes = DTYPES
    order_params = ("group_m",)
    free_params = ()
    fixed: ClassVar[Mapping[str, int]] = {"split_k": 1, "persistent": 1}
    serves_any_rows = True

    def refusal(self, gpu: GpuModel, product: Product) -> str:
        """Other GPUs and dtypes, and products that the kernel's end cannot finish."""
        if not has_producer(gpu, product.dtype):
            return f"it is written for Hopper's wgmma, not for {product.dtype} on {gpu.arch.target}"
        if product.batch > 1 or product.has_source or product.is_three_pass:
            return "it computes one product at a time, adds no matrix and multiplies fp32 in one pass"
        if not product.allows_gluon:
            return "Gluon's interface moves between versions of Triton, and this one is not checked"
        if not can_store(product.n, product.output_bytes, product.dtype):
            return (
                f"it stores rows of the dtype's own type that start at multiples of {ROW_ALIGNMENT_BYTES} bytes, "
                f"not {product.n} elements of {product.output_bytes} bytes"
            )
        return tma_refusal(gpu, product)

    def tile_params(self, gpu: GpuModel, dtype: str) -> tuple[Param, ...]:
        """Tile sizes, stages of the ring and block order; depth and warps have one value each."""
        depth, ring = ROW_BYTES // ELEMENT_BYTES[dtype], "it runs ahead of its use; deeper ones do not fit anywhere"
        line = f"rows of a slice are {ROW_BYTES} bytes, by which the TMA unit swizzles"
        columns = "wgmma takes up to 256 columns, and stored blocks are 64 wide; 192 are 128 and 64"
        return (
            Param("tile_m", (128, 64, 256), "rows of C per block", "one or two times 64 or 128 rows of a consumer"),
            Param("tile_n", (128, 64, 256, 192), "columns of C per block", columns),
            Param("tile_k", (depth,), "depth of one main-loop iteration", line),
            Param("num_warps", (CONSUMER_WARPS,), "warps that multiply", "two warpgroups, whatever the tile", "w"),
            Param("num_stages", (3, 4, 2, 5, 6), "stages of the ring", ring, "st"),
            Param("group_m", (8, 4, 16, 1, 2, 32), "rows of tiles walked together", "powers of two up to 32", "gm"),
        )

    def tile_rules(self, gpu: GpuModel, product: Product, v: Vars) -> Iterator[Rule]:
        """How many rows and sums a consumer can have."""
        in_turns = turns(product.dtype, v)
        rows = "a consumer has 64 rows, those of wgmma, or 128"
        yield Rule(v["tile_m"] >= (2 - in_turns) * MIN_ROWS, "least_rows", rows, CERTAIN)
        yield Rule(v["tile_m"] <= (2 - in_turns) * MAX_ROWS, "most_rows", rows, CERTAIN)
        most = most_sums(product.dtype)
        fits = f"{most // 128} sums a thread leave registers for all else"
        yield Rule(v["tile_m"] * v["tile_n"] <= 2 * most, "sums", fits, CERTAIN)

    def block_use(self, gpu: GpuModel, product: Product, v: Vars) -> BlockUse:
        """Warps with the producer's, registers (the same for every tile) and shared memory of one block."""
        registers = const(REGISTERS)
        smem = producer_smem_bytes(product.dtype, v)
        return BlockUse(v["num_warps"] + PRODUCER_WARPS, registers, smem, least_registers=registers, spilling=None)

    def price(self, gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row; the order of tiles makes no difference."""
        return producer_cost(gpu, product, columns, blocks_per_sm)

    def call_launches(self, call: Call, config: Config) -> Sequence[Launch]:
        """The launches of one call. Needs torch and triton."""
        from constrint.kernels.gemm.producer.launch import producer_launches

        return producer_launches(call, config)


SPECS = (ProducerSpec(),)
