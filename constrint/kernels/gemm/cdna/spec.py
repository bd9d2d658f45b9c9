"""The parameter space of the GEMM in Gluon for gfx950 (MI350X, MI355X) and gfx942 (MI300X, MI325X).

LDS and sums are exact; that no kernel of the space uses scratch memory is checked by compiling them
(`tests/kernels/gemm/test_cdna_compiled.py`). Nobody here has run one: its times are modelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cdna.cost import cdna_cost
from constrint.kernels.gemm.cdna.shape import (
    ADDRESSES,
    BUFFERS,
    DTYPES,
    TARGETS,
    WAVES,
    depths,
    estimated_registers,
    lane_elements,
    live_registers,
    share_of_registers,
    smem_bytes,
)
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.rules import Algebra
from constrint.kernels.gemm.spec import GemmSpec
from constrint.kernels.gemm.units import ELEMENT_BYTES, WIDEST_BYTES
from constrint.model import divides, implies
from constrint.model.constraint import CERTAIN
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.toolchain import triton_version

if TYPE_CHECKING:
    from constrint.kernels.gemm.launch import GemmCall

#: Sides of a tile: halves are shared by two and by four waves of 16 rows or columns and more.
SIDES = (256, 128)
#: Rows of tiles that are walked together, and neighbouring tiles that an XCD takes at a time; 0: dealt one by one.
WINDOWS = (8, 4, 5, 7, 16, 1, 2, 32)
CHUNKS = (64, 0, 25, 32, 216, 512, 542)
#: The first version of Triton whose Gluon has `warp_pipeline_stage` and places sums in accumulation registers.
LEAST_TRITON = (3, 9)
#: Parameters that the kernel lacks.
WHOLE_K = {"split_k": 1, "persistent": 0}


class CdnaSpec(GemmSpec):
    """Eight waves in two groups that take turns at the matrix units and at memory, or four waves alone."""

    name = "cdna"
    summary = "C[M,N] = A[M,K] @ B[K,N] by waves that take turns on a SIMD, Gluon for gfx950 and gfx942"
    prices_order = True
    targets = TARGETS
    for_other_gpus = f"it is written for the matrix units of {' and '.join(TARGETS)}, not for {{target}}"
    counts_ends = True
    fixed: ClassVar[Mapping[str, int]] = WHOLE_K
    free_params = ()

    def inability(self, gpu: GpuModel, product: Product) -> str:
        """Other dtypes, operands that no load of 16 bytes along K takes, and ends that add or activate."""
        if product.dtype not in DTYPES:
            return f"it multiplies {', '.join(DTYPES)}, not {product.dtype}"
        version = triton_version()
        if version and _minor(version) < LEAST_TRITON:
            return f"it needs Triton {'.'.join(map(str, LEAST_TRITON))} or later; {version} is installed"
        if product.has_bias or product.has_source or product.activation:
            return "its end adds nothing and activates nothing"
        return _operand_refusal(gpu, product)

    def uncalibrated(self) -> str:
        """No device has run it."""
        return "it was compiled and modelled, and never run; matmul does not choose it"

    def tile_params(self, gpu: GpuModel, dtype: str) -> tuple[Param, ...]:
        """Tile sizes, waves, and the order of tiles; the number of buffers is the kernel's."""
        waves = tuple(WAVES) if gpu.arch.target == "gfx950" else (max(WAVES),)
        depth = "rows of 64, 128 or 256 bytes in LDS"
        number = "8: two groups take turns; 4: one wave a SIMD, with all of its registers"
        window, chunk = "those in use by published kernels", "those in use by published kernels, and none"
        chunked = "neighbouring tiles that an XCD takes at a time; 0: none"
        return (
            Param("tile_m", SIDES, "rows of C per block", "halves of what two waves share"),
            Param("tile_n", SIDES, "columns of C per block", "halves of what two or four waves share"),
            Param("tile_k", depths(gpu, dtype), "depth of one step", depth),
            Param("num_warps", waves, "waves per block", number, "w"),
            Param("num_stages", (BUFFERS,), "slices of K in LDS", "steps alternate between two buffers", "st"),
            Param("group_m", WINDOWS, "rows of tiles walked together", window, "gm"),
            Param("xcd_chunk", CHUNKS, chunked, chunk, "xcd"),
        )

    def tile_rules(self, gpu: GpuModel, product: Product, v: Vars) -> Iterator[Rule]:
        """The instruction's depth, and registers that are divided statically among the waves of a SIMD."""
        _, k = lane_elements(gpu, product.dtype)
        yield Rule(divides(k, v["tile_k"]), "instruction_k", f"the matrix instruction takes k = {k}", CERTAIN)
        live = live_registers(gpu, product.dtype, v)
        for waves in WAVES:
            most = share_of_registers(gpu, waves)
            divided = f"{waves} waves divide the registers of four SIMDs statically: {most} each, at any time"
            fits = implies(v["num_warps"] == waves, live + ADDRESSES <= most)
            yield Rule(fits, f"static_registers_{waves}", divided, CERTAIN)

    def size_rules(self, gpu: GpuModel, product: Product, v: Mapping[str, Any], algebra: Algebra) -> Iterator[Rule]:
        """Whole steps along K, two of them at least, before the rules of every grid."""
        whole = algebra.ceildiv(product.k, v["tile_k"]) * v["tile_k"] == product.k
        yield Rule(whole, "whole_steps", "the loop over K has no masks: K is a multiple of tile_k", CERTAIN)
        two = BUFFERS * v["tile_k"] <= product.k
        yield Rule(two, "two_steps", "both buffers are filled before the loop", CERTAIN)
        for rule in super().size_rules(gpu, product, v, algebra):
            if rule.name != "stages_filled":
                yield rule

    def block_use(self, gpu: GpuModel, product: Product, v: Vars) -> BlockUse:
        """Waves, registers and LDS of one block."""
        live = live_registers(gpu, product.dtype, v)
        smem = smem_bytes(product.dtype, v)
        taken = estimated_registers(gpu, product.dtype, v)
        return BlockUse(v["num_warps"], taken, smem, least_registers=live, spilling=None)

    def price(self, gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row; without `group_m` and `xcd_chunk`, the least over their values."""
        return cdna_cost(gpu, product, columns, blocks_per_sm)

    def call_launches(self, call: GemmCall, config: Config) -> Sequence[Launch]:
        """The launches of one call. Needs torch and triton."""
        from constrint.kernels.gemm.cdna.launch import cdna_launches

        return cdna_launches(call, config)


def _operand_refusal(gpu: GpuModel, product: Product) -> str:
    if not product.a.is_k_major or product.a.is_scattered or product.b.is_scattered:
        return "it loads rows of A that are contiguous along K"
    if min(product.a.width_bytes, product.b.width_bytes) < WIDEST_BYTES:
        return f"it loads {WIDEST_BYTES} bytes at a time, and rows of an operand do not start at multiples of them"
    is_transposed = gpu.arch.target == "gfx950" and ELEMENT_BYTES[product.dtype] == 2
    if not product.b.is_k_major and not is_transposed:
        return f"LDS of {gpu.arch.target} has no transposed read of {product.dtype}: B has to be contiguous along K"
    return ""


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])


SPECS = (CdnaSpec(),)
