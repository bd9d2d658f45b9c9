"""The parameter space of conjugate gradients in CUDA C++: one launch whose blocks are all resident. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from constrint.errors import UnsupportedError, UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.cg.cost import cg_cost, iteration_bytes
from constrint.kernels.cg.shape import (
    REGISTER_BYTES,
    REGISTERS_PER_SM,
    ROW_STEP,
    WARP,
    System,
    meeting_bytes,
    registers_of,
    star_of,
    system_of,
)
from constrint.kernels.launch.cuda.nvrtc import nvrtc_here
from constrint.model import ceildiv, minimum
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, KernelSpec, Launch, Param, Rule, Vars
from constrint.select.workload import Size, Workload

SOURCE = Path(__file__).with_name("source")
#: Rows in shared memory come in steps of this.
KEPT_STEP = 2048
#: Shared memory that the driver takes of a block for itself.
RESERVED_SMEM_BYTES = 1024
#: Registers that a thread needs beside those of x.
LEAST_REGISTERS = 24
POISSON_ROWS, POISSON_NNZ = 2048 * 2048, 5 * 2048 * 2048
#: The most iterations of a workload, and the usual number: enough for systems that are dominant in the diagonal.
MOST_ITERATIONS, ITERATIONS = 10_000, 16

SIZES = (
    Size("rows", POISSON_ROWS, "rows of the matrix"),
    Size("nnz", POISSON_NNZ, "stored elements of a matrix in CSR; points of a star come from the grid"),
)
OPTIONS = (
    Size("nx", 0, "points along x of a grid whose star is the matrix; 0: a matrix in CSR", 0),
    Size("ny", 0, "points along y of a grid; 0: all that rows and nx leave", 0),
    Size("reach", 1, "neighbours of a star on each side of a point along an axis", 1, 4),
    Size("jacobi", 0, "1: the inverse diagonal preconditions", 0, 1),
    Size("long", 0, "1: indices of a matrix in CSR have 64 bits", 0, 1),
    Size("iterations", ITERATIONS, "iterations of the launch", 1, MOST_ITERATIONS),
)


class CgSpec(KernelSpec):
    """Conjugate gradients whose iterations all run in one launch, for a matrix in CSR or a star on a grid."""

    operation = "cg"
    name = "cuda"
    summary = "iterations of conjugate gradients in one launch, two barriers of the grid each, CUDA C++"
    sizes = SIZES
    options = OPTIONS
    dtypes = ("fp64", "fp32")
    resident_params = ("blocks_per_sm", "threads", "kept_rows")
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tile": ("threads", "blocks_per_sm", "lanes"),
        "pipeline": ("unroll", "kept_rows", "kept_steps"),
    }

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """The sources."""
        return tuple(sorted(path for path in SOURCE.iterdir() if path.suffix in (".cu", ".cuh")))

    @property
    def compilers(self) -> Mapping[str, str]:
        """NVRTC."""
        return nvrtc_here()

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise UnsupportedError for GPUs that take no CUDA, UsageError for sizes that are no system."""
        if not gpu.arch.target.startswith("sm_"):
            raise UnsupportedError(f"{self.full_name} is written in CUDA C++; cg.triton runs on {gpu.name}.")
        check_system(workload)

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """Threads and blocks, what stays on the chip, and rows or elements that a thread loads at once."""
        system = system_of(workload)
        most = gpu.sm.max_smem_bytes_per_block // system.element // KEPT_STEP * KEPT_STEP
        what = "r of a star stays in shared memory" if system.star is not None else "q stays in shared memory"
        lanes = (1,) if system.star is not None else (1, 2, 4, 8, 16, 32)
        return (
            Param("threads", (512, 1024, 256, 128), "threads of a block", "whole warps; the registers decide"),
            Param(
                "blocks_per_sm", (1, 2, 4), "resident blocks of an SM", "more blocks hide barriers of others", "b/sm"
            ),
            Param("kept_rows", tuple(range(most, -1, -KEPT_STEP)), "rows of a block in shared memory", what, "kept"),
            Param("kept_steps", (0, 4, 8, 16), "rows of a thread whose x stays in registers", "a few registers", "xr"),
            Param("unroll", (2, 4, 1), "rows that a thread loads at once", "loads in flight", "un"),
            Param("lanes", lanes, "threads of a row", "a warp's share; a star has no rows in memory", "ln"),
        )

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Rules on what fits an SM, and on shares of a block that there are."""
        system, sm = system_of(workload), gpu.sm
        use = self._smem(gpu, system, v) + RESERVED_SMEM_BYTES
        per_sm = v["blocks_per_sm"]
        there = sm.max_smem_bytes_per_block + RESERVED_SMEM_BYTES
        yield Rule(per_sm * use <= there, "resident_smem", "all blocks of the grid wait for each other", CERTAIN)
        fits = per_sm * v["threads"] <= sm.max_threads_per_sm
        yield Rule(fits, "resident_threads", "all blocks of the grid wait for each other", CERTAIN)
        rows = ceildiv(system.rows, self._blocks(gpu, system, v))
        because = "a block keeps no more rows than it has"
        yield Rule(v["kept_rows"] <= rows + KEPT_STEP + ROW_STEP, "kept_rows", because, REDUNDANT)
        steps = v["kept_steps"] * v["threads"] <= rows + 4 * v["threads"]
        yield Rule(steps, "kept_steps", "a thread keeps no more rows than it has", REDUNDANT)
        words = system.element // REGISTER_BYTES
        live = v["threads"] * per_sm * (words * v["kept_steps"] + LEAST_REGISTERS) <= REGISTERS_PER_SM
        yield Rule(live, "resident_registers", "all blocks of the grid wait for each other", CERTAIN)
        whole = v["kept_steps"] % v["unroll"] == 0
        yield Rule(whole, "kept_whole", "rows are loaded in groups", CERTAIN)

    def _blocks(self, gpu: GpuModel, system: System, v: Vars) -> Any:
        return minimum(gpu.device.sm_count * v["blocks_per_sm"], ceildiv(system.rows, v["threads"]))

    def _smem(self, gpu: GpuModel, system: System, v: Vars) -> Any:
        most = gpu.device.sm_count * v["blocks_per_sm"]
        return meeting_bytes(most, v["threads"]) + v["kept_rows"] * system.element

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        system = system_of(workload)
        return BlockUse(
            warps=v["threads"] // WARP,
            registers_per_thread=registers_of(system, v),
            smem_bytes=self._smem(gpu, system, v),
            together=self._blocks(gpu, system, v),
        )

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """See `cost.py`."""
        return cg_cost(gpu, system_of(workload), iterations_of(workload), columns, blocks_per_sm)

    def roofline_s(self, gpu: GpuModel, workload: Workload) -> float:
        """Bytes that iterations move where the chip holds no vector, at the DRAM's bandwidth of the data sheet."""
        return self.moved_bytes(workload) / gpu.memory.dram.bandwidth_bytes_per_s

    def moved_bytes(self, workload: Workload) -> int:
        """Bytes of all iterations where the chip holds no vector."""
        return iteration_bytes(system_of(workload)) * iterations_of(workload)

    def check_memory(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise InfeasibleError where matrix and vectors do not fit the GPU's memory."""
        super().check_memory(
            gpu, Workload(self.operation, workload.sizes, workload.dtype, {**workload.options, "iterations": 1})
        )

    def num_operations(self, workload: Workload) -> int:
        """2 for each element of the matrix and 10 for each row, in every iteration."""
        star, s = star_of(workload), workload.sizes
        nnz = s["nnz"] if star is None else s["rows"] * (len(star.neighbours) + 1)
        return iterations_of(workload) * (2 * nnz + 10 * s["rows"])

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """What the model assumes."""
        return (
            "a barrier of the grid takes 1.6 us; of the L2 60 % hold what is read again, at 1.6 times the DRAM's rate",
            "neighbours and columns of gathered vectors come from the caches",
        )

    def usual_workloads(self, gpu: GpuModel) -> Iterable[Workload]:
        """Poisson's equation in two and in three dimensions, as a star and in CSR."""
        for nx, ny, rows in ((2048, 2048, 2048**2), (128, 128, 128**3), (1024, 1024, 1024**2)):
            yield Workload("cg", {"rows": rows, "nnz": 5 * rows}, "fp64", {"nx": nx, "ny": ny})
        yield Workload("cg", {"rows": POISSON_ROWS, "nnz": POISSON_NNZ}, "fp64")

    def num_terms(self, workload: Workload) -> int:
        """Roundings of a solution: those of the last few iterations of a system that is dominant in the diagonal."""
        return 16 * iterations_of(workload)

    # Launch and check. Needs torch.

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        """b (n,), and the matrix in CSR: starts, columns, values, and inverse with Jacobi."""
        from constrint.kernels.cg.reference import random_inputs

        return random_inputs(workload, device=device, seed=seed)

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """x (n,), empty."""
        return {"x": inputs["b"].new_empty(inputs["b"].shape)}

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """A fill of the barrier's memory, and the one launch."""
        from constrint.kernels.cg.launch import solve_launches

        return solve_launches(gpu, workload, config, inputs, outputs["x"])

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The same iterate in fp64."""
        from constrint.kernels.cg.reference import reference_of

        return {"x": reference_of(workload, dict(inputs))}


def iterations_of(workload: Workload) -> int:
    """Iterations of a workload's launch."""
    return workload.options.get("iterations", ITERATIONS)


def check_system(workload: Workload) -> None:
    """Refuse sizes that are no system.

    Raises:
        UsageError: When a grid's extents do not divide the rows, and for more elements than a matrix has.
    """
    rows, nnz = workload.sizes["rows"], workload.sizes["nnz"]
    nx, ny = workload.options.get("nx", 0), workload.options.get("ny", 0)
    if nx and rows % (nx * max(1, ny)):
        raise UsageError(f"cg: a grid of nx={nx} and ny={ny} has no {rows} points; rows are a multiple of nx * ny.")
    if ny and not nx:
        raise UsageError("cg: a grid has ny where it has nx.")
    if not nx and nnz > rows * rows:
        raise UsageError(f"cg: a matrix of {rows} rows has no {nnz} elements.")


SPECS = (CgSpec(),)
