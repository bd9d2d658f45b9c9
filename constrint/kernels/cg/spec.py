"""The parameter space of conjugate gradients in CUDA C++: one launch whose blocks are all resident. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.cg.base import SystemSpec
from constrint.kernels.cg.cost import cg_cost
from constrint.kernels.cg.shape import (
    REGISTERS_PER_SM,
    ROW_STEP,
    WARP,
    System,
    meeting_bytes,
    registers_of,
    staged_bytes,
)
from constrint.kernels.cg.sizes import check_system, iterations_of, system_of
from constrint.kernels.cg.vectors.spec import VectorsSpec
from constrint.kernels.launch.cuda.nvrtc import nvrtc_here
from constrint.model import ceildiv, maximum, minimum
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns, cost_assumptions
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import Workload

SOURCE = Path(__file__).with_name("source")
#: Rows in shared memory come in steps of this.
KEPT_STEP = 2048
#: Shared memory that the driver takes of a block for itself.
RESERVED_SMEM_BYTES = 1024
#: Registers that a thread needs at least.
LEAST_REGISTERS = 24


class CgSpec(SystemSpec):
    """Conjugate gradients whose iterations all run in one launch, for a matrix in CSR or a star on a grid."""

    name = "cuda"
    summary = "iterations of conjugate gradients in one launch, two barriers of the grid each, CUDA C++"
    resident_params = ("blocks_per_sm", "threads", "kept_rows")
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tile": ("threads", "blocks_per_sm", "lanes"),
        "pipeline": ("unroll", "vector", "kept_rows", "kept_x"),
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
        deep = system.star is not None and system.star.extents[0] > 1
        planes, near = (0, 8, 4, 16, 2, 1, 32) if deep else (0,), "a box reads fewer points of other blocks"
        vectors = (1,) if system.star is None else (2, 4, 1) if system.element == 8 else (4, 8, 2, 1)
        at_once = (2, 4, 1) if system.star is None else (2, 1)
        kept = tuple(range(most, -1, -KEPT_STEP))
        lanes = (1,) if system.star is not None else (1, 2, 4, 8, 16, 32)
        return (
            Param("threads", (512, 1024, 256, 128), "threads of a block", "whole warps; the registers decide"),
            Param(
                "blocks_per_sm", (1, 2, 4), "resident blocks of an SM", "more blocks hide barriers of others", "b/sm"
            ),
            Param("kept_rows", kept, "rows of a block whose r or q stays in shared memory", what, "kept"),
            Param("kept_x", kept, "rows of a block whose x stays in shared memory", "x is read and written", "kept x"),
            Param("unroll", at_once, "rows that a thread loads at once", "loads in flight", "un"),
            Param(
                "vector", vectors, "rows of a thread beside each other", "16 or 32 bytes; a line's ends are whole", "v"
            ),
            Param(
                "planes", planes, "planes of a block's box of whole lines; 0: rows that follow each other", near, "pl"
            ),
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
        # A box may be an eighth larger than a share of all rows.
        most_kept = rows + rows // 8 + KEPT_STEP + ROW_STEP
        because = "a block keeps no more rows than it has"
        yield Rule(v["kept_rows"] <= most_kept, "kept_rows", because, REDUNDANT)
        yield Rule(v["kept_x"] <= most_kept, "kept_x", because, REDUNDANT)
        live = v["threads"] * per_sm * LEAST_REGISTERS <= REGISTERS_PER_SM
        yield Rule(live, "resident_registers", "all blocks of the grid wait for each other", CERTAIN)

        if system.star is not None:
            because = "a thread's rows are all on one line, which has whole vectors"
            yield Rule(
                v["vector"] * (system.star.extents[2] // v["vector"]) == system.star.extents[2],
                "lines",
                because,
                CERTAIN,
            )

            nz = system.star.extents[0]
            because = "a box for each block, and no more planes than there are"
            fits = (v["planes"] == 0) | (ceildiv(nz, maximum(1, v["planes"])) <= self._blocks(gpu, system, v))
            yield Rule(fits, "boxes", because, CERTAIN)
            yield Rule(v["planes"] <= nz, "planes", because, REDUNDANT)

    def _blocks(self, gpu: GpuModel, system: System, v: Vars) -> Any:
        return minimum(gpu.device.sm_count * v["blocks_per_sm"], ceildiv(system.rows, v["threads"]))

    def _smem(self, gpu: GpuModel, system: System, v: Vars) -> Any:
        most = gpu.device.sm_count * v["blocks_per_sm"]
        kept = (v["kept_rows"] + v["kept_x"]) * system.element + staged_bytes(system, v)
        return meeting_bytes(most, v["threads"]) + kept

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

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Assumed times and shares."""
        return (
            *cost_assumptions(gpu, workload.dtype, has_matrix_units=False),
            "a barrier of the grid takes 0.9 us; of the L2 60 % hold what is read again, at 1.6 times the DRAM's rate",
            "neighbours and columns of gathered vectors come from the caches",
        )

    # Launch and check. Needs torch.

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """A fill of the barrier's memory, and the one launch."""
        from constrint.kernels.cg.launch import solve_launches

        return solve_launches(gpu, workload, config, inputs, outputs["x"])


SPECS = (CgSpec(), VectorsSpec())
