"""Sizes, inputs and reference of sweeps, which both kernels share. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.jacobi.sizes import DTYPES, OPTIONS, SIZES, Grid
from constrint.kernels.jacobi.star import StarStencil, poisson, star_of
from constrint.select.cost import cost_assumptions
from constrint.select.spec import KernelSpec
from constrint.select.workload import Workload

#: Grids (ny, nx, nz) and steps that are tuned by default.
USUAL_GRIDS = ((8192, 8192, 1, 16), (2048, 2048, 1, 16), (512, 512, 512, 16), (128, 128, 128, 16), (8192, 8192, 1, 1))


class SweepBase(KernelSpec):
    """Sizes, checks and inputs of sweeps."""

    operation = "jacobi"
    sizes = SIZES
    options = OPTIONS
    dtypes = DTYPES

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Assumptions in place of values that no source states."""
        return tuple(cost_assumptions(gpu, workload.dtype, has_matrix_units=False))

    def star(self, grid: Grid) -> StarStencil:
        """The star of a workload: Poisson's, or one with all offsets of a radius, whose factors sum to less than 1."""
        axes = 3 if grid.is_3d else 2
        if grid.radius == 1:
            return poisson(axes)
        offsets = range(-grid.radius, grid.radius + 1)
        every = {tuple(o if a == axis else 0 for a in range(axes)): 0.0 for axis in range(axes) for o in offsets}
        factors: dict[Any, float] = {o: 0.9 / (len(every) + sum(map(abs, o))) for o in every}
        return star_of({**factors, "f": 0.5}, axes)

    def moved_bytes(self, workload: Workload) -> int:
        """Bytes of u, of f and of the result, each counted once."""
        return 3 * Grid.of(workload).bytes

    def num_operations(self, workload: Workload) -> int:
        """Two for each term of each point and step, and for the right side."""
        grid = Grid.of(workload)
        return 2 * (grid.terms + 1) * grid.points * grid.steps

    def roofline_s(self, gpu: GpuModel, workload: Workload) -> float:
        """max(operations / the peak of plain units, bytes of one pass over the grids / DRAM bandwidth)."""
        peak = gpu.vector_flop_per_s("fp64" if workload.dtype == "fp64" else "fp32")
        bytes_s = self.moved_bytes(workload) / gpu.memory.dram.bandwidth_bytes_per_s
        return max(bytes_s, self.num_operations(workload) / peak if peak else 0.0)

    def num_terms(self, workload: Workload) -> int:
        """Terms of a point's sum, over all steps."""
        grid = Grid.of(workload)
        return (grid.terms + 1) * grid.steps

    def roundings(self, workload: Workload) -> float:
        """Grids between launches are rounded to the dtype; a step's factors sum to at most 1."""
        return float(workload.sizes["steps"])

    def usual_workloads(self, gpu: GpuModel) -> Iterable[Workload]:
        """Poisson's problem on grids of two and three axes."""
        for ny, nx, nz, steps in USUAL_GRIDS:
            yield Workload(self.operation, {"ny": ny, "nx": nx, "nz": nz, "steps": steps}, "fp32")

    # Launch and check. Needs torch.

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        """u and f, (batch, NY, NX) or (batch, NZ, NY, NX), normally distributed."""
        from constrint.kernels.jacobi.operands import random_grids

        return random_grids(Grid.of(workload), device=device, seed=seed)

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """u after all steps, empty."""
        return {"out": inputs["u"].new_empty(inputs["u"].shape)}

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """u after all steps, in fp64."""
        from constrint.kernels.jacobi.reference import sweeps_reference

        grid = Grid.of(workload)
        return {"out": sweeps_reference(inputs["u"].double(), inputs["f"].double(), self.star(grid), grid.steps)}
