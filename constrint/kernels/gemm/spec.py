"""The parameter space of the Triton GEMM: parameters, constraints, resources and cost for any modelled GPU.

It stands beside `kernel_triton.py` so that a reviewer can check the constraints against the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from constrint.errors import InfeasibleError, UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm import resources
from constrint.kernels.gemm.cost import gemm_assumptions, gemm_cost, matrix_peak_flop_per_s
from constrint.kernels.gemm.descriptor import (
    TWO_PART_COLUMNS,
    descriptor_smem_bytes,
    has_descriptors,
    rest_columns,
)
from constrint.kernels.gemm.grid_rules import EXPRESSIONS, XCD_CHUNKS, grid_rules
from constrint.kernels.gemm.producer import (
    PRODUCER_WARPS,
    REGISTERS,
    has_producer,
    producer_rules,
    producer_smem_bytes,
)
from constrint.kernels.gemm.registers import PROMISE_PERCENT
from constrint.model import Expr, Problem, Var, any_of, const, divides, implies
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse, add_block_limits, register_capacity
from constrint.select.spec import Columns, Param, Workload

#: Sizes and strides are 32-bit integers in the kernel.
MAX_SIZE = 2**31 - 1
#: Statements that are kept: a dozen of dtypes and alignments on a few GPUs.
MAX_STATED = 64


class _Stated(NamedTuple):
    """The space of a GPU, a dtype and alignments before any rule on sizes; the GPU is kept alive with it."""

    gpu: GpuModel
    problem: Problem
    variables: dict[str, Var]
    use: BlockUse


class GemmSpec:
    """C[M, N] = A[M, K] @ B[K, N], row-major, accumulated in 32 bits."""

    name = "gemm"
    summary = "C[M,N] = A[M,K] @ B[K,N], row-major, Triton"
    size_names = ("m", "n", "k")
    dtypes = tuple(resources.ELEMENT_BYTES)
    order_params = ("group_m", "xcd_chunk")
    free_params = ("matrix_instr_nonkdim", "waves_per_eu", "kpack")

    def __init__(self) -> None:
        self._known: dict[tuple[int, str, resources.Aligned], _Stated] = {}

    def default_workload(self, gpu: GpuModel) -> Workload:
        """4096 x 4096 x 4096 in bf16, or in fp16 on a GPU without bf16."""
        dtype = "bf16"
        try:
            resources.unit(gpu, dtype)
        except UnsupportedError:
            dtype = "fp16"
        return Workload(self.name, {"m": 4096, "n": 4096, "k": 4096}, dtype)

    def check_workload(self, gpu: GpuModel, workload: Workload) -> None:
        """Refuse sizes outside 1..2**31-1, unknown dtypes, and operands larger than the GPU's memory."""
        if workload.dtype not in self.dtypes:
            raise UnknownNameError("dtype", workload.dtype, self.dtypes)
        for name in self.size_names:
            size = workload.sizes[name]
            if not 1 <= size <= MAX_SIZE:
                raise UsageError(f"{name} must be between 1 and {MAX_SIZE} (32-bit sizes), got {size}.")
        resources.unit(gpu, workload.dtype)
        needed, there = self._matrix_bytes(workload), gpu.memory.dram.size_bytes
        if needed > there:
            raise InfeasibleError(
                f"{workload} does not fit {gpu.name}: A, B and C take {needed / 1e9:,.1f} GB, "
                f"the device has {there / 1e9:,.1f} GB. Split the work or choose a larger GPU."
            )

    def _matrix_bytes(self, workload: Workload) -> int:
        """Bytes of A, B and C, each counted once."""
        m, n, k = (workload.sizes[s] for s in self.size_names)
        operands = (m * k + k * n) * resources.ELEMENT_BYTES[workload.dtype]
        return operands + m * n * resources.OUTPUT_BYTES[workload.dtype]

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        """Tile sizes, warps, stages, block order, split-K, persistence; on AMD also the compiler's knobs."""
        return self._params(gpu, workload.dtype)

    def _params(self, gpu: GpuModel, dtype: str) -> tuple[Param, ...]:
        tiles = (128, 64, 256, 32, 16)
        power = "powers of two, as Triton's block shapes must be"
        common = (
            Param("tile_m", tiles, "rows of C per block", power),
            self._columns_param(gpu, dtype, tiles, power),
            Param("tile_k", (64, 32, 128, 16, 256), "depth of one main-loop iteration", power),
            Param("num_warps", (4, 8, 2, 16, 1), "warps (waves) per block", "Triton takes powers of two"),
            Param("num_stages", self._stages(gpu), "depth of the load pipeline", "deeper ones do not fit anywhere"),
            Param("split_k", (1, 2, 4, 8, 16, 32), "blocks that share one tile's K", "powers of two up to 32"),
            Param("persistent", (0, 1), "1: one block per slot walks many tiles", "a switch"),
            Param("group_m", (8, 4, 16, 1, 2, 32), "rows of tiles walked together", "powers of two up to 32"),
        )
        if gpu.vendor == "amd":
            return common + self._amd_params(gpu, dtype)
        return common + (self._descriptor_params(gpu, dtype) if has_descriptors(gpu) else ())

    def _columns_param(self, gpu: GpuModel, dtype: str, tiles: tuple[int, ...], power: str) -> Param:
        found = resources.unit(gpu, dtype)
        if has_descriptors(gpu) and found.fallback is not None:
            tiles, power = tiles + TWO_PART_COLUMNS, f"{power}, or two of them side by side"
        return Param("tile_n", tiles, "columns of C per block", power)

    def _descriptor_params(self, gpu: GpuModel, dtype: str) -> tuple[Param, ...]:
        tma = f"{gpu.arch.target} has a TMA unit"
        params: tuple[Param, ...] = (
            Param("descriptor", (1, 0), "1: tiles come and go through the TMA unit; 0: through pointers", tma),
            Param("epilogue_subtile", (1, 2), "parts in which an output tile is staged", "a switch"),
        )
        if has_producer(gpu, dtype):
            params += (Param("producer", (0, 1), "1: one more warp loads for all the others", "a switch"),)
        return params

    def _stages(self, gpu: GpuModel) -> tuple[int, ...]:
        return (2, 1, 3, 4) if gpu.vendor == "amd" else (3, 4, 2, 5, 6, 1)

    def _amd_params(self, gpu: GpuModel, dtype: str) -> tuple[Param, ...]:
        found = resources.unit(gpu, dtype)
        sizes = tuple(m for m, _, _ in found.shapes)
        most = getattr(gpu.sm, "max_waves_per_simd", 8)
        knobs = [
            Param("matrix_instr_nonkdim", sizes, "rows of the matrix instruction", f"what {gpu.arch.target} has"),
            Param(
                "waves_per_eu",
                (0, *(w for w in (1, 2, 3, 4, 6, 8) if w <= most)),
                "waves per SIMD the compiler must leave registers for; 0: it decides",
                f"a SIMD of {gpu.arch.target} holds at most {most} waves",
            ),
        ]
        # Packing two k-slices per LDS read exists in Triton for the CDNA generations before gfx950 only.
        if found.kind == "mfma":
            packs = (1, 2) if gpu.arch.target != "gfx950" else (1,)
            knobs.append(Param("kpack", packs, "k-slices per LDS read", "Triton takes 1 or 2, on gfx950 only 1"))
        if gpu.device.num_xcds > 1:
            chunk = "neighbouring tiles that an XCD takes at a time; 0: none"
            knobs.append(Param("xcd_chunk", XCD_CHUNKS, chunk, "a few sizes between none and all"))
        return tuple(knobs)

    def problem(self, gpu: GpuModel, workload: Workload) -> Problem:
        """State the space; every limit comes from the GPU model, every rule carries its reason."""
        stated = self._stated(gpu, workload)
        problem = stated.problem.copy()
        for rule in grid_rules(gpu, workload.sizes, stated.variables, EXPRESSIONS):
            problem.add(rule.condition, name=rule.name, because=rule.because)
        return problem

    def use(self, gpu: GpuModel, workload: Workload, problem: Problem) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        return self._stated(gpu, workload).use

    def _stated(self, gpu: GpuModel, workload: Workload) -> _Stated:
        """What holds for all sizes with these alignments, stated once: stating takes as long as solving."""
        aligned = resources.aligned_operands(workload)
        key = (id(gpu), workload.dtype, aligned)
        if key not in self._known:
            if len(self._known) >= MAX_STATED:
                self._known.clear()
            self._known[key] = self._state(gpu, workload.dtype, aligned)
        return self._known[key]

    def _state(self, gpu: GpuModel, dtype: str, aligned: resources.Aligned) -> _Stated:
        problem = Problem(self.name)
        v: dict[str, Var] = {}
        for param in self._params(gpu, dtype):
            v[param.name] = problem.int_var(param.name, values=list(param.values), because=param.because)
        self._add_instruction_rules(problem, gpu, dtype, v)
        if "descriptor" in v:
            self._add_descriptor_rules(problem, gpu, dtype, aligned, v)
        use = self._use(gpu, dtype, aligned, {name: v[name] for name in v if name not in self.free_params})
        add_block_limits(problem, gpu, use)
        if "waves_per_eu" in v:
            _, available, what = register_capacity(gpu, use)
            problem.add(
                any_of(
                    v["waves_per_eu"] <= 1,
                    v["waves_per_eu"] * use.registers_needed * PROMISE_PERCENT <= 100 * available,
                ),
                name="waves_per_eu",
                because=f"the compiler spills to keep a promise of waves, long before the last of {available} {what}",
            )
        return _Stated(gpu, problem, v, use)

    def _use(self, gpu: GpuModel, dtype: str, aligned: resources.Aligned, v: Mapping[str, Expr]) -> BlockUse:
        registers = resources.registers_per_thread(gpu, dtype, v, aligned)
        bound = resources.registers_bound(gpu, dtype, v, aligned)
        smem = resources.smem_bytes(gpu, dtype, v, aligned)
        if "descriptor" in v:
            is_tma = v["descriptor"]
            of_tma = resources.registers_per_thread(gpu, dtype, v, aligned, has_descriptors=True)
            bound_of_tma = resources.registers_bound(gpu, dtype, v, aligned, has_descriptors=True)
            registers = is_tma * of_tma + (1 - is_tma) * registers
            bound = is_tma * bound_of_tma + (1 - is_tma) * bound
            smem = is_tma * descriptor_smem_bytes(gpu, dtype, v) + (1 - is_tma) * smem
        warps: Expr = v["num_warps"]
        if "producer" in v:
            alone = 1 - v["producer"]
            registers = v["producer"] * REGISTERS + alone * registers
            bound = v["producer"] * REGISTERS + alone * bound
            smem = v["producer"] * producer_smem_bytes(dtype, v) + alone * smem
            warps = warps + v["producer"] * PRODUCER_WARPS
        exact = None
        if gpu.arch.target == "gfx950":
            # The instruction's rows decide how LDS is padded.
            rows = {"matrix_instr_nonkdim": Var("matrix_instr_nonkdim")}
            exact = resources.smem_bytes(gpu, dtype, {**v, **rows}, aligned)
        return BlockUse(warps, registers, smem, registers_bound=bound, smem_bytes_exact=exact)

    def _add_instruction_rules(self, problem: Problem, gpu: GpuModel, dtype: str, v: dict[str, Var]) -> None:
        found = resources.unit(gpu, dtype)
        whole = "each warp owns at least one whole matrix instruction; more warps would repeat work"
        for m, n, k in found.shapes:
            rule = [
                (f"instruction_m{m}", m <= v["tile_m"], f"the matrix instruction takes m = {m}"),
                (f"instruction_n{m}", n <= v["tile_n"], f"the matrix instruction takes n = {n}"),
                (f"instruction_k{m}", divides(k, v["tile_k"]), f"the matrix instruction takes k = {k}"),
                (f"warps_busy{m}", m * n * v["num_warps"] <= v["tile_m"] * v["tile_n"], whole),
            ]
            if found.kind == "mfma":
                packed = divides(k * v["kpack"], v["tile_k"])
                rule.append((f"kpack{m}", packed, f"kpack slices of k = {k} are read from LDS together"))
            for name, constraint, because in rule if found.fallback is None else rule[2:3]:
                if gpu.vendor == "amd" and len(found.shapes) > 1:
                    constraint = implies(v["matrix_instr_nonkdim"] == m, constraint)
                problem.add(constraint, name=name, because=because)
        if found.fallback is not None:
            # The fallback, mma.sync m16n8, sets the smallest share of a warp.
            problem.add(16 * 8 * v["num_warps"] <= v["tile_m"] * v["tile_n"], name="warps_busy", because=whole)

    def _add_descriptor_rules(
        self, problem: Problem, gpu: GpuModel, dtype: str, aligned: resources.Aligned, v: dict[str, Var]
    ) -> None:
        two, is_tma = v["epilogue_subtile"] == 2, v["descriptor"] == 1
        problem.add(
            implies(is_tma, v["num_stages"] >= 2), name="descriptor_stages", because="TMA loads run ahead of their use"
        )
        problem.add(implies(two, is_tma), name="subtile_descriptor", because="only the TMA unit stores a tile in parts")
        if resources.OUTPUT_BYTES[dtype] == resources.PARTIAL_BYTES:
            holds = any_of(v["persistent"] == 1, v["split_k"] == 1)
            problem.add(implies(two, holds), name="subtile_whole_k", because="a last block finishes its tile at once")
            problem.add(
                implies(two, rest_columns(v["tile_n"]) == 0),
                name="subtile_one_part",
                because="a tile in two parts is stored in parts as it is",
            )
        else:
            problem.add(
                implies(two, v["persistent"] == 1),
                name="subtile_persistent",
                because="elsewhere an output of 16 bits is staged in the pipeline's memory, whatever its size",
            )
        problem.add(
            implies(two, 16 * v["num_warps"] <= v["tile_m"]),
            name="subtile_warps",
            because="halves of the columns fall to each warp alone only if all warps share out the rows",
        )
        problem.add(
            implies(two, v["tile_n"] >= 32), name="subtile_columns", because="a matrix instruction takes n = 8 or more"
        )
        found = resources.unit(gpu, dtype)
        if found.fallback is not None:
            self._add_two_part_rules(problem, resources.async_share(found, v), v)
        if "producer" in v:
            for rule in producer_rules(dtype, v, aligned.c):
                holds = implies(v["producer"] == 1, rule.condition)
                problem.add(holds, name=f"producer_{rule.name}", because=rule.because)

    def _add_two_part_rules(self, problem: Problem, is_direct: Expr, v: dict[str, Var]) -> None:
        has_rest = rest_columns(v["tile_n"]) >= 1
        problem.add(
            implies(has_rest, v["descriptor"] == 1),
            name="parts_descriptor",
            because="the pointer kernel's tiles are single blocks of Triton, powers of two",
        )
        problem.add(
            implies(has_rest, is_direct == 1),
            name="parts_direct",
            because="both parts read one slice of A, which only wgmma and tcgen05 do from shared memory",
        )
        problem.add(
            implies(has_rest, v["persistent"] == v.get("producer", const(0))),
            name="parts_not_persistent",
            because="one loop over tiles and slices that ends in two epilogues makes ptxas serialise wgmma; "
            "with a producer there are two loops",
        )
        sums = v["tile_m"] * v["tile_n"]
        problem.add(
            implies(has_rest, any_of(v["split_k"] == 1, sums <= 128 * 32 * v["num_warps"])),
            name="parts_split",
            because="a block that adds up others' sums spills with more than 128 of its own per thread",
        )

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row; without `group_m` and `xcd_chunk`, the least over their values."""
        return gemm_cost(gpu, workload, columns, blocks_per_sm)

    def roofline_s(self, gpu: GpuModel, workload: Workload) -> float:
        """max(operations / peak, compulsory bytes / DRAM bandwidth)."""
        m, n, k = (workload.sizes[s] for s in self.size_names)
        needed = self._matrix_bytes(workload)
        compute_s = 2.0 * m * n * k / matrix_peak_flop_per_s(gpu, workload.dtype)
        return float(np.maximum(compute_s, needed / gpu.memory.dram.bandwidth_bytes_per_s))

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """What no source states for this GPU and had to be assumed."""
        lines = gemm_assumptions(gpu)
        if resources.unit(gpu, workload.dtype).kind == "fma":
            lines.append(f"Triton has no tensor-core code for {gpu.arch.target}: plain FMA in fp32")
        return tuple(lines)


SPEC = GemmSpec()
