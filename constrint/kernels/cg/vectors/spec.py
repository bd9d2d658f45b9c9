"""The parameter space of the vector parts in Triton: programs, elements at a time, warps. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.cg.base import SystemSpec
from constrint.kernels.cg.cost import PLAIN_WORDS, matrix_bytes
from constrint.kernels.cg.shape import System
from constrint.kernels.cg.sizes import check_system, iterations_of, system_of
from constrint.model.constraint import REDUNDANT
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns, cost_assumptions, launch_s, streaming_cost
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import Workload

#: Launches of an iteration: the product, and three kernels.
LAUNCHES = 4
#: Registers of a thread beside those of its elements, and vectors that it holds at once: compiled, 32 to 102.
BASE_REGISTERS, LIVE_VECTORS = 16, 3
REGISTER_BYTES, SUM_BYTES = 4, 8


class VectorsSpec(SystemSpec):
    """Triton's vector kernels, and the library's product with the matrix."""

    name = "triton"
    summary = "iterations of conjugate gradients by three vector kernels and the library's product, Triton"

    @property
    def device_files(self) -> tuple[Path, ...]:
        """The kernels."""
        return (Path(__file__).with_name("kernel.py"),)

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise UsageError for sizes that are no system."""
        check_system(workload)

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """Programs, elements of a program at a time, and warps."""
        few = "each kernel adds the sums of all programs before it"
        return (
            Param("programs", (512, 1024, 256, 2048, 128), "programs of a kernel", few),
            Param("block", (1024, 2048, 512, 256, 4096), "elements of a program at a time", "loads in flight"),
            Param("num_warps", (4, 8, 2, 1), "warps of a program", "a program has at most 8 here", "warps"),
        )

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Every thread has an element, and programs have some."""
        threads = v["num_warps"] * gpu.sm.warp_size
        yield Rule(v["block"] >= threads, "elements", "a thread without an element does nothing", REDUNDANT)
        rows = workload.sizes["rows"]
        full = (v["programs"] == 128) | ((v["programs"] // 2) * v["block"] < rows)
        yield Rule(full, "programs", "half as many programs have all rows", REDUNDANT)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one program."""
        system = system_of(workload)
        elements = v["block"] // (v["num_warps"] * gpu.sm.warp_size)
        live = LIVE_VECTORS * elements * system.element // REGISTER_BYTES + 2 * elements
        return BlockUse(
            warps=v["num_warps"],
            registers_per_thread=BASE_REGISTERS + live,
            smem_bytes=SUM_BYTES * v["num_warps"],
        )

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Bytes of thirteen vectors and of the matrix at the DRAM's rate, and four launches, for each iteration."""
        system, number = system_of(workload), iterations_of(workload)
        programs, warps = (np.asarray(columns[name], float) for name in ("programs", "num_warps"))
        resident = np.minimum(np.asarray(blocks_per_sm, float), programs / gpu.device.sm_count)
        # The programs of a wave that is not full leave SMs idle.
        waves = programs / (np.asarray(blocks_per_sm, float) * gpu.device.sm_count)
        idle = np.where(waves > 1.0, np.ceil(waves) / waves, 1.0)
        one = streaming_cost(gpu, iteration_bytes_of(system), resident * warps * gpu.sm.warp_size)
        step_s = (one.seconds - launch_s(gpu)) * idle
        parts = {name: number * part * idle for name, part in one.parts_s.items()}
        launches_s = number * LAUNCHES * launch_s(gpu) + 0.0 * step_s
        return CostColumns(number * step_s + launches_s, parts | {"launches": launches_s})

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Assumed traffic of the library's product."""
        product = "the library's product moves the matrix and two vectors, at the DRAM's rate"
        return (*cost_assumptions(gpu, workload.dtype, has_matrix_units=False), product)

    # Launch. Needs torch and triton.

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """The start, and a product and three kernels for each iteration."""
        from constrint.kernels.cg.vectors.launch import workload_launches

        return workload_launches(workload, config, inputs, outputs["x"], iterations_of(workload))


def iteration_bytes_of(system: System) -> int:
    """Bytes that an iteration moves by a product and three kernels."""
    words = PLAIN_WORDS + (1 if system.jacobi else 0)
    return words * system.rows * system.element + matrix_bytes(system)
