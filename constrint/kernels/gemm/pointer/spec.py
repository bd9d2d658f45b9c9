"""The parameter space of the pointer kernel of `kernel.py`, for any modelled GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.pointer.cost import pointer_assumptions, pointer_cost
from constrint.kernels.gemm.pointer.shared_memory import smem_bytes
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.registers import least_registers, registers_per_thread, spilling
from constrint.kernels.gemm.rules import XCD_CHUNKS, instruction_rules
from constrint.kernels.gemm.spec import POWER, TILES, GemmSpec
from constrint.kernels.gemm.units import unit
from constrint.model import Var, any_of
from constrint.model.constraint import ESTIMATED
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import Workload

if TYPE_CHECKING:
    from constrint.kernels.gemm.launch import GemmCall


class PointerSpec(GemmSpec):
    """The kernel that loads tiles through pointers and asynchronous copies."""

    name = "pointer"
    summary = "C[M,N] = A[M,K] @ B[K,N] through pointers, Triton"
    prices_order = True

    def tile_params(self, gpu: GpuModel, dtype: str) -> tuple[Param, ...]:
        """Tile sizes, warps, stages, split-K, persistence, block order; on AMD also the compiler's knobs."""
        stages, knobs = gpu.traits.pipeline_stages, gpu.traits.compiler_knobs
        common = (
            Param("tile_m", TILES, "rows of C per block", POWER),
            Param("tile_n", TILES, "columns of C per block", POWER),
            Param("tile_k", (64, 32, 128, 16, 256), "depth of one main-loop iteration", POWER),
            Param("num_warps", (4, 8, 2, 16, 1), "warps (waves) per block", "Triton takes powers of two", "w"),
            Param("num_stages", stages, "depth of the load pipeline", "deeper ones do not fit anywhere", "st"),
            Param("split_k", (1, 2, 4, 8, 16, 32), "blocks that share one tile's K", "powers of two up to 32", "sk"),
            Param("persistent", (0, 1), "1: one block per slot walks many tiles", "the kernel has both loops", "p"),
            Param("group_m", (8, 4, 16, 1, 2, 32), "rows of tiles walked together", "powers of two up to 32", "gm"),
        )
        return common + (_compiler_knobs(gpu, dtype) if knobs else ())

    def tile_rules(self, gpu: GpuModel, product: Product, v: Vars) -> Iterator[Rule]:
        """Rules of the matrix instruction."""
        yield from instruction_rules(gpu, unit(gpu, product.dtype), v)

    def promise_rules(self, gpu: GpuModel, use: BlockUse, v: Vars) -> Iterator[Rule]:
        """AMD: the registers that the compiler spills to keep `waves_per_eu` waves resident."""
        if "waves_per_eu" not in v or use.spilling is None:
            return
        capacity, what = gpu.register_file.capacity, gpu.register_file.counted
        fits = 100 * v["waves_per_eu"] * use.registers_per_thread <= use.spilling.clear_percent * capacity
        yield Rule(
            any_of(v["waves_per_eu"] <= 1, fits),
            "waves_per_eu",
            f"to keep a promise of waves the compiler spills what exceeds their share of {capacity} {what}",
            ESTIMATED,
        )

    def block_use(self, gpu: GpuModel, product: Product, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        dtype, aligned = product.dtype, product.aligned
        exact = None
        if gpu.arch.target == "gfx950":
            # The instruction's rows decide how LDS is padded.
            exact = smem_bytes(gpu, product, {**v, "matrix_instr_nonkdim": Var("matrix_instr_nonkdim")})
        return BlockUse(
            v["num_warps"],
            registers_per_thread(gpu, dtype, v, aligned),
            smem_bytes(gpu, product, v),
            smem_bytes_exact=exact,
            least_registers=least_registers(gpu, dtype, v),
            spilling=spilling(gpu, dtype, v, aligned),
        )

    def price(self, gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row; without `group_m` and `xcd_chunk`, the least over their values."""
        return pointer_cost(gpu, product, columns, blocks_per_sm)

    def call_launches(self, call: GemmCall, config: Config) -> Sequence[Launch]:
        """The launches of one call. Needs torch and triton."""
        from constrint.kernels.gemm.pointer.launch import pointer_launches

        return pointer_launches(call, config)

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """See `GemmSpec.assumptions`."""
        lines = pointer_assumptions(gpu)
        if unit(gpu, workload.dtype).kind == "fma":
            lines.append(f"Triton has no tensor-core code for {gpu.arch.target}: plain FMA in fp32")
        return tuple(lines)


def _compiler_knobs(gpu: GpuModel, dtype: str) -> tuple[Param, ...]:
    matrix = unit(gpu, dtype)
    rows = tuple(m for m, _, _ in matrix.shapes)
    most = getattr(gpu.sm, "max_waves_per_simd", 8)
    knobs = [
        Param("matrix_instr_nonkdim", rows, "rows of the matrix instruction", f"what {gpu.arch.target} has", "mi"),
        Param(
            "waves_per_eu",
            (0, *(w for w in (1, 2, 3, 4, 6, 8) if w <= most)),
            "waves per SIMD the compiler must leave registers for; 0: it decides",
            f"a SIMD of {gpu.arch.target} holds at most {most} waves",
            "eu",
        ),
    ]
    # Packing two k-slices per LDS read exists in Triton for the CDNA generations before gfx950 only.
    if matrix.kind == "mfma":
        packs = (1, 2) if gpu.arch.target != "gfx950" else (1,)
        knobs.append(Param("kpack", packs, "k-slices per LDS read", "Triton takes 1 or 2, on gfx950 only 1", "kp"))
    if gpu.device.num_xcds > 1:
        meaning = "neighbouring tiles that an XCD takes at a time; 0: none"
        knobs.append(Param("xcd_chunk", XCD_CHUNKS, meaning, "a few sizes between none and all", "xcd"))
    return tuple(knobs)


SPECS = (PointerSpec(),)
